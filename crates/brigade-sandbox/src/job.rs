//! Jobs and their results.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Confinement, Enforcement, GuardError};

/// Command line of the guard: a program that calls [`guard_main`](crate::guard_main), and its arguments.
///
/// The tag of the job is appended as the last argument. The program starts with an empty environment, so its
/// path should be absolute.
#[derive(Clone, Debug)]
pub struct GuardCommand {
    /// The program, preferably as an absolute path.
    pub program: PathBuf,
    /// Its arguments before the tag, for example a hidden subcommand.
    pub arguments: Vec<OsString>,
}

/// One command to run under a guard.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Job {
    /// The command, run by `/bin/sh -c`.
    pub command: String,
    /// Working directory of the command.
    pub directory: PathBuf,
    /// Complete environment of the command. Nothing else is inherited.
    pub environment: Vec<(String, String)>,
    /// Time after which all processes are killed and the result is [`ExitReason::TimedOut`].
    pub time_limit: Duration,
    /// Maximum size of the output that is kept: the first half from its start, the rest from its end.
    pub output_limit: usize,
    /// Resource limits of the command.
    pub limits: ResourceLimits,
    /// Part of the system that the command can reach. The guard refuses the job if it cannot enforce it.
    pub confinement: Confinement,
    /// Gets the listener of the proxy, if the sandbox has [`Network::Proxy`](crate::Network::Proxy).
    pub on_proxy: Option<ProxyHandler>,
    /// Layers for the directories of the sandbox whose changes are discarded. Without them, the changes are in memory.
    pub layers: Option<std::sync::Arc<crate::Layers>>,
    /// Identifies the guard in the process table: `<session>:<call>`, of ASCII letters, digits and `.:_-`.
    pub tag: String,
}

/// Function that gets the listener of a proxy.
#[derive(Clone)]
pub struct ProxyHandler(pub(crate) std::sync::Arc<dyn Fn(std::net::TcpListener) + Send + Sync>);

impl std::fmt::Debug for ProxyHandler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ProxyHandler(..)")
    }
}

/// Limits that the kernel enforces on each process of the command. `None` keeps the runner's own limit.
///
/// A limit above the hard limit of the runner is lowered to that. Core dumps are always disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Address space of each process.
    pub memory_bytes: Option<u64>,
    /// CPU time of each process. A process that exceeds it gets SIGXCPU, then SIGKILL.
    pub cpu_seconds: Option<u64>,
    /// Size of each written file.
    pub file_bytes: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
    /// Processes of the whole user, not only of this command. The kernel does not apply it to root.
    pub processes: Option<u64>,
}

impl Default for ResourceLimits {
    /// Memory and CPU time are not limited, because compilers and tests need a lot of both. The number of
    /// processes is not limited, because the kernel counts all processes of the user.
    fn default() -> Self {
        Self {
            memory_bytes: None,
            cpu_seconds: None,
            file_bytes: Some(4 << 30),
            open_files: Some(1024),
            processes: None,
        }
    }
}

/// Result of a job whose processes have all exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobResult {
    /// Exit of the command.
    pub end: ExitReason,
    /// Standard output and standard error, interleaved as they arrived, at most [`Job::output_limit`] bytes.
    ///
    /// If bytes were dropped, they are missing after the first `output_limit / 2` bytes.
    pub output: Vec<u8>,
    /// Number of dropped bytes.
    pub dropped_bytes: u64,
    /// Time from the start of the command until its last descendant exited.
    pub duration: Duration,
    /// Times at which the end of the output was written, oldest piece first. Output from more than 10 seconds
    /// before the exit is not included.
    pub recent: Vec<OutputPiece>,
    /// Means by which the command was confined.
    pub enforcement: Enforcement,
    /// Protected paths that the command created. They were renamed after its exit, with the suffix `.removed`.
    pub removed: Vec<OsString>,
}

/// Output that was written at about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPiece {
    /// Time from then until the command exited.
    pub age: Duration,
    /// Length of the piece.
    pub bytes: usize,
}

impl JobResult {
    /// Returns the output of this time before the exit of the command, at most the last 10 seconds.
    pub fn output_within(&self, time: Duration) -> &[u8] {
        let pieces = self.recent.iter().filter(|piece| piece.age <= time);
        let bytes = pieces.fold(0, |sum: usize, piece| sum.saturating_add(piece.bytes));
        let start = self.output.len().saturating_sub(bytes);
        self.output.get(start..).unwrap_or_default()
    }
}

