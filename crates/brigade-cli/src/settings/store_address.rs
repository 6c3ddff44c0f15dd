//! Address of the session store.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Environment;
use crate::error::CliError;

/// Text between the scheme of an address and the rest.
const SCHEME_SEPARATOR: &str = "://";

/// Address of a session store: a path, or `scheme://…` for a store that is not a file. No scheme is supported yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum StoreAddress {
    /// SQLite file, as an absolute path.
    File(PathBuf),
}

impl StoreAddress {
    /// Parses an address. A relative path refers to the current folder.
    pub(super) fn parse(text: &Path, environment: &Environment) -> Result<StoreAddress, CliError> {
        match text.to_str() {
            // The rest of the address may contain a password.
            Some(address) if let Some((scheme, _)) = address.split_once(SCHEME_SEPARATOR) => {
                Err(CliError::usage(format!(
                    "a store with a {scheme}{SCHEME_SEPARATOR} address is not supported. Use the path of a file."
                )))
            }
            _ => Ok(StoreAddress::File(environment.absolute(text))),
        }
    }

    /// Folder of files that belong to the store.
    pub(crate) fn folder(&self) -> &Path {
        let StoreAddress::File(path) = self;
        path.parent().unwrap_or(Path::new("."))
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreAddress::File(path) = self;
        path.display().fmt(f)
    }
}
