//! Problems of agent files, and notes on their keys.

use std::path::Path;

use serde::Serialize;

use crate::{AgentProblem, ProblemKind};

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

/// Reason why a key is refused, as the rest of a sentence about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct KeyError(String);

impl<T: Into<String>> From<T> for KeyError {
    fn from(text: T) -> KeyError {
        KeyError(text.into())
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
