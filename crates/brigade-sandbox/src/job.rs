//! What is to be run, and what came of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::GuardError;

/// How to start the guard: a program that calls [`guard_main`](crate::guard_main), and what to pass to it.
///
/// The mark of the job is appended as the last argument. The program starts with an empty environment, so its
/// path should be absolute.
#[derive(Clone, Debug)]
pub struct GuardCommand {
    /// The program, best as an absolute path.
    pub program: PathBuf,
    /// Its arguments before the mark, for example a hidden subcommand.
    pub arguments: Vec<OsString>,
}

/// One command to run under a guard.
#[derive(Clone, Debug)]
pub struct Job {
    /// The command, run by `/bin/sh -c`.
    pub command: String,
    /// The working directory of the command.
    pub directory: PathBuf,
    /// The environment of the command: exactly this and nothing else reaches it.
    pub environment: Vec<(String, String)>,
    /// After this time everything is killed and the result is [`ExitReason::TimedOut`].
    pub time_limit: Duration,
    /// How many bytes of output are kept in all: the first half from its start, the rest from its end.
    pub output_limit: usize,
    /// What the command may use.
    pub limits: ResourceLimits,
    /// Names the guard in the process table: `<session>:<call>`, out of the ASCII letters, digits and `.:_-`.
    pub tag: String,
}

/// Limits that the kernel enforces on each process of the command; `None` leaves the runner's own limit.
///
/// A limit above the hard limit of the runner is lowered to that. Core dumps are always off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Address space of each process.
    pub memory_bytes: Option<u64>,
    /// Processor time of each process; one that goes on after it gets SIGXCPU, then SIGKILL.
    pub cpu_seconds: Option<u64>,
    /// Size of each file that is written.
    pub file_bytes: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
    /// Processes of the whole user, not only of this command; the kernel does not apply it to root.
    pub processes: Option<u64>,
}

impl Default for ResourceLimits {
    /// Memory and processor time are left alone because compilers and tests need what they need, and the number
    /// of processes because the kernel counts it over everything that the user runs.
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

/// What came of a job whose processes are all gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobResult {
    /// How the command ended.
    pub end: ExitReason,
    /// Standard output and standard error interleaved as they came, at most [`Job::output_limit`] bytes.
    ///
    /// When bytes were dropped, they are missing after the first `output_limit / 2` bytes.
    pub output: Vec<u8>,
    /// How many bytes of output were dropped.
    pub dropped_bytes: u64,
    /// From the start of the command until its last descendant was gone.
    pub duration: Duration,
    /// When the end of the output was written, the oldest piece first. Output of more than 10 seconds before the end is
    /// in none of them.
    pub recent: Vec<OutputPiece>,
}

/// Output that was written at about the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPiece {
    /// Time from then until the end of the command.
    pub age: Duration,
    /// Its length.
    pub bytes: usize,
}

impl JobResult {
    /// Output that was written within this time before the end of the command, and at most 10 seconds before it.
    pub fn output_within(&self, time: Duration) -> &[u8] {
        let pieces = self.recent.iter().filter(|piece| piece.age <= time);
        let bytes = pieces.fold(0, |sum: usize, piece| sum.saturating_add(piece.bytes));
        let start = self.output.len().saturating_sub(bytes);
        self.output.get(start..).unwrap_or_default()
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitReason {
    /// The main process exited with this code.
    Exited(i32),
    /// The main process was ended by this signal.
    Signalled(i32),
    /// The time limit was reached and everything was killed.
    TimedOut,
    /// The runner asked for the end and everything was killed.
    Cancelled,
}

impl Job {
    /// Says early what the system would refuse late and with a less clear message.
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

/// A mark must survive a command line unchanged, and must not look like an option to the guard program.
pub(crate) fn check_tag(tag: &str) -> Result<(), GuardError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".:_-".contains(&byte);
    if tag.is_empty() || tag.starts_with('-') || !tag.bytes().all(allowed) {
        let reason = "a mark consists of ASCII letters, digits and `.:_-` and does not start with `-`".into();
        return Err(GuardError::InvalidJob { tag: tag.escape_default().to_string(), reason });
    }
    Ok(())
}
