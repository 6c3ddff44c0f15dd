//! A folder of agent files.

use std::path::{Path, PathBuf};

use brigade::agents::{Class, Definition, Found, Note, Refusal, discover, lint};
use tempfile::TempDir;

pub(super) struct Shelf {
    folder: TempDir,
}

impl Shelf {
    pub(super) fn new() -> Shelf {
        Shelf { folder: tempfile::tempdir().unwrap() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a file there.
    pub(super) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> &Shelf {
        let file = self.path(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
        self
    }

    /// Puts a definition of ours there, with these further lines.
    pub(super) fn agent(&self, id: &str, lines: &str) -> &Shelf {
        let text = format!("---\nname: {id}\ndescription: about {id}\n{lines}\n---\nYou are {id}.\n");
        self.put(&format!("{id}/AGENT.md"), text)
    }

    pub(super) fn discover(&self) -> Found {
        discover(self.root())
    }

    /// The only definition that is made of this file.
    #[track_caller]
    pub(super) fn loaded(&self, name: &str, content: impl AsRef<[u8]>) -> Definition {
        let (mut reports, _) = lint(&self.put(name, content).path(name));
        assert_eq!(reports.len(), 1);
        match reports.remove(0).outcome {
            Ok(definition) => definition,
            Err(refusal) => panic!("{}", refusal.problem),
        }
    }

    /// Why no definition is made of this file.
    #[track_caller]
    pub(super) fn refused(&self, name: &str, content: impl AsRef<[u8]>) -> Refusal {
        let (mut reports, _) = lint(&self.put(name, content).path(name));
        assert_eq!(reports.len(), 1);
        match reports.remove(0).outcome {
            Ok(definition) => panic!("{name} was loaded: {:?}", definition.agent),
            Err(refusal) => refusal,
        }
    }
}

/// The note on a key.
#[track_caller]
pub(super) fn note<'a>(notes: &'a [Note], key: &str) -> &'a Note {
    let found = notes.iter().find(|note| note.key == key);
    found.unwrap_or_else(|| panic!("no note on {key} in {notes:?}"))
}

#[track_caller]
pub(super) fn classed(notes: &[Note], key: &str, class: Class) {
    let note = note(notes, key);
    assert_eq!(note.class, class, "{note:?}");
}

pub(super) fn tools(definition: &Definition) -> Option<Vec<&str>> {
    definition.agent.tools.as_ref().map(|tools| tools.iter().map(String::as_str).collect())
}

pub(super) fn deny(definition: &Definition) -> Vec<String> {
    definition.agent.deny.iter().map(ToString::to_string).collect()
}
