//! Effect of an edit on a file, as a unified diff.
//!
//! The log contains the arguments of an edit and the hashes of the file before and after, but not the file. Content
//! that the session wrote itself is known, so a later edit of it can be compared with the whole file.

use std::collections::HashMap;
use std::time::Duration;

use brigade_core::Hash;
use similar::{Algorithm, TextDiff};

use super::call::CallItem;

/// Time after which a coarse diff is computed instead.
const DIFF_TIMEOUT: Duration = Duration::from_millis(200);
/// Lines in an output that mark its diff as truncated. Logs of earlier versions contain the second one.
const TRUNCATED_NOTES: [&str; 2] = ["(the rest of the diff is omitted)", "(the diff goes on)"];

/// Change of a file.
pub(crate) struct FileChange {
    /// Unified diff without file names.
    pub(crate) diff: String,
    /// Note on what the diff does not show.
    pub(crate) remark: Option<&'static str>,
    /// Lines added and removed.
    pub(crate) added: usize,
    pub(crate) removed: usize,
}

/// Known file contents by hash.
#[derive(Default)]
pub(super) struct KnownContents(HashMap<Hash, String>);

/// Change made by a call, if it is a successful edit.
pub(super) fn change_of(call: &CallItem<'_>, contents: &mut KnownContents) -> Option<FileChange> {
    if call.failed() {
        return None;
    }
    match call.name {
        "edit_file" => edit_change(call, contents),
        "write_file" => write_change(call, contents),
        _ => None,
    }
}

fn edit_change(call: &CallItem<'_>, contents: &mut KnownContents) -> Option<FileChange> {
    let (old, new) = (call.argument("old")?, call.argument("new")?);
    if let (Some(before), Some(after)) = (call.before.and_then(|hash| contents.0.get(&hash)), call.after) {
        let all = call.arguments.get("replace_all").and_then(serde_json::Value::as_bool) == Some(true);
        let content = if all { before.replace(old, new) } else { before.replacen(old, new, 1) };
        if Hash::of(content.as_bytes()) == after {
            let change = FileChange::between(before, &content, None);
            contents.0.insert(after, content);
            return Some(change);
        }
    }
    // The output contains the diff with line numbers, unless it was too long.
    let reported = call.output.and_then(|output| output.text.as_str().split_once('\n')).map(|(_, diff)| diff);
    let is_truncated = |diff: &str| TRUNCATED_NOTES.iter().any(|note| diff.contains(note));
    match reported.filter(|diff| diff.starts_with("@@") && !is_truncated(diff)) {
        Some(diff) => Some(FileChange::new(diff.to_owned(), None)),
        None => Some(FileChange::between(
            old,
            new,
            Some("lines from the call; their position in the file was not recorded"),
        )),
    }
}

fn write_change(call: &CallItem<'_>, contents: &mut KnownContents) -> Option<FileChange> {
    let content = call.argument("content")?;
    let change = match call.before {
        None => FileChange::between("", content, Some("new file")),
        Some(before) => match contents.0.get(&before) {
            Some(known) => FileChange::between(known, content, None),
            None => FileChange::between(
                "",
                content,
                Some("replaces a file whose previous content was not recorded"),
            ),
        },
    };
    contents.0.insert(Hash::of(content.as_bytes()), content.to_owned());
    Some(change)
}

impl FileChange {
    /// Difference between two contents of a file.
    pub(crate) fn between(before: &str, after: &str, remark: Option<&'static str>) -> FileChange {
        let diff =
            TextDiff::configure().algorithm(Algorithm::Myers).timeout(DIFF_TIMEOUT).diff_lines(before, after);
        FileChange::new(diff.unified_diff().context_radius(3).to_string(), remark)
    }

    fn new(diff: String, remark: Option<&'static str>) -> FileChange {
        let count = |sign: char| diff.lines().filter(|line| line.starts_with(sign)).count();
        let (added, removed) = (count('+'), count('-'));
        FileChange { diff, remark, added, removed }
    }
}
