//! Undo of the file edits of a session's last round.
//!
//! The log has the hashes of the content before and after each edit. The driver stores the content before the
//! first edit of a file as a blob, together with the intent of the edit. An undo starts from the current content
//! and goes back edit by edit, as long as the hashes match. A file that was changed since is not touched.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use brigade_core::event::Effect;
use brigade_core::permission::{Mode, Permissions};
use brigade_core::{CallId, Cursor, Event, Hash, Purpose, Record, SessionId, ToolCall, json};

use crate::store::{Store, StoreError};
use crate::tool::{FileError, Files, Workspace};

/// Maximum size of content that is kept for an undo.
pub(crate) const MAX_KEPT_BYTES: u64 = 1 << 20;

/// A file that the last round changed, and the result of its undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoneFile {
    /// Path relative to the workspace.
    pub path: String,
    /// Result of the undo.
    pub result: UndoResult,
}

/// Result of an undo for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoResult {
    /// The file has its content from before the round.
    Restored,
    /// The file has the content that another program wrote between two edits of the round. The earlier edits
    /// remain.
    PartlyRestored,
    /// The file did not exist before the round and was removed.
    Removed,
    /// The file already had its content from before the round.
    Unchanged,
    /// The file was not touched.
    Refused {
        /// The cause, as the end of a sentence.
        cause: String,
    },
}

/// A completed edit.
struct FileEdit {
    before: Option<Hash>,
    after: Hash,
}

/// Content to restore.
struct UndoTarget {
    content: Option<Hash>,
    /// Whether this is the content before the first edit.
    is_first: bool,
}

/// Undoes the file edits of the last round of a session and its descendants. Each file is decided separately.
/// Imported edits are not undone, because they were made elsewhere.
pub async fn undo(
    store: &dyn Store,
    session: &SessionId,
    workspace: &Workspace,
) -> Result<Vec<UndoneFile>, StoreError> {
    let imported = store.imported(&session.root_id()).await?.unwrap_or_default();
    let started = last_round(store, session).await?;
    let since = if store.is_after(imported, started) { imported } else { started };
    let records = store.tail(session, since, usize::MAX).await?;
    // The user undoes the edits, so the rules for agents do not apply.
    let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
    let files = Files::new(workspace.clone(), Arc::new(permissions), [String::new()].into());
    let mut undone = Vec::new();
    for (path, edits) in edits(&records) {
        let result = undo_file(store, &files, &path, &edits).await?;
        undone.push(UndoneFile { path, result });
    }
    Ok(undone)
}

/// Position of the first event of the last round of a session. A round that only made a summary does not count.
async fn last_round(store: &dyn Store, session: &SessionId) -> Result<Cursor, StoreError> {
    let records = store.read(session, 0).await?;
    let is_turn = |record: &Record| matches!(record.event, Event::Called { purpose, .. } if purpose != Purpose::Compaction);
    let until = records.iter().rposition(is_turn).unwrap_or(records.len());
    let mut newest_first = records[..until].iter().rev();
    let started = newest_first.find(|record| matches!(record.event, Event::Started { .. }));
    let started = started.ok_or_else(|| StoreError::UnknownSession(session.clone()))?;
    Ok(started.pos)
}

/// Completed edits, by file and in order.
fn edits(records: &[Record]) -> BTreeMap<String, Vec<FileEdit>> {
    let mut edits: BTreeMap<String, Vec<FileEdit>> = BTreeMap::new();
    let mut calls: HashMap<(&SessionId, CallId), &ToolCall> = HashMap::new();
    let mut intents: HashMap<(&SessionId, CallId), FileEdit> = HashMap::new();
    for record in records {
        let session = &record.session;
        match &record.event {
            Event::Replied { turn, reply, .. } => {
                let ids = (0..).map(|index| (session, CallId { turn: *turn, index }));
                calls.extend(ids.zip(&reply.calls));
            }
            Event::ToolStarted { call, effect: Effect::Edit, before, after: Some(after), .. } => {
                intents.insert((session, *call), FileEdit { before: *before, after: *after });
            }
            Event::ToolEnded { call, output, seen, .. } if !output.is_error() => {
                let Some(edit) = intents.remove(&(session, *call)) else { continue };
                // Logs of earlier versions contain the path only in the call.
                let named = || calls.get(&(session, *call)).and_then(|call| path_in(call));
                if let Some(path) = seen.as_ref().map(|seen| seen.path.clone()).or_else(named) {
                    edits.entry(path).or_default().push(edit);
                }
            }
            _ => {}
        }
    }
    edits
}

