//! The process of an agent server, under its guard.

use brigade::external::ExternalError;
use brigade::process::{CloseReason, Redactor, StdioCommand, start_server};
use brigade::sandbox::ServerSandbox;
use brigade_sandbox::ExitReason;
use tokio::net::UnixStream;

use super::{AgentServer, sanitize};
use crate::task::{self, AbortOnDrop};

/// Variables that every program has. They are not secrets.
const PUBLIC_VARIABLES: [&str; 2] = ["PATH", "HOME"];

/// Starts the program in this sandbox. It ends when the task is dropped or a close reason is set.
pub(super) async fn start(
    server: &AgentServer,
    sandbox: &ServerSandbox,
    extra_arguments: &[String],
    close_reason: &CloseReason,
    redactor: Redactor,
) -> Result<(UnixStream, AbortOnDrop), ExternalError> {
    let program = StdioCommand {
        guard: server.guard.clone(),
        directory: server.workspace.clone(),
        command: server.command.clone(),
        arguments: server.arguments.iter().chain(extra_arguments).cloned().collect(),
        environment: server.environment.clone(),
        sandbox: sandbox.clone(),
    };
    let tag = format!("acp:{}", server.name);
    let (stream, exit) = start_server(tag, program, close_reason.clone(), exit_status, redactor)
        .await
        .map_err(|error| ExternalError::Start(format!("cannot start the process: {error}")))?;
    Ok((stream, task::spawn(exit)))
}

fn exit_status(end: ExitReason) -> String {
    match end {
        ExitReason::Exited(127) => "command not found".to_owned(),
        ExitReason::Exited(code) => format!("the process exited with code {code}"),
        ExitReason::Signalled(signal) => format!("the process was killed by signal {signal}"),
        ExitReason::TimedOut | ExitReason::Cancelled => "the process was killed".to_owned(),
        ExitReason::OverLimit(limit) => format!("the process was killed: {limit}"),
    }
}

/// Returns a redactor of the values of a server's environment and of the secrets in its arguments.
pub(super) fn redactor(server: &AgentServer) -> Redactor {
    let variables = server.environment.iter().filter(|(name, _)| !PUBLIC_VARIABLES.contains(&name.as_str()));
    Redactor::new(variables.map(|(_, value)| value).chain(&server.expanded_secrets), sanitize)
}
