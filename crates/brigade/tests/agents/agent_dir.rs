//! Test folder of agent files.

use std::path::{Path, PathBuf};

use brigade::agents::{AgentDefinition, Discovered, KeyNote, KeyStatus, LoadFailure, discover, lint};
use tempfile::TempDir;

pub(super) struct AgentDir {
    folder: TempDir,
}

impl AgentDir {
    pub(super) fn new() -> AgentDir {
        AgentDir { folder: tempfile::tempdir().unwrap() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file.
    pub(super) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> &AgentDir {
        let file = self.path(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
        self
    }

    /// Writes a definition in Brigade's own format, with these additional lines.
    pub(super) fn agent(&self, id: &str, lines: &str) -> &AgentDir {
        let text = format!("---\nname: {id}\ndescription: about {id}\n{lines}\n---\nYou are {id}.\n");
        self.put(&format!("{id}/AGENT.md"), text)
    }

    pub(super) fn discover(&self) -> Discovered {
        discover(self.root())
    }

    /// Loads the only definition of this file.
    #[track_caller]
    pub(super) fn load_ok(&self, name: &str, content: impl AsRef<[u8]>) -> AgentDefinition {
        let (mut reports, _) = lint(&self.put(name, content).path(name));
        assert_eq!(reports.len(), 1);
        match reports.remove(0).outcome {
            Ok(definition) => definition,
            Err(refusal) => panic!("{}", refusal.problem),
        }
    }

    /// Returns the failure of loading this file.
    #[track_caller]
    pub(super) fn load_err(&self, name: &str, content: impl AsRef<[u8]>) -> LoadFailure {
        let (mut reports, _) = lint(&self.put(name, content).path(name));
        assert_eq!(reports.len(), 1);
        match reports.remove(0).outcome {
            Ok(definition) => panic!("{name} was loaded: {:?}", definition.agent),
            Err(refusal) => refusal,
        }
    }
}

/// Returns the note on a key.
#[track_caller]
pub(super) fn note<'a>(notes: &'a [KeyNote], key: &str) -> &'a KeyNote {
    let found = notes.iter().find(|note| note.key == key);
    found.unwrap_or_else(|| panic!("no note on {key} in {notes:?}"))
}

#[track_caller]
pub(super) fn assert_status(notes: &[KeyNote], key: &str, status: KeyStatus) {
    let note = note(notes, key);
    assert_eq!(note.status, status, "{note:?}");
}

pub(super) fn tools(definition: &AgentDefinition) -> Option<Vec<&str>> {
    definition.agent.tools.as_ref().map(|tools| tools.iter().map(String::as_str).collect())
}

pub(super) fn deny(definition: &AgentDefinition) -> Vec<String> {
    definition.agent.deny.iter().map(ToString::to_string).collect()
}
