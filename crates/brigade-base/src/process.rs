//! Processes that the runtime starts: their names in the process table, and servers that communicate over standard input
//! and output.

mod close_reason;
mod lines;
mod redactor;

use std::io;
use std::path::PathBuf;

use brigade_core::{CallId, SessionId, text};
use brigade_sandbox::{ExitReason, GuardCommand, GuardError, Job, single_quoted};
use tokio::net::UnixStream;
use tracing::debug;

use crate::sandbox::{SandboxError, ServerProgram, ServerSandbox, TemporaryDirectory, visible_variables};
use crate::secret::Secret;
pub use close_reason::CloseReason;
pub use lines::{BoundedLine, BoundedLines};
pub use redactor::Redactor;

/// Maximum number of bytes kept of a server's standard error.
const MAX_STDERR_BYTES: usize = 4096;

/// Tag of a call's guard. A runner that resumes the session finds a guard that is still running by it.
pub fn guard_tag(session: &SessionId, call: CallId) -> String {
    format!("{session}:{call}")
}

/// Prefixes of the tags of servers.
const SERVER_TAGS: [&str; 2] = ["mcp:", "acp:"];

/// Whether a tag is that of a server's guard, and not that of a call.
pub fn is_server_tag(tag: &str) -> bool {
    SERVER_TAGS.iter().any(|prefix| tag.starts_with(prefix))
}

/// A server that is started as a child process.
#[derive(Debug, Clone)]
pub struct StdioCommand {
    /// The guard program that runs it.
    pub guard: GuardCommand,
    /// The working directory.
    pub directory: PathBuf,
    /// The program, as a path or as a name in `PATH`.
    pub command: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its complete environment. Variables that lead to something that its sandbox hides are removed.
    pub environment: Vec<(String, Secret)>,
    /// Its sandbox.
    pub sandbox: ServerSandbox,
}

/// Reason why a server was not started.
#[derive(Debug, thiserror::Error)]
pub enum StartServerError {
    /// The workspace contains the home directory, so the sandbox would protect nothing.
    #[error(
        "it cannot run in a sandbox, because the workspace contains your home directory. Run Brigade in a project \
         directory, or set `sandbox.mode` of the server to \"off\"."
    )]
    Home,
    /// The workspace is too large to find its secret and protected files.
    #[error(
        "it cannot run in a sandbox, because the workspace has more than {limit} files and directories. Use a smaller \
         workspace, or set `sandbox.mode` of the server to \"off\"."
    )]
    TooManyFiles {
        /// Maximum number of files and directories.
        limit: usize,
    },
    /// The sandbox cannot be described.
    #[error("{0}")]
    Sandbox(SandboxError),
    /// The system refused something.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<SandboxError> for StartServerError {
    fn from(error: SandboxError) -> StartServerError {
        match error {
            SandboxError::Home => StartServerError::Home,
            SandboxError::TooManyFiles { limit } => StartServerError::TooManyFiles { limit },
            error => StartServerError::Sandbox(error),
        }
    }
}

/// Starts a server in its sandbox. It ends when a close reason is set or the returned future is dropped.
///
/// The future sets the close reason when the process exits: its status in the words of `exit_status`, and the error
/// that it wrote since the last message to it. Older lines are not the cause.
pub async fn start_server(
    tag: String,
    program: StdioCommand,
    close_reason: CloseReason,
    exit_status: fn(ExitReason) -> String,
    redactor: Redactor,
) -> Result<(UnixStream, impl Future<Output = ()>), StartServerError> {
    debug!(target: "brigade::process", server = tag, "starting process");
    let guard = program.guard.clone();
    let job_tag = tag.clone();
    // Secrets of a large workspace take a while to find.
    let prepared = tokio::task::spawn_blocking(move || job(job_tag, program)).await;
    let (job, temporary) = prepared.map_err(io::Error::other)??;
    let closing = close_reason.clone();
    let (stream, run) = brigade_sandbox::serve(guard, job, async move { closing.closed().await })?;
    let exit = async move {
        close_reason.set(match run.await {
            Ok(finished) => {
                debug!(target: "brigade::process", server = tag, reason = ?finished.end, "process ended");
                let status = exit_status(finished.end);
                let since = close_reason.since_last_message();
                let stderr = since.map_or(finished.output.as_slice(), |since| finished.output_within(since));
                match text::error_line(&String::from_utf8_lossy(stderr)) {
                    Some(error) => format!("{status}: {}", redactor.sanitize(error)),
                    None => status,
                }
            }
            Err(GuardError::CannotConfine { reason, .. }) => format!(
                "it cannot run in a sandbox: {reason}. Allow user namespaces, or set `sandbox.mode` of the server to \"off\"."
            ),
            Err(error) => error.to_string(),
        });
        drop(temporary);
    };
    Ok((stream, exit))
}

/// Job of a server, and the directory that is its `/tmp`.
fn job(tag: String, program: StdioCommand) -> Result<(Job, TemporaryDirectory), StartServerError> {
    let StdioCommand { guard: _, directory, command, arguments, environment, sandbox } = program;
    let exposed = |(name, value): (String, Secret)| (name, value.expose().to_owned());
    let environment: Vec<(String, String)> = environment.into_iter().map(exposed).collect();
    let temporary = sandbox.temporary();
    let server = ServerProgram {
        command: &command,
        arguments: &arguments,
        directory: &directory,
        environment: &environment,
    };
    let confinement = sandbox.confinement(server, &temporary)?;
    let environment = visible_variables(&confinement, &environment);
    let words = std::iter::once(&command).chain(&arguments);
    let words: Vec<String> = words.map(|word| single_quoted(word)).collect();
    let line = format!("exec {}", words.join(" "));
    let job = Job::new(line, directory, tag, confinement);
    Ok((job.environment(environment).output_limit(MAX_STDERR_BYTES), temporary))
}
