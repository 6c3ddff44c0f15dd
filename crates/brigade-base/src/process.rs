//! Processes that the runtime starts: their names in the process table, and servers that communicate over standard input
//! and output.

mod close_reason;
mod lines;
mod redactor;

use std::io;
use std::path::PathBuf;

use brigade_core::{CallId, SessionId, text};
use brigade_sandbox::{Confinement, ExitReason, GuardCommand, Job, single_quoted};
use tokio::net::UnixStream;
use tracing::debug;

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
    /// Its complete environment.
    pub environment: Vec<(String, Secret)>,
}

/// Starts a server. It ends when a close reason is set or the returned future is dropped.
///
/// The future sets the close reason when the process exits: its status in the words of `exit_status`, and the error
/// that it wrote since the last message to it. Older lines are not the cause.
pub fn start_server(
    tag: String,
    program: StdioCommand,
    close_reason: CloseReason,
    exit_status: fn(ExitReason) -> String,
    redactor: Redactor,
) -> io::Result<(UnixStream, impl Future<Output = ()>)> {
    let words = std::iter::once(&program.command).chain(&program.arguments);
    let words: Vec<String> = words.map(|word| single_quoted(word)).collect();
    let command = format!("exec {}", words.join(" "));
    let exposed = |(name, value): (String, Secret)| (name, value.expose().to_owned());
    debug!(target: "brigade::process", server = tag, "starting process");
    let job = Job::new(command, program.directory, tag.clone(), Confinement::None)
        .environment(program.environment.into_iter().map(exposed).collect())
        .output_limit(MAX_STDERR_BYTES);
    let closing = close_reason.clone();
    let (stream, run) = brigade_sandbox::serve(program.guard, job, async move { closing.closed().await })?;
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
            Err(error) => error.to_string(),
        });
    };
    Ok((stream, exit))
}
