//! Confinement of a command.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

/// Part of the system that the processes of a command can reach.
///
/// A guard refuses a job whose confinement it cannot enforce. Today it enforces only [`Confinement::none`]. An
/// unknown field is an error, because dropping it would widen what it was meant to narrow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confinement {
    /// Folders that can be read.
    pub readable: Folders,
    /// Folders that can be written.
    pub writable: Folders,
    /// Whether the network can be used.
    pub network: bool,
}

/// Set of folders, each with everything below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Folders {
    /// Every folder that the user has access to.
    All,
    /// Exactly these. Paths are `OsString`s, because a `PathBuf` that is not UTF-8 cannot be sent to the guard.
    Only(Vec<OsString>),
}

impl Confinement {
    /// Leaves the command all rights of its user.
    pub fn none() -> Confinement {
        Confinement { readable: Folders::All, writable: Folders::All, network: true }
    }
}
