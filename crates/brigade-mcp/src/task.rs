//! Calls as protocol tasks. The id of a task is the id of its root session.

use brigade_core::Status;
use rmcp::model::{DetailedTask, JsonObject, Task, TaskPayload, TaskStatus};
use serde_json::{Value, json};

use crate::results;
use crate::sessions::{FoundSession, RunStatus};
use crate::timestamp::iso8601;

/// Suggested polling interval.
const POLL_MS: u64 = 1000;

/// A task with its result.
pub(crate) fn detailed(found: &FoundSession) -> DetailedTask {
    let payload = match (found.run_status, found.root_outcome().map(|outcome| &outcome.status)) {
        (RunStatus::Running, _) => TaskPayload::Working,
        (RunStatus::Interrupted, _) => TaskPayload::Failed { error: failure(&results::resume(&found.root)) },
        (RunStatus::Ended, Some(Status::Cancelled { .. })) => TaskPayload::Cancelled,
        (RunStatus::Ended, _) => match found.output() {
            Some(output) => {
                let result = results::from_call(output, &found.root, &found.spent());
                TaskPayload::Completed { result: object(serde_json::to_value(result).unwrap_or_default()) }
            }
            None => {
                let message = found
                    .root_outcome()
                    .map(|outcome| results::missing_result_message(outcome, found.limit_source()));
                TaskPayload::Failed { error: failure(&message.unwrap_or_default()) }
            }
        },
    };
    DetailedTask::new(task(found), payload)
}

/// The state of a call as a task.
pub(crate) fn task(found: &FoundSession) -> Task {
    let (began, changed) = found.times();
    Task::new(found.root.as_str(), TaskStatus::Working, iso8601(began), iso8601(changed))
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
