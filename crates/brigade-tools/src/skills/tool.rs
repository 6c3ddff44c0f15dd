//! `skill`: reads the instructions and files of a skill. Agent definitions decide which agents have it.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brigade_core::event::Effect;
use brigade_core::message::Category;
use brigade_core::permission::{Action, ActionKind, Subject};
use brigade_core::{ToolOutput, ToolSpec};
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{SKILL, Skill};
use crate::files::{Rest, StopSignal, blocking, escape_controls};
use crate::{AnyTool, FileError, ToolContext, parse_input};

/// Maximum length of a description in the offer, in characters.
const MAX_DESCRIPTION_CHARS: usize = 160;
/// Maximum number of listed files of a skill.
const MAX_LISTED_FILES: usize = 200;
/// Maximum number of bytes returned of a file.
const MAX_FILE_BYTES: usize = 256 * 1024;
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Tool for a set of skills.
pub(super) struct SkillTool {
    skills: Arc<[Skill]>,
    spec: ToolSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    name: String,
    file: Option<String>,
}

impl SkillTool {
    pub(super) fn new(skills: Arc<[Skill]>) -> SkillTool {
        let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "enum": names, "description": "Name of the skill" },
                "file": {
                    "type": "string",
                    "description": "File to read instead, relative to the skill's directory"
                }
            },
            "required": ["name"],
            "additionalProperties": false
        });
        let mut description =
            "Read a skill: instructions for one kind of work. Before you start work that a skill covers, read \
             the skill and follow it. Available skills:"
                .to_owned();
        for skill in skills.iter() {
            description.push_str(&format!("\n- {}: {}", skill.name, short_description(&skill.description)));
        }
        let spec = ToolSpec { name: SKILL.to_owned(), description, schema, category: Category::Read };
        SkillTool { skills, spec }
    }

    fn find(&self, arguments: Value) -> Result<(Skill, Option<String>), ToolOutput> {
        let input: Input = parse_input(&self.spec, arguments)?;
        let skill = self.skills.iter().find(|skill| skill.name == input.name).ok_or_else(|| {
            let names: Vec<&str> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
            let name = escape_controls(brigade_core::text::truncate_bytes(&input.name, 64));
            ToolOutput::error(format!("Unknown skill `{name}`. Available: {}", names.join(", ")))
        })?;
        Ok((skill.clone(), input.file))
    }
}

/// Reduces a description to one short line that it cannot break out of.
fn short_description(description: &str) -> String {
    let words: Vec<&str> = description.split_whitespace().collect();
    let line = escape_controls(&words.join(" "));
    match line.char_indices().nth(MAX_DESCRIPTION_CHARS) {
        Some(_) => line.chars().take(MAX_DESCRIPTION_CHARS - 1).chain(['…']).collect(),
        None => line,
    }
}

impl AnyTool for SkillTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn check(&self, arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        self.find(arguments.clone())?;
        judge(&Action { tool: SKILL, kind: ActionKind::Pure, subject: Subject::Nothing });
        Ok(())
    }

    fn run<'a>(&'a self, arguments: Value, _context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let (skill, file) = match self.find(arguments) {
                Ok(found) => found,
                Err(output) => return output,
            };
            blocking(TIME_LIMIT, move |stop| match file {
                None => ToolOutput::ok(render_skill(&skill, stop)),
                Some(file) => read_skill_file(&skill, &file),
            })
            .await
        })
    }
}

/// Renders the skill's instructions and the other files of its folder.
fn render_skill(skill: &Skill, stop: &StopSignal) -> String {
    let mut names = Vec::new();
    let mut more = false;
    let walked = skill.files.walk(".", stop, &mut |found| {
        if found.below == "SKILL.md" {
            return ControlFlow::Continue(());
        }
        if names.len() == MAX_LISTED_FILES {
            more = true;
            return ControlFlow::Break(());
        }
        names.push(escape_controls(found.below));
        ControlFlow::Continue(())
    });
    let mut text = format!("The skill `{}`:\n\n{}\n", skill.name, skill.body);
    if !names.is_empty() {
        text.push_str("\nOther files of this skill (read them with `file`):\n");
        text.push_str(&names.join("\n"));
        text.push('\n');
    }
    if more || !matches!(walked, Ok(None)) {
        text.push_str("(not all of its files are listed)\n");
    }
    text
}

/// Explains why a file of a skill cannot be read. The file errors mention the workspace, which does not apply here.
pub(super) fn explain(error: FileError) -> String {
    match error {
        FileError::NotFound { .. } => "it does not exist".to_owned(),
        FileError::Outside { .. } => "it is outside the skill's directory".to_owned(),
        FileError::TooLarge { cap, .. } => format!("it is larger than {cap} bytes"),
        FileError::NotAFile { what, .. } => format!("it is {what}, not a file"),
        FileError::NotAFolder { .. } => "it is not a directory".to_owned(),
        FileError::BadPath { reason, .. } => format!("it is not a valid path: {reason}"),
        FileError::System { cause, .. } => cause.to_string(),
        other => other.to_string(),
    }
}

fn read_skill_file(skill: &Skill, file: &str) -> ToolOutput {
    let (name, path) = (&skill.name, escape_controls(brigade_core::text::truncate_bytes(file, 200)));
    let lines = match skill.files.read_lines(file, 1, u64::MAX, MAX_FILE_BYTES) {
        Ok(lines) => lines,
        Err(error) => {
            let cause = explain(error);
            return ToolOutput::error(format!("cannot read `{path}` of the skill `{name}`: {cause}"));
        }
    };
    let real = lines.seen.as_ref().map_or(Path::new(file), |seen| Path::new(&seen.path));
    let real = skill.files.workspace().root().join(real);
    if let Err(changed) = skill.pinned.check(&real, lines.seen.as_ref().map(|seen| seen.hash)) {
        return ToolOutput::error(format!("cannot read `{path}` of the skill `{name}`: {changed}."));
    }
    if lines.binary {
        return ToolOutput::error(format!(
            "`{path}` of the skill `{name}` is a binary file and is not shown"
        ));
    }
    let mut text = String::from_utf8_lossy(&lines.bytes).into_owned();
    if lines.long_line || lines.rest != Rest::Lines(0) {
        text.push_str(&format!("\n(the rest of `{path}` is omitted)\n"));
    }
    if text.is_empty() {
        text.push_str("(the file is empty)");
    }
    ToolOutput::ok(text)
}
