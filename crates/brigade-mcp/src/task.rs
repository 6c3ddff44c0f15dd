//! Calls as tasks of the protocol: the id of a task is the session at the top.

use brigade_core::Status;
use rmcp::model::{DetailedTask, JsonObject, Task, TaskPayload, TaskStatus};
use serde_json::{Value, json};

use crate::clock::iso;
use crate::report;
use crate::sessions::{Found, Life};

/// How often a client is to ask.
const POLL_MS: u64 = 1000;

/// A task that has just begun.
pub(crate) fn begun(found: &Found) -> Task {
    task(found)
}

/// A task and what it gave.
pub(crate) fn detailed(found: &Found) -> DetailedTask {
    let payload = match (found.life, found.end().map(|outcome| &outcome.status)) {
        (Life::Running, _) => TaskPayload::Working,
        (Life::Interrupted, _) => TaskPayload::Failed { error: failure(&report::resume(&found.root)) },
        (Life::Over, Some(Status::Cancelled { .. })) => TaskPayload::Cancelled,
        (Life::Over, _) => match found.output() {
            Some(output) => {
                let result = report::of_call(output, &found.root, &found.spent());
                TaskPayload::Completed { result: object(serde_json::to_value(result).unwrap_or_default()) }
            }
            None => {
                let words = found.end().map(|outcome| report::without_result(outcome, found.limits_from()));
                TaskPayload::Failed { error: failure(&words.unwrap_or_default()) }
            }
        },
    };
    DetailedTask::new(task(found), payload)
}

fn task(found: &Found) -> Task {
    let (began, changed) = found.times();
    Task::new(found.root.as_str(), TaskStatus::Working, iso(began), iso(changed))
        .with_poll_interval_ms(POLL_MS)
}

fn failure(message: &str) -> JsonObject {
    object(json!({ "code": -32603, "message": message }))
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