/// Exit of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitReason {
    /// The main process exited with this code.
    Exited(i32),
    /// The main process was terminated by this signal.
    Signalled(i32),
    /// The time limit was reached and all processes were killed.
    TimedOut,
    /// The runner cancelled the job and all processes were killed.
    Cancelled,
    /// The processes together exceeded this limit of their sandbox and were killed.
    OverLimit(SandboxLimit),
}

/// Limit of all processes of a sandbox together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLimit {
    /// Memory.
    Memory,
    /// Number of processes.
    Processes,
    /// Free space of a file system.
    FreeDisk,
}

impl std::fmt::Display for SandboxLimit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            SandboxLimit::Memory => "its processes used more memory than the sandbox allows",
            SandboxLimit::Processes => "it started more processes than the sandbox allows",
            SandboxLimit::FreeDisk => "the free disk space fell below the limit of the sandbox",
        })
    }
}

impl Job {
    /// Creates a job with an empty environment, the default resource limits and no time limit. It keeps at most
    /// 64 KiB of output.
    pub fn new(
        command: impl Into<String>,
        directory: impl Into<PathBuf>,
        tag: impl Into<String>,
        confinement: Confinement,
    ) -> Job {
        Job {
            command: command.into(),
            directory: directory.into(),
            environment: Vec::new(),
            time_limit: Duration::MAX,
            output_limit: 64 << 10,
            limits: ResourceLimits::default(),
            confinement,
            on_proxy: None,
            layers: None,
            tag: tag.into(),
        }
    }

    /// Sets the function that gets the listener of the proxy. It listens on the loopback interface of the sandbox, and the
    /// code that accepts its connections decides what the command can reach.
    pub fn on_proxy(self, handler: impl Fn(std::net::TcpListener) + Send + Sync + 'static) -> Job {
        Job { on_proxy: Some(ProxyHandler(std::sync::Arc::new(handler))), ..self }
    }

    /// Sets the layers for directories whose changes are discarded.
    pub fn layers(self, layers: Option<std::sync::Arc<crate::Layers>>) -> Job {
        Job { layers, ..self }
    }

    /// Sets the complete environment.
    pub fn environment(self, environment: Vec<(String, String)>) -> Job {
        Job { environment, ..self }
    }

    /// Sets the time limit.
    pub fn time_limit(self, time_limit: Duration) -> Job {
        Job { time_limit, ..self }
    }

    /// Sets the maximum size of the output that is kept.
    pub fn output_limit(self, output_limit: usize) -> Job {
        Job { output_limit, ..self }
    }

    /// Rejects early what the system would reject late and with a less clear message.
    pub(crate) fn check(&self) -> Result<(), GuardError> {
        let fail =
            |reason: &str| Err(GuardError::InvalidJob { tag: self.tag.clone(), reason: reason.into() });
        check_tag(&self.tag)?;
        if self.command.contains('\0') {
            return fail("the command contains a NUL byte");
        }
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) {
                return fail("a name in the environment is empty or contains `=` or a NUL byte");
            }
            if value.contains('\0') {
                return fail(&format!("the value of `{name}` in the environment contains a NUL byte"));
            }
        }
        Ok(())
    }
}

/// Quotes a word for the shell, if necessary.
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { single_quoted(word) }
}

/// Quotes a word for the shell, even if it is not necessary.
pub fn single_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A tag must survive a command line unchanged, and must not look like an option to the guard program.
pub(crate) fn check_tag(tag: &str) -> Result<(), GuardError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".:_-".contains(&byte);
    if tag.is_empty() || tag.starts_with('-') || !tag.bytes().all(allowed) {
        let reason =
            "a tag must consist of ASCII letters, digits and `.:_-` and must not start with `-`".into();
        return Err(GuardError::InvalidJob { tag: tag.escape_default().to_string(), reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_quoted_arguments_survive_a_shell() {
        assert_eq!(shell_quoted("/a/b-c.db"), "/a/b-c.db");
        assert_eq!(shell_quoted("it's here"), "'it'\\''s here'");
        assert_eq!(shell_quoted(""), "''");
        assert_eq!(shell_quoted("$(rm)"), "'$(rm)'");
    }
}
