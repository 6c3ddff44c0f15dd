//! `brigade tools`: what the lead is offered.

use std::collections::BTreeSet;

use brigade_core::faces::{MESSAGE, delegate};
use brigade_core::{Authority, ToolSpec};
use serde_json::json;

use crate::args::{Global, OutputFormat, Tools, ToolsCommand};
use crate::engine;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::render::{fit, pad};
use crate::settings::Settings;

/// Runs it.
pub(crate) fn run(global: &Global, tools: &Tools) -> Result<Exit, Failure> {
    let ToolsCommand::List = tools.command;
    let settings = Settings::to_look(global)?;
    let library = engine::library_settings(&settings)?;
    let mut offered: Vec<(String, String, serde_json::Value)> =
        library.tools.iter().chain(library.skills.tool()).map(|tool| entry(tool.spec())).collect();
    offered.push((
        MESSAGE.to_owned(),
        "Send the person a short message now, while you go on working".to_owned(),
        json!({ "category": "other" }),
    ));
    let names: BTreeSet<String> = [delegate::NAME.to_owned()].into();
    let authority = Authority { tools: names, deepest: settings.limits.max_depth, ..Authority::default() };
    if settings.swarm.is_offered(0, &authority) {
        offered.push(entry(&settings.swarm.spec()));
    }
    offered.sort_by(|a, b| a.0.cmp(&b.0));
    match global.output_format {
        OutputFormat::Text => {
            let lines: Vec<String> = offered
                .iter()
                .map(|(name, description, _)| {
                    let sentence = description.split(". ").next().unwrap_or_default();
                    format!("{} {}", pad(name, 14), fit(sentence.trim_end_matches('.'), 110))
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

fn entry(spec: &ToolSpec) -> (String, String, serde_json::Value) {
    let rest = json!({ "category": spec.category, "schema": spec.schema });
    (spec.name.clone(), spec.description.clone(), rest)
}