fn path_in(call: &ToolCall) -> Option<String> {
    Some(json::parse(call.arguments.as_str()).ok()?.get("path")?.as_str()?.to_owned())
}

async fn undo_file(
    store: &dyn Store,
    files: &Files,
    path: &str,
    edits: &[FileEdit],
) -> Result<UndoResult, StoreError> {
    let (workspace_files, place) = (files.clone(), path.to_owned());
    let now = match blocking(move || workspace_files.hash(&place)).await {
        Ok(now) => now,
        Err(refused) => return Ok(refused),
    };
    let UndoTarget { content, is_first } = match target(now, edits) {
        Ok(target) => target,
        Err(result) => return Ok(result),
    };
    let old = match content {
        Some(hash) => match store.blob(hash).await? {
            Some(content) => Some(content),
            None => {
                let cause = "its content before the edit was not kept: it was larger than 1 MiB, was not \
                             UTF-8, or the edit was made by an earlier version of Brigade";
                return Ok(UndoResult::Refused { cause: cause.to_owned() });
            }
        },
        None => None,
    };
    let (workspace_files, place, removes) = (files.clone(), path.to_owned(), old.is_none());
    let written = blocking(move || match (old, now) {
        (Some(content), now) => workspace_files.replace(&place, content.as_bytes(), now),
        (None, Some(now)) => workspace_files.remove(&place, now),
        (None, None) => Ok(()),
    });
    Ok(match written.await {
        Ok(()) if removes => UndoResult::Removed,
        Ok(()) if is_first => UndoResult::Restored,
        Ok(()) => UndoResult::PartlyRestored,
        Err(refused) => refused,
    })
}

/// Finds the content to restore from the content `now`, as far as the edits chain together. Otherwise returns the
/// result.
fn target(now: Option<Hash>, edits: &[FileEdit]) -> Result<UndoTarget, UndoResult> {
    let mut content = edits.last().map(|edit| edit.after);
    let newest = content;
    let mut is_first = true;
    for edit in edits.iter().rev() {
        if Some(edit.after) != content {
            is_first = false;
            break;
        }
        content = edit.before;
    }
    if now == content {
        return Err(UndoResult::Unchanged);
    }
    if now == newest {
        return Ok(UndoTarget { content, is_first });
    }
    let cause =
        if now.is_some() { "it has changed since the edit" } else { "it has been removed since the edit" };
    Err(UndoResult::Refused { cause: cause.to_owned() })
}

/// Runs file operations on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, UndoResult> {
    let cause = match tokio::task::spawn_blocking(work).await {
        Ok(Ok(result)) => return Ok(result),
        Ok(Err(FileError::Changed { .. })) => "it has changed since the edit".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Err(UndoResult::Refused { cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(content: &str) -> Option<Hash> {
        Some(Hash::of(content.as_bytes()))
    }

    fn edit(before: Option<&str>, after: &str) -> FileEdit {
        FileEdit { before: before.and_then(hash), after: Hash::of(after.as_bytes()) }
    }

    fn back(now: Option<&str>, edits: &[FileEdit]) -> Result<(Option<Hash>, bool), UndoResult> {
        target(now.and_then(hash), edits).map(|target| (target.content, target.is_first))
    }

    #[test]
    fn edits_are_followed_back_as_far_as_they_fit() {
        let chain = [edit(Some("a"), "b"), edit(Some("b"), "c")];
        assert_eq!(back(Some("c"), &chain), Ok((hash("a"), true)));
        assert_eq!(back(Some("a"), &chain), Err(UndoResult::Unchanged));
        let created = [edit(None, "b"), edit(Some("b"), "c")];
        assert_eq!(back(Some("c"), &created), Ok((None, true)));
        assert_eq!(back(None, &created), Err(UndoResult::Unchanged));
        let broken = [edit(Some("a"), "b"), edit(Some("of the user"), "c")];
        assert_eq!(back(Some("c"), &broken), Ok((hash("of the user"), false)));
    }

    #[test]
    fn file_changed_since_the_round_is_refused() {
        let chain = [edit(Some("a"), "b"), edit(Some("b"), "c")];
        for now in [Some("b"), Some("of the user"), None] {
            assert!(matches!(back(now, &chain), Err(UndoResult::Refused { .. })), "{now:?}");
        }
    }
}
