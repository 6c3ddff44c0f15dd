//! Checkpointing: moves committed pages from the write-ahead log into the database, outside the writer's commits.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::lock::{CommitGate, Lock};
use super::schema::{PAGE_BYTES, connect, io_error};
use brigade_base::store::StoreError;

/// Approximate number of pages written between two checkpoints.
const CHECKPOINT_INTERVAL_PAGES: u64 = 500;
/// Length of the log at which a checkpoint blocks writers, so that it can finish and the log can restart.
const MAX_LOG_PAGES: u64 = 2_000;

/// Extent of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effort {
    /// Move the pages that can be moved.
    Usual,
    /// Leave no removed data in the log.
    Truncate,
}

/// Handle of the checkpoint thread.
#[derive(Debug)]
pub(super) struct Checkpointer {
    requests: Option<mpsc::Sender<Effort>>,
    thread: Option<JoinHandle<()>>,
    pages: u64,
}

impl Checkpointer {
    /// Starts the thread. It is idle while nothing is written.
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

    /// Notes that about this many bytes were committed.
    pub(super) fn wrote(&mut self, bytes: u64) {
        // Every commit rewrites the last pages of the table and of its indexes.
        self.pages += bytes / u64::from(PAGE_BYTES) + 4;
        if self.pages >= CHECKPOINT_INTERVAL_PAGES {
            self.pages = 0;
            self.request(Effort::Usual);
        }
    }

    /// Notes that data was removed, which must disappear from the file.
    pub(super) fn removed(&mut self) {
        self.request(Effort::Truncate);
    }

    fn request(&self, effort: Effort) {
        if let Some(requests) = &self.requests {
            // If the thread has ended, the writer's own limit bounds the log.
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
    // Writers are blocked while this waits for readers, so the wait is short. The next checkpoint tries again.
    let _ = connection.busy_timeout(Duration::from_millis(20));
    while let Ok(first) = receiver.recv() {
        let effort = receiver.try_iter().fold(first, Effort::max);
        // A failure, because of a full disk or of readers, is retried after the next writes.
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

/// Runs a checkpoint and returns the number of pages in the log that were not moved before, or all if the log is
/// still in use.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<u64> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        Ok(u64::try_from(row.get::<_, i64>(1)?).unwrap_or_default())
    })
}
