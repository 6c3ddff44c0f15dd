//! What is wrong with a file, and what became of each of its keys.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Why a file gives no definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentProblem {
    /// The file.
    pub file: PathBuf,
    /// The line, where one is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What kind of problem it is.
    pub kind: ProblemKind,
    /// What is wrong.
    pub cause: String,
}

/// The kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The file cannot be read as a definition.
    Refused,
    /// Two files of one place have the same id; neither is used.
    Duplicate,
    /// A definition of the same id stands in a place that comes first.
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

/// What is wrong in a text that does not know its file.
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

/// What became of one key of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyNote {
    /// The key as it is written.
    pub key: String,
    /// Its line, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What became of it.
    #[serde(rename = "class")]
    pub status: KeyStatus,
    /// How, or why; empty where there is nothing to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// What became of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyStatus {
    /// It means here what it means there.
    Honoured,
    /// It is in force in another form.
    Translated,
    /// It has no effect.
    Ignored,
    /// It keeps the file from being used.
    Refused,
}

impl KeyStatus {
    /// One word for it.
    pub fn word(self) -> &'static str {
        match self {
            KeyStatus::Honoured => "honoured",
            KeyStatus::Translated => "translated",
            KeyStatus::Ignored => "ignored",
            KeyStatus::Refused => "refused",
        }
    }
}
