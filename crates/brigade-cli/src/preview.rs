//! Preview of an edit that waits for approval, compared with the current file.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade::Workspace;
use brigade::tool::{EditFile, EditPlan, EditTool, Files, WriteFile};
use brigade_core::permission::{Mode, Permissions};
use brigade_core::view::PendingApproval;
use brigade_core::{Hash, ToolOutput};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::redaction;
use crate::render::FileChange;

/// Size of the largest file that is compared. The edit tools refuse larger ones.
const MAX_FILE_BYTES: u64 = 16 << 20;

pub(crate) enum Preview {
    /// The file would change.
    Changes {
        /// Path of the file, relative to the workspace, with links resolved.
        path: String,
        /// Whether the edit creates the file.
        is_new: bool,
        change: FileChange,
    },
    /// The edit would fail.
    Fails {
        /// Error text of the tool.
        reason: String,
    },
}

/// Effect of the call that needs approval, if it is a call of `edit_file` or `write_file`.
pub(crate) fn preview_edit(approval: &PendingApproval, workspace: &Workspace) -> Option<Preview> {
    if approval.host.is_some() {
        return None;
    }
    // The user may read every file, regardless of the agent's rules.
    let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
    let files = Files::new(workspace.clone(), Arc::new(permissions), BTreeSet::from([String::new()]));
    let planned = match approval.tool() {
        EditFile::NAME => plan(&EditFile, approval, &files)?,
        WriteFile::NAME => plan(&WriteFile, approval, &files)?,
        _ => return None,
    };
    match planned {
        Ok(plan) => changes(plan, &files),
        Err(output) => Some(Preview::Fails { reason: output.text.as_str().to_owned() }),
    }
}

/// Edit plan of the tool. `None` if the arguments are invalid, so the call is shown as written.
fn plan<T: EditTool>(
    tool: &T,
    approval: &PendingApproval,
    files: &Files,
) -> Option<Result<EditPlan, ToolOutput>>
where
    T::Input: DeserializeOwned,
{
    let mut arguments: Value = serde_json::from_str(approval.arguments()).ok()?;
    arguments.as_object_mut()?.retain(|_, value| !value.is_null());
    Some(tool.plan(serde_json::from_value(arguments).ok()?, files))
}

/// Difference that a plan makes. `None` if the file changed while it was read.
fn changes(plan: EditPlan, files: &Files) -> Option<Preview> {
    let before = match plan.before {
        None => Vec::new(),
        Some(hash) => {
            files.read(&plan.path, MAX_FILE_BYTES).ok().filter(|before| Hash::of(before) == hash)?
        }
    };
    let (before, after) = (String::from_utf8_lossy(&before), String::from_utf8_lossy(&plan.content));
    let mut change = FileChange::between(&before, &after, None);
    change.diff = redaction::text(&change.diff).into_owned();
    Some(Preview::Changes { path: plan.path, is_new: plan.before.is_none(), change })
}
