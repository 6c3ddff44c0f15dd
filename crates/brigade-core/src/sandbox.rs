//! Sandbox of an agent's commands, as far as it is part of the agent's authority.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Sandbox of commands, ordered from narrow to wide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Commands can write only to temporary directories of their own.
    ReadOnly,
    /// Commands can also write to the workspace, except its protected files.
    Workspace,
    /// Commands have the rights of the user.
    #[default]
    Off,
}

impl SandboxMode {
    /// Returns the name of the mode in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            SandboxMode::ReadOnly => "read-only",
            SandboxMode::Workspace => "workspace",
            SandboxMode::Off => "off",
        }
    }
}

impl fmt::Display for SandboxMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Unknown name of a sandbox mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a sandbox mode. Use `read-only`, `workspace` or `off`")]
pub struct SandboxModeError(String);

impl FromStr for SandboxMode {
    type Err = SandboxModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [SandboxMode::ReadOnly, SandboxMode::Workspace, SandboxMode::Off]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| SandboxModeError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_ordered_from_narrow_to_wide() {
        let modes = [SandboxMode::ReadOnly, SandboxMode::Workspace, SandboxMode::Off];
        assert!(modes.is_sorted());
        for mode in modes {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.as_str());
        }
        assert!("none".parse::<SandboxMode>().unwrap_err().to_string().contains("`none` is not"));
    }
}
