//! File contents that an agent has seen. A file tool does not overwrite content that its agent has not seen.

use serde::{Deserialize, Serialize};

use crate::id::Hash;

/// Maximum number of files remembered per session. A forgotten file must be read again before it is written.
pub const MAX_SEEN_FILES: usize = 256;

/// Content of a file as an agent saw it: because it was shown the file, or because it wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenFile {
    /// Path of the file, relative to the workspace and without links: one file has one such path.
    pub path: String,
    /// Hash of the whole file, even if only a part of it was shown.
    pub hash: Hash,
    /// Part of the file that was shown.
    #[serde(default)]
    pub extent: Extent,
}

/// Part of a file that an agent has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Some lines.
    #[default]
    Part,
    /// The whole file.
    Whole,
    /// Same extent as of the content before this edit. Folding the log replaces it with `Part` or `Whole`.
    Inherited,
}

/// Files that an agent has seen, in the order in which it last saw them.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenFiles {
    list: Vec<SeenEntry>,
}

#[derive(Debug, Clone)]
struct SeenEntry {
    seen: SeenFile,
    /// Last turn that showed or changed the file.
    turn: u32,
    /// Turn that showed the whole file. A later edit does not show the rest again.
    whole_turn: Option<u32>,
}

impl SeenFiles {
    /// Records what a call of this turn showed. Its cost is bounded by [`MAX_SEEN_FILES`].
    pub(crate) fn add(&mut self, turn: u32, seen: &SeenFile) {
        let known = self.list.iter().position(|known| known.seen.path == seen.path);
        let known = known.map(|at| self.list.remove(at));
        let whole_turn = match seen.extent {
            Extent::Whole => Some(turn),
            // Seeing a part does not reduce what was already seen in full.
            Extent::Part => {
                known.filter(|known| known.seen.hash == seen.hash).and_then(|known| known.whole_turn)
            }
            Extent::Inherited => known.and_then(|known| known.whole_turn),
        };
        if self.list.len() == MAX_SEEN_FILES {
            self.list.remove(0);
        }
        let extent = if whole_turn.is_some() { Extent::Whole } else { Extent::Part };
        self.list.push(SeenEntry { seen: SeenFile { extent, ..seen.clone() }, turn, whole_turn });
    }

    /// Returns the content of a file as it was last seen.
    pub(crate) fn get(&self, path: &str) -> Option<&SeenFile> {
        self.list.iter().map(|known| &known.seen).find(|seen| seen.path == path)
    }

    /// Forgets what earlier turns showed, because the conversation does not contain them any more. If only an edit
    /// of a file is left, a part of the file is known.
    pub(crate) fn forget_before(&mut self, keep_from: u32) {
        self.list.retain(|known| known.turn >= keep_from);
        for known in &mut self.list {
            if known.whole_turn.is_some_and(|turn| turn < keep_from) {
                known.whole_turn = None;
                known.seen.extent = Extent::Part;
            }
        }
    }
}
