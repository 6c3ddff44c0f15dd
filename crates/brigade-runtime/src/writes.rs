//! Record of the file writes in a tree, used to tell an agent which session changed a file.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use brigade_core::{Event, Hash, Record, SessionId};

use crate::fast_map::FastMap;

/// Number of writes that are kept. The writer of an older one is unknown.
const MAX_WRITES: usize = 4096;

/// The newest writes of a tree, oldest first.
#[derive(Default)]
pub(crate) struct Writes(Mutex<WriteLog>);

#[derive(Default)]
struct WriteLog {
    list: VecDeque<NumberedWrite>,
    last: u64,
    has_earlier: bool,
}

struct NumberedWrite {
    number: u64,
    write: FileWrite,
}

/// A write that is in progress or done.
pub(crate) struct FileWrite {
    /// Path relative to the workspace, or none if an earlier runner made the write.
    pub(crate) path: Option<String>,
    /// Hash of the content it leaves.
    pub(crate) after: Hash,
    /// The session that writes.
    pub(crate) session: SessionId,
    /// Role or agent name of that session.
    pub(crate) label: String,
}

impl FileWrite {
    fn produces(&self, path: &str, content: Hash) -> bool {
        self.after == content && self.path.as_deref().is_none_or(|known| known == path)
    }
}

impl Writes {
    fn lock(&self) -> MutexGuard<'_, WriteLog> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the newest write.
    pub(crate) fn newest(&self) -> u64 {
        self.lock().last
    }

    /// Records a write that is about to happen and returns its number.
    pub(crate) fn begin(&self, write: FileWrite) -> u64 {
        let mut log = self.lock();
        log.last += 1;
        let number = log.last;
        log.list.push_back(NumberedWrite { number, write });
        if log.list.len() > MAX_WRITES {
            log.list.pop_front();
        }
        number
    }

    /// Removes a write that did not happen.
    pub(crate) fn withdraw(&self, number: u64) {
        self.lock().list.retain(|entry| entry.number != number);
    }

    /// Label of the session other than `reader` that left this content in this file.
    pub(crate) fn writer(&self, path: &str, content: Hash, reader: &SessionId) -> Option<String> {
        let log = self.lock();
        let wrote =
            |entry: &&NumberedWrite| entry.write.session != *reader && entry.write.produces(path, content);
        log.list.iter().rev().find(wrote).map(|entry| entry.write.label.clone())
    }

    /// Like `writer`, but only if that was after write number `since` and after the last write of `reader` to the
    /// file.
    pub(crate) fn writer_since(
        &self,
        path: &str,
        content: Hash,
        reader: &SessionId,
        since: u64,
    ) -> Option<String> {
        let log = self.lock();
        let newer = log.list.iter().rev().take_while(|entry| entry.number > since);
        let of_this_file =
            newer.map(|entry| &entry.write).filter(|write| write.path.as_deref() == Some(path));
        let mut of_others = of_this_file.take_while(|write| write.session != *reader);
        of_others.find(|write| write.after == content).map(|write| write.label.clone())
    }

    /// Whether a session of the tree left this content in this file since this process has run the tree.
    pub(crate) fn has_written(&self, path: &str, content: Hash) -> bool {
        let left =
            |entry: &NumberedWrite| entry.write.path.as_deref() == Some(path) && entry.write.after == content;
        self.lock().list.iter().any(left)
    }

    /// Whether the writes of earlier runners were added.
    pub(crate) fn has_earlier(&self) -> bool {
        self.lock().has_earlier
    }

    /// Adds the writes of earlier runners, read from the store.
    pub(crate) fn add_earlier(&self, writes: Vec<FileWrite>) {
        let mut log = self.lock();
        let room = MAX_WRITES.saturating_sub(log.list.len());
        if !std::mem::replace(&mut log.has_earlier, true) {
            for write in writes.into_iter().rev().take(room) {
                log.list.push_front(NumberedWrite { number: 0, write });
            }
        }
    }
}

/// Writes found in a log, without their paths.
#[derive(Default)]
pub(crate) struct EarlierWrites {
    labels: FastMap<SessionId, String>,
    pub(crate) writes: Vec<FileWrite>,
}

impl EarlierWrites {
    pub(crate) fn apply(&mut self, record: Record) {
        match record.event {
            Event::Started { delegation, .. } => {
                self.labels.insert(record.session, delegation.label().to_owned());
            }
            Event::ToolStarted { after: Some(after), .. } => {
                let label = self.labels.get(&record.session).cloned().unwrap_or_default();
                self.writes.push(FileWrite { path: None, after, session: record.session, label });
            }
            _ => {}
        }
    }
}
