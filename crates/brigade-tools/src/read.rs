//! `read_file` and `list_dir`.

use std::borrow::Cow;
use std::time::Duration;

use brigade_core::ToolOutput;
use brigade_core::event::Effect;
use brigade_core::message::Category;
use brigade_core::permission::Subject;
use schemars::JsonSchema;
use serde::Deserialize;

use super::files::{EntryKind, Lines, Rest, blocking, escape_controls};
use super::{CallTitle, FileError, Files, SeenSlot, Tool, ToolContext};

/// Maximum number of bytes that one call returns.
const MAX_READ_BYTES: usize = 256 * 1024;
const MAX_LISTED_ENTRIES: usize = 1_000;
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Reads a text file.
#[derive(Debug, Clone, Copy)]
pub struct ReadFile;

/// The arguments of `read_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFileInput {
    /// Relative to the workspace
    path: String,
    /// First line, from 1
    offset: Option<u64>,
    /// Number of lines
    limit: Option<u64>,
}

impl Tool for ReadFile {
    const NAME: &'static str = "read_file";
    type Input = ReadFileInput;

    fn description(&self) -> Cow<'static, str> {
        "Read a text file, up to 256 KiB per call.".into()
    }

    fn category(&self) -> Category {
        Category::Read
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn subject<'a>(&self, input: &'a ReadFileInput) -> Subject<'a> {
        Subject::Path(&input.path)
    }

    fn title(&self, input: &ReadFileInput) -> Option<CallTitle> {
        Some(CallTitle::new("Read", &input.path))
    }

    async fn run(&self, input: ReadFileInput, context: &ToolContext) -> ToolOutput {
        let (files, seen) = (context.files.clone(), context.seen.clone());
        blocking(TIME_LIMIT, move |_| read_file(&files, &input, &seen).unwrap_or_else(ToolOutput::from)).await
    }
}

/// Reads as much of a file as one call can return.
pub fn show_file(files: &Files, path: &str, seen: &SeenSlot) -> ToolOutput {
    let input = ReadFileInput { path: path.to_owned(), offset: None, limit: None };
    read_file(files, &input, seen).unwrap_or_else(ToolOutput::from)
}

fn read_file(files: &Files, input: &ReadFileInput, seen: &SeenSlot) -> Result<ToolOutput, FileError> {
    let first = input.offset.unwrap_or(1).max(1);
    let limit = input.limit.unwrap_or(u64::MAX);
    if limit == 0 {
        return Ok(ToolOutput::error("`limit` is 0. Read at least one line."));
    }
    let lines = files.read_lines(&input.path, first, limit, MAX_READ_BYTES)?;
    let path = escape_controls(&input.path);
    if lines.binary {
        let text = format!("`{path}` is a binary file and is not shown. Use a program that can read it.");
        return Ok(ToolOutput::error(text));
    }
    if lines.count == 0 && first > 1 {
        let text = format!(
            "`{path}` ends at line {}, before offset {first}. Use a smaller `offset`.",
            lines.skipped
        );
        return Ok(ToolOutput::error(text));
    }
    if let Some(file) = &lines.seen {
        seen.put(file.clone());
    }
    Ok(ToolOutput::ok(render(&lines, first)))
}

fn render(lines: &Lines, first: u64) -> String {
    if lines.count == 0 {
        return "(the file is empty)".to_owned();
    }
    let last = first + lines.count - 1;
    let mut bytes = lines.bytes.as_slice();
    if lines.long_line {
        bytes = trim_partial_char(bytes);
    }
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    let mut notes = Vec::new();
    if std::str::from_utf8(bytes).is_err() {
        notes.push("(some bytes are not UTF-8 and are shown as \u{fffd})".to_owned());
    }
    if lines.long_line {
        notes.push(format!("(line {last} is longer than {MAX_READ_BYTES} bytes and was truncated)"));
    }
    match lines.rest {
        Rest::Lines(0) => {}
        Rest::Lines(more) => {
            let word = if more == 1 { "line" } else { "lines" };
            notes.push(format!("({more} more {word}; continue with offset {})", last + 1));
        }
        Rest::Unknown => notes.push(format!("(many more lines; continue with offset {})", last + 1)),
    }
    for note in notes {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// Removes an incomplete character that a cut left at the end.
fn trim_partial_char(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        // No error length: the text ends within a character. With an error length, the file itself is not UTF-8.
        Err(error) if error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}

/// Lists a folder.
#[derive(Debug, Clone, Copy)]
pub struct ListDir;

/// The arguments of `list_dir`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDirInput {
    /// Relative to the workspace
    #[serde(default = "workspace_itself")]
    path: String,
}

/// Default path of tools.
pub(super) fn workspace_itself() -> String {
    ".".to_owned()
}

impl Tool for ListDir {
    const NAME: &'static str = "list_dir";
    type Input = ListDirInput;

    fn description(&self) -> Cow<'static, str> {
        "List a directory. Names of directories end with `/`.".into()
    }

    fn category(&self) -> Category {
        Category::Read
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn subject<'a>(&self, input: &'a ListDirInput) -> Subject<'a> {
        Subject::Path(&input.path)
    }

    fn title(&self, input: &ListDirInput) -> Option<CallTitle> {
        Some(CallTitle::new("List", &input.path))
    }

    async fn run(&self, input: ListDirInput, context: &ToolContext) -> ToolOutput {
        let files = context.files.clone();
        blocking(TIME_LIMIT, move |_| list_dir(&files, &input.path).unwrap_or_else(ToolOutput::from)).await
    }
}

fn list_dir(files: &Files, path: &str) -> Result<ToolOutput, FileError> {
    let (entries, hit_limit) = files.list(path)?;
    if entries.is_empty() {
        return Ok(ToolOutput::ok("(the directory is empty)"));
    }
    let mut text = String::new();
    for entry in entries.iter().take(MAX_LISTED_ENTRIES) {
        text.push_str(&escape_controls(&entry.name()));
        text.push_str(if entry.kind == EntryKind::Folder { "/\n" } else { "\n" });
    }
    if entries.len() > MAX_LISTED_ENTRIES {
        let more = entries.len() - MAX_LISTED_ENTRIES;
        let least = if hit_limit.is_some() { "at least " } else { "" };
        let word = if more == 1 { "entry" } else { "entries" };
        text.push_str(&format!("({least}{more} more {word}; use `glob` to narrow the list)\n"));
    }
    Ok(ToolOutput::ok(text))
}
