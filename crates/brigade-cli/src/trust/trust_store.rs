//! Trust decisions of the user: `trusted.json`, with the hash of every trusted folder.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use brigade_core::Hash;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::instructions;
use crate::clock;
use crate::error::{CliError, unwritable};
use crate::settings::Environment;

/// Trust in one folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TrustEntry {
    /// Hash of its files.
    pub(crate) hash: Hash,
    /// Time of the decision, in UTC milliseconds.
    pub(crate) at: u64,
    /// Instruction files that were accepted with it, by path. `None` means that the file did not exist. Empty in
    /// records of earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) instructions: BTreeMap<String, Option<Hash>>,
}

impl TrustEntry {
    /// Whether the accepted instruction files are unchanged.
    pub(crate) fn has_same_instructions(&self) -> bool {
        self.instructions.iter().all(|(path, hash)| instructions::hash(Path::new(path)) == *hash)
    }
}

/// Whether the user accepted the content of an instruction file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// The user accepted exactly this content.
    Yes,
    /// The user accepted different content, or that the file did not exist.
    Changed,
    /// The user was never asked.
    NeverAsked,
}

/// All trusted folders.
#[derive(Debug, Default)]
pub(crate) struct TrustStore {
    folders: BTreeMap<String, TrustEntry>,
}

impl TrustStore {
    /// Reads the file. A damaged file is an error rather than an empty list, because it may have been tampered with.
    pub(crate) fn read(environment: &Environment) -> Result<TrustStore, CliError> {
        read(&environment.trusted_file()?)
    }

    /// Hash that a folder was trusted with.
    pub(crate) fn hash(&self, root: &Path) -> Option<Hash> {
        root.to_str().and_then(|name| self.folders.get(name)).map(|entry| entry.hash)
    }

    /// Whether the user accepted this content of an instruction file.
    pub(crate) fn accepted(&self, path: &Path, content: Hash) -> Acceptance {
        let name = path.to_str().unwrap_or_default();
        let known = || self.folders.values().filter_map(|entry| entry.instructions.get(name));
        if known().next().is_none() {
            return Acceptance::NeverAsked;
        }
        let is_known = known().any(|hash| *hash == Some(content));
        if is_known { Acceptance::Yes } else { Acceptance::Changed }
    }

    /// All trusted folders.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &TrustEntry)> {
        self.folders.iter().map(|(folder, entry)| (folder.as_str(), entry))
    }

    /// Records that a folder is trusted, with these instruction files. Those of other folders below it stay accepted.
    pub(crate) fn trust(
        environment: &Environment,
        root: &Path,
        hash: Hash,
        instructions: BTreeMap<String, Option<Hash>>,
    ) -> Result<(), CliError> {
        let name = root.to_str().ok_or_else(|| {
            CliError::usage(format!(
                "cannot trust {}: its path is not valid UTF-8. Rename the directory.",
                root.display()
            ))
        })?;
        change(&environment.trusted_file()?, |store| {
            let known = store.folders.remove(name).map(|entry| entry.instructions).unwrap_or_default();
            let instructions = known.into_iter().chain(instructions).collect();
            store.folders.insert(name.to_owned(), TrustEntry { hash, at: clock::now(), instructions });
        })
    }

    /// Removes the trust in a folder.
    pub(crate) fn revoke(environment: &Environment, root: &Path) -> Result<(), CliError> {
        change(&environment.trusted_file()?, |store| {
            if let Some(name) = root.to_str() {
                store.folders.remove(name);
            }
        })
    }
}

fn read(file: &Path) -> Result<TrustStore, CliError> {
    let text = match std::fs::read(file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(TrustStore::default());
        }
        Err(error) => return Err(CliError::usage(format!("cannot read {}: {error}", file.display()))),
    };
    let damaged = |error: &dyn std::fmt::Display| {
        CliError::usage(format!(
            "cannot parse {}: {error}\nDelete the file and trust your projects again with: brigade trust DIR",
            file.display()
        ))
    };
    let value = brigade_core::json::parse(&text).map_err(|error| damaged(&error))?;
    let folders = serde_json::from_value(value).map_err(|error| damaged(&error))?;
    Ok(TrustStore { folders })
}

/// Replaces the file atomically, under a lock.
fn change(file: &Path, change: impl FnOnce(&mut TrustStore)) -> Result<(), CliError> {
    let unwritable = |error: std::io::Error| unwritable(file, &error);
    let folder = file.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(unwritable)?;
    let opened = File::open(&folder).map_err(unwritable)?;
    // On a file system without locks, one of two concurrent changes may be lost at worst.
    let _ = rustix::fs::flock(&opened, FlockOperation::LockExclusive);
    let mut store = read(file)?;
    change(&mut store);
    let mut text = serde_json::to_string_pretty(&store.folders).map_err(|error| {
        CliError::failed(format!("cannot serialize the trusted directories as JSON: {error}"))
    })?;
    text.push('\n');
    // The temporary file is readable only by the user, and keeps that mode after the rename.
    let mut new = tempfile::NamedTempFile::new_in(&folder).map_err(unwritable)?;
    new.write_all(text.as_bytes()).map_err(unwritable)?;
    new.as_file().sync_all().map_err(unwritable)?;
    new.persist(file).map_err(|error| unwritable(error.error))?;
    opened.sync_all().map_err(unwritable)
}
