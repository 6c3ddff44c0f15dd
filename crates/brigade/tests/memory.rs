//! Memory: persistence across restarts, concurrent processes, arbitrary queries and damaged files.

mod damage;
mod entries;
mod tools;

use std::path::PathBuf;

use brigade::tool::memory::{Memory, NewEntry, PutResult};
use brigade_core::{CallId, SessionId};

pub(crate) struct MemoryDir(tempfile::TempDir);

impl MemoryDir {
    pub(crate) fn new() -> MemoryDir {
        MemoryDir(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.path().join("deep/memory.db")
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory::open(&self.file()).unwrap()
    }
}

pub(crate) fn session() -> SessionId {
    SessionId::root(7)
}

pub(crate) fn call(turn: u32) -> CallId {
    CallId { turn, index: 0 }
}

pub(crate) fn note(key: &str, text: &str) -> NewEntry {
    NewEntry { key: Some(key.to_owned()), text: text.to_owned(), tags: Vec::new() }
}

/// Stores an entry with a call id of its own.
pub(crate) fn put(memory: &Memory, turn: u32, key: &str, text: &str) -> PutResult {
    memory.put(note(key, text), &session(), call(turn)).unwrap()
}

/// Returns the keys that a search finds, in order.
pub(crate) fn keys(memory: &Memory, query: &str) -> Vec<String> {
    memory.search(query, 20).unwrap().into_iter().map(|entry| entry.key).collect()
}
