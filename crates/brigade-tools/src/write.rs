//! `write_file` and `edit_file`, which plan the new content of a file.

use std::borrow::Cow;
use std::time::Duration;

use brigade_core::event::ChangedLines;
use brigade_core::text::truncate_bytes;
use brigade_core::{Extent, Hash, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;
use similar::{Algorithm, DiffTag, TextDiff};

use super::files::{EditTarget, MAX_EDIT_BYTES, escape_controls};
use super::{EditPlan, EditTool, Files};

/// Maximum size of a diff for the model, and time limit for computing it.
const MAX_DIFF_BYTES: usize = 4 * 1024;
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of lines that are compared to find the intended one.
const MAX_HINT_LINES: usize = 2_000;
const MAX_HINT_BYTES: usize = 200;

/// Writes a whole file.
#[derive(Debug, Clone, Copy)]
pub struct WriteFile;

/// The arguments of `write_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFileInput {
    /// Relative to the workspace
    path: String,
    /// Whole content
    content: String,
}

impl EditTool for WriteFile {
    const NAME: &'static str = "write_file";
    type Input = WriteFileInput;
    const VERB: &'static str = "Write";

    fn description(&self) -> Cow<'static, str> {
        "Create a file, or overwrite one that you have read in full.".into()
    }

    fn path<'a>(&self, input: &'a WriteFileInput) -> &'a str {
        &input.path
    }

    fn plan(&self, input: WriteFileInput, files: &Files) -> Result<EditPlan, ToolOutput> {
        let content = input.content.into_bytes();
        check_size(content.len())?;
        let EditTarget { path, content: before } = files.edit_target(&input.path)?;
        let (bytes, name) = (content.len(), escape_controls(&path));
        let report = match before {
            Some(_) => format!("Wrote {bytes} bytes to {name}"),
            None => format!("Created {name} with {bytes} bytes"),
        };
        let (lines, _) = line_diff(before.as_deref().unwrap_or_default(), &content);
        let before = before.as_deref().map(Hash::of);
        Ok(EditPlan { path, before, needs: Extent::Whole, content, lines: Some(lines), report })
    }
}

/// Replaces a piece of text in a file.
#[derive(Debug, Clone, Copy)]
pub struct EditFile;

/// The arguments of `edit_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditFileInput {
    /// Relative to the workspace
    path: String,
    /// Exact text to replace; must be unique
    old: String,
    /// Replacement
    new: String,
    /// Replace all matches
    #[serde(default)]
    replace_all: bool,
}

impl EditTool for EditFile {
    const NAME: &'static str = "edit_file";
    type Input = EditFileInput;

    fn description(&self) -> Cow<'static, str> {
        "Replace text in a file that you have read.".into()
    }

    fn path<'a>(&self, input: &'a EditFileInput) -> &'a str {
        &input.path
    }

    fn plan(&self, input: EditFileInput, files: &Files) -> Result<EditPlan, ToolOutput> {
        if input.old.is_empty() {
            return Err(ToolOutput::error(
                "`old` is empty. Give the text to replace, or use `write_file` for a new file.",
            ));
        }
        if input.old == input.new {
            return Err(ToolOutput::error("`old` and `new` are identical. Nothing was changed."));
        }
        let target = files.edit_target(&input.path)?;
        let name = escape_controls(&target.path);
        let Some(before) = target.content else {
            return Err(ToolOutput::error(format!(
                "`{name}` does not exist. Use `write_file` to create it."
            )));
        };
        let offsets = occurrences(&before, &input.old);
        match offsets.len() {
            0 => return Err(ToolOutput::error(not_found_message(&name, &before, &input.old))),
            1 => {}
            _ if input.replace_all => {}
            count => {
                return Err(ToolOutput::error(format!(
                    "`old` occurs {count} times in `{name}`. Add surrounding lines until it is unique, or set `replace_all`."
                )));
            }
        }
        let content = replace_at(&before, &offsets, &input.old, &input.new)?;
        let times = if offsets.len() == 1 { String::new() } else { format!(" in {} places", offsets.len()) };
        let (lines, diff) = line_diff(&before, &content);
        let report = format!("Changed {name}{times}\n{diff}");
        let (path, before) = (target.path, Some(Hash::of(&before)));
        Ok(EditPlan { path, before, needs: Extent::Part, content, lines: Some(lines), report })
    }
}

