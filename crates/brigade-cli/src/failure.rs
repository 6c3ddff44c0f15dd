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
pub(crate) enum Failure {
    /// What was typed or configured is wrong: exit code 2.
    Usage(anyhow::Error),
    /// It went wrong on the way: exit code 1.
    Failed(anyhow::Error),
    /// Whoever read standard output has gone. There is nobody to tell.
    Closed,
}

impl Failure {
    /// Something typed or configured is wrong.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure::Usage(anyhow!("{message}"))
    }

    /// Something went wrong.
    pub(crate) fn failed(message: impl Display) -> Failure {
        Failure::Failed(anyhow!("{message}"))
    }

    /// The same failure with a line on what to do.
    pub(crate) fn hint(self, hint: impl Display) -> Failure {
        match self {
            Failure::Usage(error) => Failure::Usage(anyhow!("{error:#}\n{hint}")),
            Failure::Failed(error) => Failure::Failed(anyhow!("{error:#}\n{hint}")),
            Failure::Closed => Failure::Closed,
        }
    }

    /// The code of the process. A closed pipe looks like the signal that other programs die of.
    pub(crate) fn code(&self) -> i32 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) => 1,
            Failure::Closed => 141,
        }
    }

    /// Says it on standard error.
    pub(crate) fn report(&self) {
        if let Some(words) = self.words() {
            output::note(&format!("brigade: {words}"));
        }
    }

    /// What there is to say.
    pub(crate) fn words(&self) -> Option<String> {
        match self {
            Failure::Usage(error) | Failure::Failed(error) => Some(format!("{error:#}")),
            Failure::Closed => None,
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Usage(error) | Failure::Failed(error) => write!(f, "{error:#}"),
            Failure::Closed => f.write_str("nobody reads the output any more"),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        match error {
            StoreError::Unknown(_) => Failure::usage(error),
            _ => Failure::failed(error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        match error {
            RunError::Store(error) => error.into(),
            RunError::Bug(_) => Failure::failed(error),
            _ => Failure::usage(error),
        }
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Failure {
        match error {
            ImportError::Store(error) => error.into(),
            _ => Failure::usage(error),
        }
    }
}
