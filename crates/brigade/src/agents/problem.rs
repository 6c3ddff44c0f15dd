//! Problems of agent files, and notes on their keys.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Reason why a file yields no usable definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentProblem {
    /// Path of the file.
    pub file: PathBuf,
    /// Line of the problem, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// Description of the problem.
    pub cause: String,
}

/// Kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The file cannot be read as a definition.
    Refused,
    /// Two files of one folder have the same id; neither is used.
    Duplicate,
    /// A folder with higher precedence contains a definition of the same id.
    Shadowed,
}

impl AgentProblem {
    pub(super) fn refused(file: &Path, fault: DefinitionError) -> AgentProblem {
        AgentProblem {
            file: file.to_owned(),
            line: fault.line,
            kind: ProblemKind::Refused,
            cause: fault.cause,
        }
    }
}

impl fmt::Display for AgentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.cause)
    }
}

/// Problem in a text whose file is not known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DefinitionError {
    pub(super) line: Option<u32>,
    pub(super) cause: String,
}

impl DefinitionError {
    pub(super) fn new(cause: impl Into<String>) -> DefinitionError {
        DefinitionError { line: None, cause: cause.into() }
    }

    pub(super) fn at(line: u32, cause: impl Into<String>) -> DefinitionError {
        DefinitionError { line: Some(line), cause: cause.into() }
    }
}

/// Note on one key of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyNote {
    /// Key as it is written in the file.
    pub key: String,
    /// Line of the key, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Status of the key.
    #[serde(rename = "class")]
    pub status: KeyStatus,
    /// Explanation; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// Treatment of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStatus {
    /// Used with its original meaning.
    Honoured,
    /// Applied in another form.
    Translated,
    /// Has no effect.
    Ignored,
    /// Prevents the file from being used.
    Refused,
}

impl KeyStatus {
    /// Returns the status as one word.
    pub fn word(self) -> &'static str {
        match self {
            KeyStatus::Honoured => "honoured",
            KeyStatus::Translated => "translated",
            KeyStatus::Ignored => "ignored",
            KeyStatus::Refused => "refused",
        }
    }
}