/// Finds the occurrences of a text in a file, without overlaps. The file need not be UTF-8 everywhere: a text
/// begins with the first byte of a character, so a match lies entirely within a valid part.
fn occurrences(content: &[u8], text: &str) -> Vec<usize> {
    let mut offsets = Vec::new();
    let mut from = 0;
    for chunk in content.utf8_chunks() {
        offsets.extend(chunk.valid().match_indices(text).map(|(offset, _)| from + offset));
        from += chunk.valid().len() + chunk.invalid().len();
    }
    offsets
}

fn replace_at(before: &[u8], offsets: &[usize], old: &str, new: &str) -> Result<Vec<u8>, ToolOutput> {
    let kept = before.len() - offsets.len() * old.len();
    let length = new.len().saturating_mul(offsets.len()).saturating_add(kept);
    check_size(length)?;
    let mut content = Vec::with_capacity(length);
    let mut from = 0;
    for offset in offsets {
        content.extend_from_slice(&before[from..*offset]);
        content.extend_from_slice(new.as_bytes());
        from = offset + old.len();
    }
    content.extend_from_slice(&before[from..]);
    Ok(content)
}

fn check_size(bytes: usize) -> Result<(), ToolOutput> {
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= MAX_EDIT_BYTES) {
        return Ok(());
    }
    Err(ToolOutput::error(format!(
        "The file would have {bytes} bytes, more than the limit of {MAX_EDIT_BYTES}. Write smaller files."
    )))
}

/// Explains that a text is not in a file, with the closest match.
fn not_found_message(name: &str, before: &[u8], old: &str) -> String {
    let mut text = format!("`old` does not occur in `{name}`");
    let content = String::from_utf8_lossy(before);
    if !old.contains('\r') && content.replace("\r\n", "\n").contains(old) {
        text.push_str(
            ", because the lines of the file end with CRLF. Replace one line at a time, without the line ending.",
        );
        return text;
    }
    match closest_line(&content, old) {
        Some((number, line)) => text.push_str(&format!(". The closest line is {number}: `{line}`")),
        None => text.push_str(". Read the file and copy the text exactly."),
    }
    text
}

/// Finds the line of a file that most resembles the first line of a text.
fn closest_line<'a>(content: &'a str, old: &str) -> Option<(usize, &'a str)> {
    let wanted = truncate_bytes(old.lines().map(str::trim).find(|line| !line.is_empty())?, MAX_HINT_BYTES);
    let lines =
        || content.lines().enumerate().map(|(index, line)| (index + 1, truncate_bytes(line, MAX_HINT_BYTES)));
    // The usual mistake is white space.
    if let Some(same) = lines().find(|(_, line)| line.trim() == wanted) {
        return Some(same);
    }
    let trimmed: Vec<&str> = lines().take(MAX_HINT_LINES).map(|(_, line)| line.trim()).collect();
    let best = similar::get_close_matches(wanted, &trimmed, 1, 0.6).first().copied()?;
    lines().find(|(_, line)| line.trim() == best)
}

/// Counts the changed lines and renders a unified diff of bounded length.
fn line_diff(before: &[u8], after: &[u8]) -> (ChangedLines, String) {
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(DIFF_TIMEOUT)
        .diff_lines(before.as_ref(), after.as_ref());
    let count = |lines: usize| u32::try_from(lines).unwrap_or(u32::MAX);
    let changes = diff.ops().iter().filter(|op| op.tag() != DiffTag::Equal);
    let lines = changes.fold(ChangedLines::default(), |sum, op| {
        sum.plus(ChangedLines { added: count(op.new_range().len()), removed: count(op.old_range().len()) })
    });
    let text = diff.unified_diff().context_radius(3).to_string();
    if text.len() <= MAX_DIFF_BYTES {
        return (lines, text);
    }
    let kept = truncate_bytes(&text, MAX_DIFF_BYTES);
    let kept = kept.rfind('\n').map_or(kept, |end| &kept[..=end]);
    (lines, format!("{kept}(the rest of the diff is omitted)\n"))
}
