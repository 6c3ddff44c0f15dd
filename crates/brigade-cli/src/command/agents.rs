//! `brigade agents`: lists and shows agents, checks their files and creates new ones.

mod lint;
mod new;

use std::path::PathBuf;

use brigade::agents::{self, AgentDefinition, LoadError};
use serde_json::{Value, json};

use crate::args::{Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::output;
use crate::render::{fit, pad};
use crate::sanitize;
use crate::settings::Settings;

/// List and show agents, check their files, create new ones
#[derive(Debug, clap::Args)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    pub(crate) command: AgentsCommand,
}

/// Subcommands of `agents`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum AgentsCommand {
    /// List all agents, and problems in agent files
    List,
    /// Show one agent: prompt, tools, limits, and how each key of its file is used
    Show {
        /// Agent id
        id: String,
    },
    /// Check agent files: which keys are honoured, translated, ignored or refused. Exit code 1 if one is refused
    Lint {
        /// Agent files or directories (default: all directories that are searched for agents)
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Create an agent file
    New {
        /// Agent id: 1 to 64 characters from a-z, 0-9, `.`, `_` and `-`
        id: String,
        /// Create it in .brigade/agents of the working directory instead of your own agents directory
        #[arg(long)]
        project: bool,
    },
}

/// Columns of a description in a list.
const MAX_DESCRIPTION_COLUMNS: usize = 90;
const MAX_ID_COLUMNS: usize = 32;

/// Runs the command.
pub(crate) fn run(global: &Global, agents: &AgentsArgs) -> Result<Exit, CliError> {
    let settings = Settings::load(global)?;
    let is_text = global.output_format == OutputFormat::Text;
    match &agents.command {
        AgentsCommand::List => list(&settings, is_text),
        AgentsCommand::Show { id } => show(&settings, id, is_text),
        AgentsCommand::Lint { paths } => lint::run(&settings, paths, is_text),
        AgentsCommand::New { id, project } => {
            let scope = if *project { new::AgentScope::Project } else { new::AgentScope::User };
            new::run(&settings, id, scope, is_text)
        }
    }
}

fn list(settings: &Settings, is_text: bool) -> Result<Exit, CliError> {
    let found = agents::discover_all(&settings.agent_dirs());
    for problem in &found.problems {
        output::note(&format!("warning: {problem}"));
    }
    if !is_text {
        let all: Vec<Value> = found.definitions.iter().map(entry).collect();
        output::json(&all)?;
    } else if found.definitions.is_empty() {
        output::note("No agents besides the built-in lead. Create one with: brigade agents new ID");
    } else {
        let longest = found.definitions.iter().map(|definition| definition.agent.id.len()).max().unwrap_or(0);
        let width = longest.clamp(2, MAX_ID_COLUMNS);
        let line = |definition: &AgentDefinition| {
            let description = sanitize::line(&definition.agent.description);
            let format = pad(definition.format.word(), 10);
            format!(
                "{} {format} {}",
                pad(&definition.agent.id, width),
                fit(&description, MAX_DESCRIPTION_COLUMNS)
            )
        };
        let lines: Vec<String> = found.definitions.iter().map(line).collect();
        let head = format!("{} {} description", pad("id", width), pad("format", 10));
        output::text(&format!("{head}\n{}", lines.join("\n")))?;
    }
    Ok(Exit::Done)
}

fn entry(definition: &AgentDefinition) -> Value {
    let agent = &definition.agent;
    json!({
        "id": agent.id,
        "name": agent.name,
        "description": agent.description,
        "provider": agent.provider,
        "model": agent.model,
        "tools": agent.tools,
        "format": definition.format,
        "file": definition.file,
    })
}

fn show(settings: &Settings, id: &str, is_text: bool) -> Result<Exit, CliError> {
    let definition = find(settings, id)?;
    if is_text {
        output::text(&describe(&definition))?;
    } else {
        output::json(&json!({
            "id": definition.agent.id,
            "agent": definition.agent,
            "has_api_key": definition.api_key.is_some(),
            "format": definition.format,
            "file": definition.file,
            "notes": definition.notes,
        }))?;
    }
    Ok(Exit::Done)
}

/// Definition that takes effect: that of the first folder that has one.
fn find(settings: &Settings, id: &str) -> Result<AgentDefinition, CliError> {
    let found = agents::discover_all(&settings.agent_dirs());
    found.definition(id).map_err(|error| match error {
        LoadError::NotFound(_) => CliError::usage(error).hint("List all agents with: brigade agents list"),
        LoadError::Invalid(problem) => CliError::failed(problem),
    })
}

fn describe(definition: &AgentDefinition) -> String {
    let agent = &definition.agent;
    let mut text = String::new();
    let mut row = |key: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            text.push_str(&format!("{} {}\n", pad(key, 16), sanitize::line(&value)));
        }
    };
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    row("id", Some(agent.id.clone()));
    row("name", Some(agent.name.clone()));
    row("description", Some(agent.description.clone()));
    row("file", Some(format!("{} ({})", definition.file.display(), definition.format.word())));
    row("provider", agent.provider.clone());
    row("model", Some(agent.model.clone().unwrap_or_else(|| "inherited".to_owned())));
    row("fallbacks", (!agent.fallbacks.is_empty()).then(|| agent.fallbacks.join(", ")));
    row("api_base", agent.api_base.clone());
    row("api_key", definition.api_key.as_ref().map(|_| "set in the file".to_owned()));
    row("temperature", agent.temperature.map(|number| number.to_string()));
    row("max_tokens", agent.max_tokens.map(|number| number.to_string()));
    row("tools", Some(agent.tools.as_deref().map_or_else(|| "inherited".to_owned(), list)));
    row("lend", agent.lend.as_deref().map(list));
    row("max_turns", agent.max_turns.map(|number| number.to_string()));
    row("timeout", agent.timeout.map(crate::units::format_duration));
    row("max_concurrency", agent.max_concurrency.map(|number| number.to_string()));
    row("mode", agent.mode.map(|mode| format!("{mode} at most")));
    row("deny", Some(agent.deny.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")));
    row("allow_skills", agent.allow_skills.then(|| "true".to_owned()));
    let notes = lint::lines(&definition.notes);
    format!("{text}\n{notes}\n{}\n", agent.prompt)
}
