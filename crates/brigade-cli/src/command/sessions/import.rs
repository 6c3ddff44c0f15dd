//! Report of an import: the recorded agent, model, mode and folder, and the pending calls.

use brigade::store::{ImportReport, PendingCall};
use serde_json::{Value, json};

use crate::sanitize;
use crate::units;

/// Maximum number of pending calls that are listed.
const MAX_SHOWN_CALLS: usize = 10;

/// Notes for the user.
pub(super) fn notes(imported: &ImportReport) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(round) = &imported.round {
        let model = round.model.as_deref().unwrap_or("not specified");
        notes.push(format!(
            "Original agent: {}, model: {}, mode: {}, directory: {}",
            sanitize::line(&round.agent),
            sanitize::line(model),
            round.mode,
            sanitize::line(&round.folder)
        ));
        notes.push(
            "If you resume the session, your own configuration and the current directory apply.".to_owned(),
        );
    }
    let line = |call: &PendingCall| {
        format!(
            "pending call, will not be executed: {} [{}] {} {}",
            call.session,
            call.call,
            sanitize::line(&call.tool),
            sanitize::line(&call.arguments)
        )
    };
    notes.extend(imported.pending.iter().take(MAX_SHOWN_CALLS).map(line));
    if imported.pending.len() > MAX_SHOWN_CALLS {
        let more = imported.pending.len() - MAX_SHOWN_CALLS;
        notes.push(units::count(more, "more pending call"));
    }
    notes
}

/// Report as JSON.
pub(super) fn json(imported: &ImportReport) -> Value {
    let cut = imported.cut.as_ref().map(|cut| json!({ "line": cut.line, "cause": cut.cause }));
    let round = imported.round.as_ref();
    let pending = imported.pending.iter().map(|call| {
        json!({
            "session_id": call.session,
            "call": call.call.to_string(),
            "tool": call.tool,
            "arguments": call.arguments,
        })
    });
    json!({
        "session_id": imported.root,
        "records": imported.records,
        "new": imported.new,
        "cut": cut,
        "agent": round.map(|round| &round.agent),
        "model": round.and_then(|round| round.model.as_ref()),
        "mode": round.map(|round| round.mode.as_str()),
        "folder": round.map(|round| &round.folder),
        "pending": pending.collect::<Vec<_>>(),
    })
}
