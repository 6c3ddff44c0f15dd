//! Refusal of calls that would use what was redacted.

use brigade_core::ToolOutput;

use crate::redactor::{Redactor, markers};
use crate::tool::{EditPlan, Files, escape_controls};

/// Refuses a call whose arguments contain a configured secret. The recorded arguments have a marker in its place.
pub(super) fn check_arguments(redactor: &Redactor, tool: &str, arguments: &str) -> Result<(), ToolOutput> {
    if !redactor.is_refused(arguments) {
        return Ok(());
    }
    Err(ToolOutput::error(format!(
        "`{tool}` refused: its arguments contain a configured secret, or a `[redacted: …]` marker. Secrets are not \
         passed to tools. Use the name of the variable or file that contains the secret, or ask the user."
    )))
}

/// Refuses an edit that would write a marker in place of a secret. Markers that the file contains already may stay.
pub(super) fn check_edit(plan: &EditPlan, files: &Files) -> Result<(), ToolOutput> {
    let content = String::from_utf8_lossy(&plan.content);
    let Some(marker) = markers(&content).next() else { return Ok(()) };
    let before = match plan.before {
        Some(_) => files.load_for_edit(&plan.path)?.map(|found| found.content).unwrap_or_default(),
        None => Vec::new(),
    };
    if markers(&content).count() <= markers(&String::from_utf8_lossy(&before)).count() {
        return Ok(());
    }
    let path = escape_controls(&plan.path);
    Err(ToolOutput::error(format!(
        "cannot write {path}: the new content contains `{marker}`, in place of a secret that you cannot see. \
         Nothing was written. Use `edit_file` on the text around it."
    )))
}

/// Explains why the text to replace does not occur in a file, if it contains a marker.
pub(super) fn explain_marker(arguments: &str, output: ToolOutput) -> ToolOutput {
    let Some(marker) = markers(arguments).next() else { return output };
    ToolOutput::error(format!(
        "{}\n`{marker}` replaces a secret that you cannot see. Replace the text around it.",
        output.text
    ))
}
