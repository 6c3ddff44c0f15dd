//! Reads one agent file in the format that its path and content indicate.

use std::path::Path;

use brigade_base::pinned_files::PinnedFiles;
use serde_json::Value;

use super::build::{BuildResult, build};
use super::document::{Document, Field, Header};
use super::format::{Format, Syntax};
use super::problem::DefinitionError;
use super::secret::{find_secrets, redact};
use super::{AgentDefinition, AgentProblem, FileReport, LoadFailure, file};

/// Reads a file and reports the result. A configuration file of OpenCode may contain several agents.
pub(super) fn read(path: &Path, pinned: &PinnedFiles) -> Vec<FileReport> {
    let format = Format::of(path);
    let text = match file::read(path, pinned) {
        Ok(text) => text,
        Err(fault) => return vec![refused(path, format, fault, &[])],
    };
    let syntax = Syntax::of(path).unwrap_or(Syntax::Markdown);
    let head = match Header::of(&text, syntax) {
        Ok(head) => head,
        Err(fault) => return vec![refused(path, format, fault, &[])],
    };
    let secrets = find_secrets(&head.text);
    match Document::parse(head, syntax) {
        Ok(document) => documents(document, format)
            .into_iter()
            .map(|(document, format, entry)| {
                let built = build(document, path, format, entry.as_deref());
                report(path, format, built, &secrets)
            })
            .collect(),
        Err(fault) => vec![refused(path, format, fault, &secrets)],
    }
}

/// Splits a document into its agents. The content has the final say on the format.
fn documents(mut document: Document, format: Format) -> Vec<(Document, Format, Option<String>)> {
    match format {
        Format::Brigade if document.get("llm").is_some() => vec![(document, Format::Picklebot, None)],
        Format::Opencode => {
            let several =
                document.fields.iter().position(|field| field.key == "agent" && field.value.is_object());
            if let Some(at) = several {
                return entries(document.fields.swap_remove(at));
            }
            let is_recipe = document.get("title").is_some() && document.get("instructions").is_some();
            vec![(document, if is_recipe { Format::Goose } else { format }, None)]
        }
        _ => vec![(document, format, None)],
    }
}

fn entries(agents: Field) -> Vec<(Document, Format, Option<String>)> {
    let Value::Object(agents_by_name) = agents.value else { return Vec::new() };
    let document = |value: Value| {
        let fields = match value {
            Value::Object(map) => {
                map.into_iter().map(|(key, value)| Field { key, line: agents.line, value }).collect()
            }
            // An entry without a section defines nothing.
            _ => Vec::new(),
        };
        Document { fields, ..Document::default() }
    };
    agents_by_name.into_iter().map(|(name, value)| (document(value), Format::Opencode, Some(name))).collect()
}

fn report(path: &Path, format: Format, built: BuildResult, secrets: &[String]) -> FileReport {
    let mut notes = built.notes;
    for note in &mut notes {
        note.text = redact(secrets, std::mem::take(&mut note.text));
        note.key = redact(secrets, std::mem::take(&mut note.key));
    }
    let outcome = match built.outcome {
        Ok((mut agent, api_key)) => {
            agent.key_of = api_key.as_ref().map(|_| agent.id.clone());
            Ok(AgentDefinition { agent, api_key, file: path.to_owned(), format, notes })
        }
        Err(fault) => Err(LoadFailure { problem: problem(path, fault, secrets), notes }),
    };
    FileReport { file: path.to_owned(), format, outcome }
}

fn refused(path: &Path, format: Format, fault: DefinitionError, secrets: &[String]) -> FileReport {
    let refusal = LoadFailure { problem: problem(path, fault, secrets), notes: Vec::new() };
    FileReport { file: path.to_owned(), format, outcome: Err(refusal) }
}

fn problem(path: &Path, fault: DefinitionError, secrets: &[String]) -> AgentProblem {
    AgentProblem::refused(path, DefinitionError { cause: redact(secrets, fault.cause), ..fault })
}
