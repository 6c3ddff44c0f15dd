//! Problems of agent files.

use std::fmt;
use std::path::PathBuf;

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

impl fmt::Display for AgentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.cause)
    }
}
