//! Exit codes, and errors with their exit codes.

use std::fmt::Display;
use std::path::Path;

use anyhow::anyhow;
use brigade::store::ImportError;
use brigade::{RunError, StoreError, UnpricedModel};
use brigade_core::Status;

use crate::output;
use crate::store_advice;

/// Result of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done,
    /// The task failed.
    Failed,
    /// A limit was reached. The partial result was printed.
    Incomplete,
    /// The run was cancelled.
    Cancelled,
}

impl Exit {
    /// Exit code of the process.
    pub(crate) fn code(self) -> i32 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Incomplete => 3,
            Exit::Cancelled => 130,
        }
    }

    /// Exit for a run with this status.
    pub(crate) fn of(status: &Status) -> Exit {
        match status {
            Status::Done | Status::Detached => Exit::Done,
            Status::Incomplete { .. } => Exit::Incomplete,
            Status::Failed { .. } | Status::Lost { .. } => Exit::Failed,
            Status::Cancelled { .. } => Exit::Cancelled,
        }
    }
}

/// Error of a command.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Invalid arguments or configuration: exit code 2.
    Usage(anyhow::Error),
    /// Failure during execution: exit code 1.
    Failed(anyhow::Error),
    /// The reader of standard output has closed it. There is nothing to report.
    OutputClosed,
}

impl CliError {
    /// Error in the arguments or the configuration.
    pub(crate) fn usage(message: impl Display) -> CliError {
        CliError::Usage(anyhow!("{message}"))
    }

    /// Failure during execution.
    pub(crate) fn failed(message: impl Display) -> CliError {
        CliError::Failed(anyhow!("{message}"))
    }

    /// Adds a hint with the fix.
    pub(crate) fn hint(self, hint: impl Display) -> CliError {
        match self {
            CliError::Usage(error) => CliError::Usage(anyhow!("{error:#}\n{hint}")),
            CliError::Failed(error) => CliError::Failed(anyhow!("{error:#}\n{hint}")),
            CliError::OutputClosed => CliError::OutputClosed,
        }
    }

    /// Exit code of the process. A closed pipe looks like the signal that terminates other programs.
    pub(crate) fn code(&self) -> i32 {
        match self {
            CliError::Usage(_) => 2,
            CliError::Failed(_) => 1,
            CliError::OutputClosed => 141,
        }
    }

    /// Prints the error to standard error.
    pub(crate) fn report(&self) {
        if let Some(message) = self.message() {
            output::note(&format!("brigade: {message}"));
        }
    }

    /// Error message, if there is anything to report.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            CliError::Usage(error) | CliError::Failed(error) => Some(format!("{error:#}")),
            CliError::OutputClosed => None,
        }
    }
}

/// Text of an error without the path of a temporary file, which the user does not know.
pub(crate) fn without_temporary_path(error: &std::io::Error) -> String {
    let text = error.to_string();
    // The crate `tempfile` appends the path to the error of the system.
    text.rsplit_once(" at path \"").map(|(cause, _)| cause.to_owned()).unwrap_or(text)
}

/// Failure to write a file through a temporary one.
pub(crate) fn unwritable(file: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot write {}: {}", file.display(), without_temporary_path(error)))
}

impl Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message().unwrap_or_else(|| "standard output was closed".to_owned()))
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> CliError {
        match error {
            StoreError::UnknownSession(_) => CliError::usage(store_advice::describe(&error)),
            _ => CliError::failed(store_advice::describe(&error)),
        }
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> CliError {
        match error {
            RunError::Store(error) => error.into(),
            RunError::Bug(_) => CliError::failed(error),
            RunError::Unpriced(UnpricedModel { name }) => CliError::usage(format!(
                "cannot enforce a budget in dollars: the price of the model '{name}' is unknown. Set `input` and \
                 `output`, in dollars per million tokens, under `[prices.\"{name}\"]` in your configuration, or \
                 replace `--budget-usd` and `budget.usd` with a budget in tokens."
            )),
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
