//! Calls that become tasks, for clients that support tasks.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::*;
use rmcp::task_manager::{TaskContext, TaskExit, TaskOptions};
use serde_json::json;

use crate::fixture::{Fixture, ToolCallRequest, from_json, text_result};
use crate::input_required;

enum Job {
    Wait { seconds: u64 },
    Fail,
    Break,
    Confirm,
    AskTwice,
    Say(String),
}

pub(crate) async fn call(fixture: &Fixture, call: ToolCallRequest) -> Result<CallToolResponse, ErrorData> {
    let job = match call.request.name.as_ref() {
        "slow_compute" => Job::Wait { seconds: call.argument("seconds").as_u64().unwrap_or(0) },
        "failing_job" => Job::Fail,
        "protocol_error_job" => Job::Break,
        "confirm_delete" => Job::Confirm,
        _ => Job::AskTwice,
    };
    match (job, call.client().supports_tasks()) {
        (job, true) => Ok(spawn(fixture, job)),
        (Job::Wait { seconds }, false) => {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(text_result("computed").into())
        }
        _ => {
            let required = ClientCapabilities::builder().enable_tasks().build();
            Err(ErrorData::missing_required_client_capability(required))
        }
    }
}

/// A task that returns this text.
pub(crate) fn text_task(fixture: &Fixture, text: String) -> Result<CallToolResponse, ErrorData> {
    Ok(spawn(fixture, Job::Say(text)))
}

fn spawn(fixture: &Fixture, job: Job) -> CallToolResponse {
    let options = TaskOptions::new().with_ttl_ms(600_000).with_poll_interval_ms(100);
    let task = fixture.tasks.spawn(options, |context| Box::pin(run(job, context)));
    CreateTaskResult::new(task).into()
}

async fn run(job: Job, context: TaskContext) -> Result<CallToolResult, TaskExit> {
    match job {
        Job::Wait { seconds } => tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(seconds)) => Ok(text_result("computed")),
            () = context.cancelled() => Err(TaskExit::Cancelled),
        },
        Job::Fail => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(CallToolResult::error(vec![ContentBlock::text("the job failed")]))
        }
        Job::Break => Err(ErrorData::internal_error("the job broke", Some(json!({}))).into()),
        Job::Confirm => {
            let answer = context.request_input("confirm", from_json(input_required::confirmation())).await?;
            Ok(text_result(format!("confirmed: {answer}")))
        }
        Job::AskTwice => {
            let ask =
                |key: &'static str| context.request_input(key, from_json(input_required::form(key, "name")));
            let (one, two) = tokio::try_join!(ask("first"), ask("second"))?;
            Ok(text_result(format!("both: {one} {two}")))
        }
        Job::Say(text) => Ok(text_result(text)),
    }
}
