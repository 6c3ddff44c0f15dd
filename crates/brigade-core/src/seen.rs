//! Content of files that an agent has seen. A file tool does not overwrite content that its agent has not seen.

use serde::{Deserialize, Serialize};

use crate::id::Hash;

/// Files that are remembered for each session. One that is forgotten has to be read again before it is written.
pub const MAX_SEEN_FILES: usize = 256;

/// The content of a file as an agent saw it: because it was shown the file, or because it wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenFile {
    /// The place of the file, relative to the workspace, without links: one file has one such path.
    pub path: String,
    /// The hash of the whole file, also if a part of it was shown.
    pub hash: Hash,
    /// The part of the file that was shown.
    #[serde(default)]
    pub extent: Extent,
}

/// The part of a file that an agent has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Some lines.
    #[default]
    Part,
    /// All of it.
    Whole,
}

/// The files that an agent has seen, in the order in which it last saw them.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenFiles {
    list: Vec<(u32, SeenFile)>,
}

impl SeenFiles {
    /// Remembers what a call of this turn showed. Its cost is bounded by [`MAX_SEEN_FILES`].
    pub(crate) fn add(&mut self, turn: u32, seen: &SeenFile) {
        let known = self.list.iter().position(|(_, known)| known.path == seen.path);
        let known = known.map(|at| self.list.remove(at));
        let entry = match known {
            // A look at a part of what was seen in full takes nothing away.
            Some((turn, known)) if known.hash == seen.hash && known.extent > seen.extent => (turn, known),
            Some(_) | None => (turn, seen.clone()),
        };
        if self.list.len() == MAX_SEEN_FILES {
            self.list.remove(0);
        }
        self.list.push(entry);
    }

    /// The content of a file as it was last seen.
    pub(crate) fn get(&self, path: &str) -> Option<&SeenFile> {
        self.list.iter().map(|(_, seen)| seen).find(|seen| seen.path == path)
    }

    /// Forgets what earlier turns showed: the conversation does not contain them any more.
    pub(crate) fn forget_before(&mut self, keep_from: u32) {
        self.list.retain(|(turn, _)| *turn >= keep_from);
    }
}
