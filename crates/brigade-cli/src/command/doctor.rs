//! `brigade doctor`: checks the setup and suggests fixes.

mod agents;
mod config;
mod external;
mod machine;
mod models;
mod servers;
mod store;

use serde::Serialize;
use serde_json::json;

use crate::args::{Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::output;
use crate::render::{pad, wrap_hanging};
use crate::sanitize;
use crate::settings::Settings;
use crate::setup;
use crate::terminal;

const HELP: &str = "\
Examples:
  brigade doctor                         check everything
  brigade doctor --offline               query only servers on this machine
  brigade doctor --output-format json    the same as JSON

Each line starts with ok, note, warn or problem. Warnings and problems include a fix.
Exit code 1 if there is a problem. Keys are never shown.";

/// Check your setup and suggest fixes
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct DoctorArgs {
    /// Query only servers on this machine
    #[arg(long)]
    pub(crate) offline: bool,
}

/// Columns before the text of a finding.
const INDENT: usize = 11;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// Works as expected.
    Ok,
    /// Information.
    Note,
    /// Works, but possibly not as intended.
    Warn,
    /// Does not work.
    Problem,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warn => "warn",
            Level::Problem => "problem",
        }
    }
}

/// Result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    what: String,
    /// Suggested fix.
    #[serde(rename = "cure")]
    fix: Option<String>,
}

impl Finding {
    fn ok(what: impl Into<String>) -> Finding {
        Finding { level: Level::Ok, what: what.into(), fix: None }
    }

    fn note(what: impl Into<String>) -> Finding {
        Finding { level: Level::Note, what: what.into(), fix: None }
    }

    fn warn(what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { level: Level::Warn, what: what.into(), fix: Some(fix.into()) }
    }

    fn problem(what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { level: Level::Problem, what: what.into(), fix: Some(fix.into()) }
    }

    /// Problem that prevents every run.
    fn blocks_runs(failure: &CliError) -> Finding {
        Finding::problem(failure.to_string(), "Fix this first; runs cannot start until it is fixed")
    }
}

/// Group of findings.
#[derive(Debug, Serialize)]
struct Section {
    name: &'static str,
    findings: Vec<Finding>,
}

/// Runs the command.
pub(crate) fn run(global: &Global, doctor: &DoctorArgs) -> Result<Exit, CliError> {
    let (settings, layers) = Settings::diagnose(global)?;
    let (models, providers) = models::findings(&settings, doctor.offline)?;
    let sections = [
        Section { name: "version", findings: vec![machine::version()] },
        Section { name: "config", findings: config::findings(&layers) },
        Section { name: "model", findings: models },
        Section { name: "providers", findings: providers },
        Section { name: "store", findings: store::findings(&settings.store) },
        Section { name: "guard", findings: vec![machine::guard(&settings)?] },
        Section { name: "commands", findings: machine::commands(&settings) },
        Section { name: "sandbox", findings: machine::sandbox(&settings)? },
        Section { name: "terminal", findings: machine::terminal(&settings.environment) },
        Section { name: "agents", findings: agents::agents(&settings) },
        Section { name: "instructions", findings: agents::instructions(&settings)? },
        Section { name: "skills", findings: agents::skills(&settings) },
        Section { name: "tools", findings: agents::tools(&settings) },
        Section { name: "mcp", findings: servers::findings(&settings, doctor.offline)? },
        Section { name: "acp", findings: external::findings(&settings, doctor.offline)? },
    ];
    let count = |level: Level| {
        let all = sections.iter().flat_map(|section| &section.findings);
        all.filter(|finding| finding.level == level).count()
    };
    let (problems, warnings) = (count(Level::Problem), count(Level::Warn));
    match global.output_format {
        OutputFormat::Text => output::raw(&text(&sections, problems, warnings, terminal::stdout_columns()))?,
        OutputFormat::Json | OutputFormat::StreamJson => output::json(&json!({
            "type": "doctor",
            "problems": problems,
            "warnings": warnings,
            "sections": sections,
        }))?,
    }
    Ok(if problems == 0 { Exit::Done } else { Exit::Failed })
}

fn text(sections: &[Section], problems: usize, warnings: usize, columns: usize) -> String {
    let mut text = String::new();
    let below = " ".repeat(INDENT);
    for section in sections {
        text.push_str(&format!("{}\n", section.name));
        for finding in &section.findings {
            let message = sanitize::lines(&finding.what);
            let fix = finding.fix.as_deref().map(sanitize::lines);
            let mut lines = message.lines().chain(fix.iter().flat_map(|fix| fix.lines()));
            let first = lines.next().unwrap_or_default();
            let first = format!("  {}  {first}", pad(finding.level.word(), 7));
            for line in std::iter::once(first).chain(lines.map(|line| format!("{below}{line}"))) {
                for line in wrap_hanging(&line, columns, INDENT) {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
        }
    }
    let count = |number: usize, thing: &str| match number {
        0 => format!("no {thing}s"),
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    };
    text.push_str(&format!("\n{}, {}\n", count(problems, "problem"), count(warnings, "warning")));
    text
}

/// Runs a future to its end.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, CliError> {
    Ok(setup::current_thread_runtime()?.block_on(future))
}
