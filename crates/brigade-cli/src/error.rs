//! Exit codes, and failures that know theirs.

use std::fmt::Display;

use anyhow::anyhow;
use brigade::store::ImportError;
use brigade::{RunError, StoreError};
use brigade_core::Status;

use crate::output;

/// How the command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Done,
    /// The task failed.
    Failed,
    /// A limit was reached; what there is was printed.
    Incomplete,
    /// Somebody stopped it.
    Cancelled,
}

impl Exit {
    /// The code of the process.
    pub(crate) fn code(self) -> i32 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Incomplete => 3,
            Exit::Cancelled => 130,
        }
    }

    /// How a run with this end leaves the process.
    pub(crate) fn of(status: &Status) -> Exit {
        match status {
            Status::Done | Status::Detached => Exit::Done,
            Status::Incomplete { .. } => Exit::Incomplete,
            Status::Failed { .. } | Status::Lost { .. } => Exit::Failed,
            Status::Cancelled { .. } => Exit::Cancelled,
        }
    }
}

/// Why a command could not do what was asked.
#[derive(Debug)]
pub(crate) enum CliError {
    /// What was typed or configured is wrong: exit code 2.
    Usage(anyhow::Error),
    /// It went wrong on the way: exit code 1.
    Failed(anyhow::Error),
    /// Whoever read standard output has gone. There is nobody to tell.
    OutputClosed,
}

impl CliError {
    /// Something typed or configured is wrong.
    pub(crate) fn usage(message: impl Display) -> CliError {
        CliError::Usage(anyhow!("{message}"))
    }

    /// Something went wrong.
    pub(crate) fn failed(message: impl Display) -> CliError {
        CliError::Failed(anyhow!("{message}"))
    }

    /// The same failure with a line on what to do.
    pub(crate) fn hint(self, hint: impl Display) -> CliError {
        match self {
            CliError::Usage(error) => CliError::Usage(anyhow!("{error:#}\n{hint}")),
            CliError::Failed(error) => CliError::Failed(anyhow!("{error:#}\n{hint}")),
            CliError::OutputClosed => CliError::OutputClosed,
        }
    }

    /// The code of the process. A closed pipe looks like the signal that other programs die of.
    pub(crate) fn code(&self) -> i32 {
        match self {
            CliError::Usage(_) => 2,
            CliError::Failed(_) => 1,
            CliError::OutputClosed => 141,
        }
    }

    /// Says it on standard error.
    pub(crate) fn report(&self) {
        if let Some(message) = self.message() {
            output::note(&format!("brigade: {message}"));
        }
    }

    /// What there is to say.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            CliError::Usage(error) | CliError::Failed(error) => Some(format!("{error:#}")),
            CliError::OutputClosed => None,
        }
    }
}

impl Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CliError::Usage(error) | CliError::Failed(error) => write!(f, "{error:#}"),
            CliError::OutputClosed => f.write_str("nobody reads the output any more"),
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> CliError {
        match error {
            StoreError::UnknownSession(_) => CliError::usage(error),
            _ => CliError::failed(error),
        }
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> CliError {
        match error {
            RunError::Store(error) => error.into(),
            RunError::Bug(_) => CliError::failed(error),
            _ => CliError::usage(error),
        }
    }
}

impl From<ImportError> for CliError {
    fn from(error: ImportError) -> CliError {
        match error {
            ImportError::Store(error) => error.into(),
            _ => CliError::usage(error),
        }
    }
}
