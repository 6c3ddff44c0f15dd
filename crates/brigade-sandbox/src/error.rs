//! Errors between the runner and its guard.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Reason why a command has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The job is invalid. Nothing was started.
    #[error("cannot start the job `{tag}`: {reason}")]
    InvalidJob {
        /// Tag of the job.
        tag: String,
        /// Cause.
        reason: String,
    },
    /// The guard program could not be started. Nothing was run.
    #[error(
        "cannot start the guard program `{}` for `{tag}`: {source}. Check that the file exists and is executable.",
        program.display()
    )]
    CannotStart {
        /// Tag of the job.
        tag: String,
        /// The guard program.
        program: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The guard cannot enforce the confinement of the job. Nothing was run.
    #[error(
        "cannot start the command of `{tag}` in a sandbox: {reason}. Check that the system allows user namespaces and that the paths of the sandbox exist."
    )]
    CannotConfine {
        /// Tag of the job.
        tag: String,
        /// Cause reported by the guard.
        reason: String,
    },
    /// The working directory of the command cannot be used. Nothing was run.
    #[error(
        "cannot start the command of `{tag}` in `{}`: {reason}. Create the directory or choose another one.",
        directory.display()
    )]
    Directory {
        /// Tag of the job.
        tag: String,
        /// Working directory of the job.
        directory: PathBuf,
        /// Error of the system.
        reason: String,
    },
    /// The guard could not start the command. Nothing was run.
    #[error(
        "cannot start the command of `{tag}`: {reason}. Check the length, environment and limits of the command."
    )]
    CannotRun {
        /// Tag of the job.
        tag: String,
        /// Cause reported by the guard.
        reason: String,
    },
    /// The guard exited without a report. Processes that the command had detached may still be running.
    #[error(
        "the guard of `{tag}` exited without a report ({status}). The outcome of the command is unknown. \
         Check its effects, and look for processes that it left behind."
    )]
    Died {
        /// Tag of the job.
        tag: String,
        /// Exit status of the guard.
        status: ExitStatus,
    },
    /// The guard program does not speak the guard protocol.
    #[error(
        "the guard of `{tag}` sent an invalid report: {detail}. Check that the guard program calls `guard_main` and has the same version as this program."
    )]
    Protocol {
        /// Tag of the job.
        tag: String,
        /// Description of the invalid message.
        detail: String,
    },
    /// The guard did not respond in time, so the runner killed it and its descendants.
    #[error("the guard of `{tag}` did not respond for {}, so it and its command were killed. The output is lost, and the command may have done part of its work.", seconds(*limit))]
    Unresponsive {
        /// Tag of the job.
        tag: String,
        /// Time that the runner waited.
        limit: Duration,
    },
    /// Processes of the job could not be killed.
    #[error("cannot kill all processes of `{tag}`: {count} still running after {}. A process may be waiting for a device or belong to another user. Find the remaining ones with `ps` and kill them.", seconds(*limit))]
    StillAlive {
        /// Tag of the job.
        tag: String,
        /// Number of remaining processes.
        count: usize,
        /// Time that the runner waited.
        limit: Duration,
    },
    /// The process table could not be read.
    #[error("cannot find the processes of `{tag}`: {source}. Check that /proc is mounted and readable.")]
    ProcessTable {
        /// Tag of the job.
        tag: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Communication with the guard failed.
    #[error(
        "lost the connection to the guard of `{tag}`: {source}. Its command is being killed, and its outcome is unknown."
    )]
    Connection {
        /// Tag of the job.
        tag: String,
        /// Error of the system.
        source: io::Error,
    },
}

/// Formats a duration for messages, without needless precision.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
