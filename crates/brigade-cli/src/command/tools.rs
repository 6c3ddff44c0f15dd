//! `brigade tools`: what the lead is offered, and logins to servers of tools.

mod login;

use brigade_core::faces::{Caller, DELEGATION_TOOLS, MESSAGE};
use brigade_core::grant::Names;
use brigade_core::{Authority, ToolSpec};
use serde_json::json;

use crate::args::{Global, OutputFormat, Tools, ToolsCommand};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::render::{fit, pad};
use crate::safe;
use crate::settings::Settings;

/// Runs it.
pub(crate) fn run(global: &Global, tools: &Tools) -> Result<Exit, Failure> {
    let settings = Settings::to_look(global)?;
    match &tools.command {
        ToolsCommand::List { servers } => list(global, &settings, *servers),
        ToolsCommand::Login { server } => login::login(&settings, server),
        ToolsCommand::Logout { server } => login::logout(&settings, server),
    }
}

fn list(global: &Global, settings: &Settings, servers: bool) -> Result<Exit, Failure> {
    let library = engine::library_settings(settings)?;
    let mut offered: Vec<(String, String, serde_json::Value)> =
        library.tools.iter().chain(library.skills.tool()).map(|tool| entry(tool.spec())).collect();
    if servers {
        let servers = engine::one_thread()?.block_on(engine::servers(settings))?;
        offered.extend(servers.tools().iter().map(|tool| entry(tool.spec())));
    } else {
        offered.extend(settings.servers.iter().map(|server| not_started(&server.name)));
    }
    offered.push((
        MESSAGE.to_owned(),
        "Send the person a short message now, while you go on working".to_owned(),
        json!({ "category": "other" }),
    ));
    let authority = Authority {
        tools: DELEGATION_TOOLS.map(str::to_owned).into(),
        deepest: settings.limits.max_depth,
        agents: Names::Any,
        ..Authority::default()
    };
    let caller =
        Caller { depth: 0, authority: &authority, agent: &library.lead, agents: library.agents.list() };
    offered.extend(library.faces.specs(&caller).iter().map(entry));
    offered.sort_by(|a, b| a.0.cmp(&b.0));
    match global.output_format {
        OutputFormat::Text => {
            let lines: Vec<String> = offered
                .iter()
                .map(|(name, description, _)| {
                    let sentence = description.split(". ").next().unwrap_or_default();
                    format!(
                        "{} {}",
                        pad(&safe::line(name), 17),
                        fit(&safe::line(sentence.trim_end_matches('.')), 110)
                    )
                })
                .collect();
            output::text(&lines.join("\n"))?;
        }
        OutputFormat::Json | OutputFormat::StreamJson => {
            let all: Vec<serde_json::Value> = offered
                .into_iter()
                .map(|(name, description, mut rest)| {
                    rest["name"] = json!(name);
                    rest["description"] = json!(description);
                    rest
                })
                .collect();
            output::json(&all)?;
        }
    }
    Ok(Exit::Done)
}

/// Stands for the tools of a server, which only the server knows.
fn not_started(server: &str) -> (String, String, serde_json::Value) {
    let about = "Tools of an MCP server, which is not started for this list (--servers starts it)";
    (format!("mcp__{}__*", server.to_lowercase()), about.to_owned(), json!({ "category": "other" }))
}

fn entry(spec: &ToolSpec) -> (String, String, serde_json::Value) {
    let rest = json!({ "category": spec.category, "schema": spec.schema });
    (spec.name.clone(), spec.description.clone(), rest)
}
