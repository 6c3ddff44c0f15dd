//! Moves committed pages from the write-ahead log into the database, beside the writer instead of inside its commits.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::lock::{CommitGate, Lock};
use super::schema::{PAGE_BYTES, connect, io_error};
use crate::store::StoreError;

/// About how many pages are written between two checkpoints.
const CHECKPOINT_INTERVAL_PAGES: u64 = 500;
/// How long the log may get before a checkpoint keeps writers out, so that it can finish and the log start over.
const MAX_LOG_PAGES: u64 = 2_000;

/// How much to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effort {
    /// Move what can be moved.
    Usual,
    /// Leave nothing of what was removed in the log.
    Truncate,
}

/// The thread, as the writer sees it.
#[derive(Debug)]
pub(super) struct Checkpointer {
    requests: Option<mpsc::Sender<Effort>>,
    thread: Option<JoinHandle<()>>,
    pages: u64,
}

impl Checkpointer {
    /// Starts the thread. It costs nothing while nothing is written.
    pub(super) fn start(place: &Path, gate: Arc<CommitGate>) -> Result<Checkpointer, StoreError> {
        let connection = connect(place)?;
        let lock = Lock::open(place, gate)?;
        let (requests, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("brigade-checkpoint".into())
            .spawn(move || run(connection, lock, receiver))
            .map_err(|error| io_error(place, &error))?;
        Ok(Checkpointer { requests: Some(requests), thread: Some(thread), pages: 0 })
    }

    /// Says that about so many bytes were committed.
    pub(super) fn wrote(&mut self, bytes: u64) {
        // Every commit rewrites the pages at the end of the table and of its indices.
        self.pages += bytes / u64::from(PAGE_BYTES) + 4;
        if self.pages >= CHECKPOINT_INTERVAL_PAGES {
            self.pages = 0;
            self.request(Effort::Usual);
        }
    }

    /// Says that something was removed that must not be found in the file any more.
    pub(super) fn removed(&mut self) {
        self.request(Effort::Truncate);
    }

    fn request(&self, effort: Effort) {
        if let Some(requests) = &self.requests {
            // Without the thread the writer's own limit bounds the log.
            let _ = requests.send(effort);
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(connection: Connection, lock: Lock, receiver: mpsc::Receiver<Effort>) {
    // Waiting for readers happens while writers are kept out, so it must be short; the next time will do.
    let _ = connection.busy_timeout(Duration::from_millis(20));
    while let Ok(first) = receiver.recv() {
        let effort = receiver.try_iter().fold(first, Effort::max);
        // What fails here, for want of room or because of readers, is tried again after the next writes.
        let log = checkpoint(&connection, "PASSIVE").unwrap_or_default();
        if effort == Effort::Usual && log < MAX_LOG_PAGES {
            continue;
        }
        if let Ok(guard) = lock.acquire() {
            let mode = if effort == Effort::Truncate { "TRUNCATE" } else { "PASSIVE" };
            let _ = checkpoint(&connection, mode);
            drop(guard);
            lock.yield_to_waiter();
        }
    }
}

/// Does a checkpoint and returns the pages in the log that were not moved before, or all if it is still in use.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<u64> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        Ok(u64::try_from(row.get::<_, i64>(1)?).unwrap_or_default())
    })
}
