//! `brigade doctor`: what is well, what is not, and what to do about it.

mod config;
mod external;
mod machine;
mod models;
mod servers;
mod store;
mod team;

use serde::Serialize;
use serde_json::json;

use crate::args::{Doctor, Global, OutputFormat};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::render::{hanging, pad};
use crate::safe;
use crate::settings::Settings;
use crate::terminal;

/// Columns before the text of a finding.
const INDENT: usize = 11;

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// It works, but perhaps not as it is meant.
    Warn,
    /// Something does not work.
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

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    what: String,
    /// What to do about it.
    cure: Option<String>,
}

impl Finding {
    fn ok(what: impl Into<String>) -> Finding {
        Finding { level: Level::Ok, what: what.into(), cure: None }
    }

    fn note(what: impl Into<String>) -> Finding {
        Finding { level: Level::Note, what: what.into(), cure: None }
    }

    fn warn(what: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding { level: Level::Warn, what: what.into(), cure: Some(cure.into()) }
    }

    fn problem(what: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding { level: Level::Problem, what: what.into(), cure: Some(cure.into()) }
    }
}

/// Things that belong together.
#[derive(Debug, Serialize)]
struct Section {
    name: &'static str,
    findings: Vec<Finding>,
}

/// Runs it.
pub(crate) fn run(global: &Global, doctor: &Doctor) -> Result<Exit, Failure> {
    let (settings, layers) = Settings::examined(global)?;
    let (models, providers) = models::look(&settings, doctor.offline)?;
    let sections = [
        Section { name: "version", findings: vec![machine::version()] },
        Section { name: "config", findings: config::findings(&layers) },
        Section { name: "model", findings: models },
        Section { name: "providers", findings: providers },
        Section { name: "store", findings: store::findings(&settings.store) },
        Section { name: "guard", findings: vec![machine::guard(&settings)?] },
        Section { name: "commands", findings: machine::commands(&settings) },
        Section { name: "sandbox", findings: machine::sandbox() },
        Section { name: "terminal", findings: machine::terminal(&settings.environment) },
        Section { name: "agents", findings: team::agents(&settings) },
        Section { name: "instructions", findings: team::instructions(&settings)? },
        Section { name: "skills", findings: team::skills(&settings) },
        Section { name: "tools", findings: team::tools(&settings) },
        Section { name: "mcp", findings: servers::findings(&settings, doctor.offline)? },
        Section { name: "acp", findings: external::findings(&settings, doctor.offline)? },
    ];
    let count = |level: Level| {
        let all = sections.iter().flat_map(|section| &section.findings);
        all.filter(|finding| finding.level == level).count()
    };
    let (problems, warnings) = (count(Level::Problem), count(Level::Warn));
    match global.output_format {
        OutputFormat::Text => {
            output::raw(&text(&sections, problems, warnings, terminal::room_for_results()))?
        }
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
            let said = safe::lines(&finding.what);
            let cure = finding.cure.as_deref().map(safe::lines);
            let mut lines = said.lines().chain(cure.iter().flat_map(|cure| cure.lines()));
            let first = lines.next().unwrap_or_default();
            let first = format!("  {}  {first}", pad(finding.level.word(), 7));
            for line in std::iter::once(first).chain(lines.map(|line| format!("{below}{line}"))) {
                for line in hanging(&line, columns, INDENT) {
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

/// A runtime for what has to be waited for.
fn wait_for<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    Ok(engine::one_thread()?.block_on(future))
}
