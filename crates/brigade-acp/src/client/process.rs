//! The process of an agent server, under its guard.

use std::time::Duration;

use brigade::Secret;
use brigade::process::{ProcessOwner, confinement};
use brigade_core::text;
use brigade_sandbox::{ExitReason, Job, JobResult, single_quoted};
use tokio::net::UnixStream;

use super::AgentServer;
use super::close_reason::CloseReason;
use super::redactor::Redactor;
use crate::task::{self, AbortOnDrop};

/// Maximum size of the standard error output that is kept.
const MAX_STDERR_BYTES: usize = 4096;

/// Starts the program. It ends when the task is dropped or a close reason is set.
pub(super) fn start(
    server: &AgentServer,
    extra_arguments: &[String],
    close_reason: &CloseReason,
    redactor: Redactor,
) -> Result<(UnixStream, AbortOnDrop), String> {
    let command_line = std::iter::once(&server.command).chain(&server.arguments).chain(extra_arguments);
    let command_line: Vec<String> = command_line.map(|word| single_quoted(word)).collect();
    let exposed = |(name, value): &(String, Secret)| (name.clone(), value.expose().to_owned());
    let command = format!("exec {}", command_line.join(" "));
    let confinement = confinement(ProcessOwner::Runtime);
    let job = Job::new(command, &server.workspace, format!("acp:{}", server.name), confinement)
        .environment(server.environment.iter().map(exposed).collect())
        .output_limit(MAX_STDERR_BYTES);
    let closing = close_reason.clone();
    let (stream, run) =
        brigade_sandbox::serve(server.guard.clone(), job, async move { closing.closed().await })
            .map_err(|error| format!("cannot start the process: {error}"))?;
    let reason = close_reason.clone();
    let process = task::spawn(async move {
        reason.set(match run.await {
            Ok(finished) => exit_message(&finished, &redactor, reason.since_last_message()),
            Err(error) => error.to_string(),
        });
    });
    Ok((stream, process))
}

/// Describes the exit of a process, with its error output since the last message. Older lines are not the
/// cause.
fn exit_message(finished: &JobResult, redactor: &Redactor, since: Option<Duration>) -> String {
    let status = match finished.end {
        ExitReason::Exited(127) => "command not found".to_owned(),
        ExitReason::Exited(code) => format!("the process exited with code {code}"),
        ExitReason::Signalled(signal) => format!("the process was terminated by signal {signal}"),
        ExitReason::TimedOut | ExitReason::Cancelled => "the process was terminated".to_owned(),
    };
    let stderr = since.map_or(finished.output.as_slice(), |since| finished.output_within(since));
    let stderr = String::from_utf8_lossy(stderr);
    let Some(stderr) = text::error_line(&stderr) else { return status };
    format!("{status}: {}", redactor.sanitize(stderr))
}
