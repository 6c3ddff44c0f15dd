//! Effect of an edit that waits for approval, compared with the file as it is now.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade::Workspace;
use brigade::tool::{EditFile, EditPlan, EditTool, Files, WriteFile};
use brigade_core::permission::{Mode, Permissions};
use brigade_core::view::PendingApproval;
use brigade_core::{Hash, ToolOutput};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::render::FileChange;

/// The largest file that is compared. The edit tools refuse larger ones.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Effect of an edit.
pub(crate) enum Preview {
    /// The file would change.
    Changes {
        /// The file, relative to the workspace, without links.
        path: String,
        /// Whether the edit creates the file.
        is_new: bool,
        /// The difference.
        change: FileChange,
    },
    /// The edit would fail.
    Fails {
        /// The reason, in the words of the tool.
        reason: String,
    },
}

/// The effect of the call that a question is about, if it is a call of `edit_file` or `write_file`.
pub(crate) fn preview_edit(approval: &PendingApproval, workspace: &Workspace) -> Option<Preview> {
    // The user may read every file, whatever the rules of the agent are.
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

/// The plan of the tool; none if the arguments do not fit, so that the call is shown as it was written.
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

/// The difference that a plan makes; none if the file changed while it was read.
fn changes(plan: EditPlan, files: &Files) -> Option<Preview> {
    let before = match plan.before {
        None => Vec::new(),
        Some(hash) => {
            files.read(&plan.path, MAX_FILE_BYTES).ok().filter(|before| Hash::of(before) == hash)?
        }
    };
    let (before, after) = (String::from_utf8_lossy(&before), String::from_utf8_lossy(&plan.content));
    let change = FileChange::between(&before, &after, None);
    Some(Preview::Changes { path: plan.path, is_new: plan.before.is_none(), change })
}
