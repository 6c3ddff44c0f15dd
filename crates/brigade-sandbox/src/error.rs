//! What can go wrong between the runner and its guard.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The job cannot be run as it is; nothing was started.
    #[error("the job `{tag}` was not started: {reason}; correct the job and try again")]
    InvalidJob {
        /// The mark of the job.
        tag: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The guard program could not be started; nothing was run.
    #[error(
        "cannot start the guard program `{}` for `{tag}`: {source}; check that the file exists and may be run",
        program.display()
    )]
    CannotStart {
        /// The mark of the job.
        tag: String,
        /// The program that was to be the guard.
        program: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The command's working directory cannot be used; nothing was run.
    #[error(
        "the command of `{tag}` was not started: its directory `{}` cannot be used: {reason}; \
         create the directory or name another one",
        directory.display()
    )]
    Directory {
        /// The mark of the job.
        tag: String,
        /// The directory of the job.
        directory: PathBuf,
        /// What the system answered.
        reason: String,
    },
    /// The guard could not start the command; nothing was run.
    #[error(
        "the guard of `{tag}` could not start the command: {reason}; check its length, environment and limits"
    )]
    CannotRun {
        /// The mark of the job.
        tag: String,
        /// What the guard said.
        reason: String,
    },
    /// The guard ended without a report. Processes that the command had detached may still be running.
    #[error(
        "the guard of `{tag}` ended without a report ({status}); whether the command did its work is unknown: \
         look at its effects, and look for processes that it left behind"
    )]
    Died {
        /// The mark of the job.
        tag: String,
        /// How the guard ended.
        status: ExitStatus,
    },
    /// The guard program does not speak the guard's language.
    #[error(
        "the guard of `{tag}` sent something that is no report: {detail}; check that its program calls `guard_main` and has the same version"
    )]
    Protocol {
        /// The mark of the job.
        tag: String,
        /// What was wrong.
        detail: String,
    },
    /// The guard did not answer in time, so the runner ended it and its descendants.
    #[error("the guard of `{tag}` gave no sign of life for {}, so it and its command were killed; the output is lost and the command may have done part of its work", seconds(*limit))]
    Unresponsive {
        /// The mark of the job.
        tag: String,
        /// How long the runner waited.
        limit: Duration,
    },
    /// Processes of the job would not die.
    #[error("{count} processes of `{tag}` are still alive after {}; look at them with `ps` (they may wait for a device or belong to another user) and end them by hand", seconds(*limit))]
    StillAlive {
        /// The mark of the job.
        tag: String,
        /// How many are left.
        count: usize,
        /// How long they were given.
        limit: Duration,
    },
    /// The process table could not be read.
    #[error("cannot look for processes of `{tag}`: {source}; check that /proc is mounted and readable")]
    ProcessTable {
        /// The mark of the job.
        tag: String,
        /// What the system answered.
        source: io::Error,
    },
    /// Talking to the guard failed.
    #[error(
        "lost the connection to the guard of `{tag}`: {source}; its command is being ended, and its result is unknown"
    )]
    Connection {
        /// The mark of the job.
        tag: String,
        /// What the system answered.
        source: io::Error,
    },
}

/// Durations in messages are read by people, who do not want nanoseconds.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
