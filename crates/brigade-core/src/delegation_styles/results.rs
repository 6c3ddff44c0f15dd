//! Parts of the result texts that several styles share.

use crate::delegation::{Outcome, Status};
use crate::message::ToolOutput;
use crate::text::truncate_bytes;

/// Cuts a text on a character boundary and adds a last line with the handle of the full text.
pub(super) fn truncate_with_handle(text: &str, limit: usize, handle: &str) -> String {
    let mut truncated = truncate_bytes(text, limit).to_owned();
    if text.len() > limit {
        truncated.push_str(&format!(
            "\n(truncated after {limit} bytes; read the rest with `read_result`, handle {handle})"
        ));
    }
    truncated
}

/// Returns the cause of an unsuccessful outcome.
pub fn failure_cause(status: &Status) -> Option<String> {
    match status {
        Status::Done | Status::Incomplete { .. } | Status::Detached => None,
        Status::Failed { cause } => Some(cause.clone()),
        Status::Cancelled { by } => Some(format!("cancelled by {by}")),
        Status::Lost { cause } => Some(format!("outcome unknown: {cause}")),
    }
}

/// Renders the result of a child that was not successful, with its partial text.
pub(super) fn render_failure(child: &str, outcome: &Outcome, text: &str) -> Option<ToolOutput> {
    let cause = failure_cause(&outcome.status)?;
    let partial = if text.is_empty() { String::new() } else { format!("\nPartial result:\n{text}") };
    Some(ToolOutput::error(format!("{child} failed: {cause}{partial}{}", last_line(outcome))))
}

/// Renders the result of a helper: its text, without the name of the helper.
pub(super) fn render_helper(name: &str, outcome: &Outcome, text: &str, handle: &str) -> ToolOutput {
    let failure = render_failure(&format!("Subagent '{name}'"), outcome, text);
    failure.unwrap_or_else(|| {
        let note = last_line(outcome);
        ToolOutput::ok(match outcome.status {
            Status::Detached => {
                format!("'{name}' is still running in the background as session {handle}{note}")
            }
            _ => format!("{text}{note}"),
        })
    })
}

/// Formats the note of an outcome as a last line.
pub(super) fn last_line(outcome: &Outcome) -> String {
    outcome.note().map(|note| format!("\n{note}")).unwrap_or_default()
}
