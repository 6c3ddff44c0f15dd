//! Store in one SQLite file: any number of processes, one writer at a time, durable when an append returns.

mod access;
mod batch;
mod checkpoint;
mod edits;
mod health_check;
mod imported;
mod lock;
mod reader;
mod remove;
mod restore;
mod schema;
mod totals;
mod verify;
mod write_tx;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use brigade_core::{Cursor, Hash, Record, SessionId};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::sync::{oneshot, watch};

use access::ReadAccess;
use brigade_base::store::{
    Append, Appended, Followers, Lease, Owner, Prefix, ReturnedChild, RootSummary, Store, StoreError,
    TreeTotals,
};
use checkpoint::Checkpointer;
pub use health_check::{HealthCheck, Integrity};
use lock::CommitGate;
use reader::Reader;
use schema::StoreLimits;
use write_tx::AppendJob;
use writer::{AppendTask, ChangeSignals, ClosureJob, Job, Message, WriteTx, Writer};

/// Number of a position. Positions increase over the whole file.
type Pos = u64;

/// Maximum wait for a commit of this process before the process is stopped anyway.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// All session logs in one file.
///
/// Callers encode their events. One thread writes, and combines queued jobs into one transaction. Readers use
/// their own connections and never wait for a writer. Dropping the store writes the queue and ends the threads.
#[derive(Debug)]
pub struct SqliteStore {
    place: Arc<Path>,
    reader: Arc<Reader>,
    /// None in a read-only store, and while the store is dropped. Closing the channel ends the writer.
    queue: Option<mpsc::Sender<Message>>,
    writer: Option<JoinHandle<()>>,
    gate: Arc<CommitGate>,
    changes: watch::Sender<u64>,
    followers: Followers,
}

impl SqliteStore {
    /// Opens a store, and creates it if it does not exist. The directory and the file are accessible only to the
    /// owner.
    pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_limited(path, StoreLimits::default())
    }

    /// Opens a store that does not grow beyond `pages` pages, which have 8 KB in a new file. Beyond that, writes
    /// fail with [`StoreError::Full`].
    pub fn open_with_max_pages(path: &Path, pages: u32) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_limited(path, StoreLimits { pages: Some(pages) })
    }

    fn open_limited(path: &Path, limits: StoreLimits) -> Result<SqliteStore, StoreError> {
        let place: Arc<Path> = schema::absolute(path).into();
        let connection = schema::open_writer(&place, limits)?;
        let gate = Arc::new(CommitGate::default());
        let checkpointer = Checkpointer::start(&place, gate.clone())?;
        let (sender, queue) = mpsc::channel();
        let (changes, followers) = (watch::Sender::new(0), Followers::default());
        let signals = ChangeSignals { changes: changes.clone(), followers: followers.clone() };
        let writer = Writer::new(place.clone(), connection, queue, signals, checkpointer, gate.clone())?;
        let thread = std::thread::Builder::new()
            .name("brigade-store".into())
            .spawn(move || writer.run())
            .map_err(|error| schema::io_error(&place, &error))?;
        let reader = Arc::new(Reader::new(place.clone(), ReadAccess::Shared));
        let (queue, writer) = (Some(sender), Some(thread));
        Ok(SqliteStore { place, reader, queue, writer, gate, changes, followers })
    }

    /// Opens an existing store read-only. It takes no lock that a writer needs, works on read-only file systems
    /// and files, and refuses all writes. Its followers get what was written before, and no later changes. Returns none
    /// if nothing was written yet, for example while another process creates the store.
    pub fn open_read_only(path: &Path) -> Result<Option<SqliteStore>, StoreError> {
        let place: Arc<Path> = schema::absolute(path).into();
        schema::check_file(&place).map_err(|error| schema::io_error(&place, &error))?;
        let (access, format) = ReadAccess::find(&place)?;
        if format.is_none() {
            return Ok(None);
        }
        let reader = Arc::new(Reader::new(place.clone(), access));
        // A read-only store does not watch for foreign writes, so its subscribers are never notified.
        let (changes, followers) = (watch::Sender::new(0), Followers::default());
        let (queue, writer) = (None, None);
        Ok(Some(SqliteStore { place, reader, queue, writer, gate: Arc::default(), changes, followers }))
    }

    /// Returns the path of the store.
    pub fn path(&self) -> PathBuf {
        self.place.to_path_buf()
    }

    /// Runs a job in the writer's next transaction and waits until it is durable.
    fn write<T, F>(&self, work: F) -> BoxFuture<'static, Result<T, StoreError>>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTx<'_>) -> Result<T, writer::WriteError> + Send + 'static,
    {
        self.enqueue(ClosureJob::job(work))
    }

    fn enqueue<T: Send + 'static>(
        &self,
        (job, answer): (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>),
    ) -> BoxFuture<'static, Result<T, StoreError>> {
        let Some(queue) = &self.queue else {
            let cause = "it was opened read-only".into();
            let place = self.place.display().to_string();
            return Box::pin(ready(Err(StoreError::ReadOnly { place, cause })));
        };
        // If the writer is gone, the job is dropped together with its reply channel, which reports the failure.
        let _ = queue.send(Message::Job(job));
        Box::pin(answer.map(|answer| answer.unwrap_or(Err(StoreError::Closed))))
    }

    /// Reads on a pooled connection, outside the async worker threads.
    async fn read_with<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&reader::Snapshot<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let reader = self.reader.clone();
        let task = tokio::task::spawn_blocking(move || reader.with(work));
        task.await.map_err(|_| StoreError::Closed)?
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.writer.take() {
            // A writer that panicked has already failed its callers. There is nothing left to report.
            let _ = thread.join();
        }
    }
}

impl Store for SqliteStore {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        match AppendJob::new(&self.place, append) {
            Ok(job) => self.enqueue(AppendTask::job(job, self.followers.clone())),
            Err(refused) => Box::pin(ready(Err(refused))),
        }
    }

    fn read(&self, session: &SessionId, from: u64) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        let session = session.clone();
        Box::pin(self.read_with(move |snapshot| match snapshot.session(&session, from)? {
            (records, None) => Ok(records),
            (_, Some(fault)) => Err(fault),
        }))
    }

    fn read_prefix(&self, session: &SessionId) -> BoxFuture<'_, Result<Prefix, StoreError>> {
        let session = session.clone();
        Box::pin(self.read_with(move |snapshot| snapshot.session(&session, 0)))
    }

    fn tail(
        &self,
        root: &SessionId,
        after: Cursor,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, StoreError>> {
        let root = root.clone();
        Box::pin(self.read_with(move |snapshot| snapshot.tail(&root, after.number(), limit)))
    }

    fn verify(
        &self,
        root: &SessionId,
        children: Vec<ReturnedChild>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let root = root.clone();
        Box::pin(self.read_with(move |snapshot| snapshot.verify(&root, &children)))
    }

    fn external_events(
        &self,
        root: &SessionId,
        after: Cursor,
    ) -> BoxFuture<'_, Result<Vec<(SessionId, Cursor)>, StoreError>> {
        let root = root.clone();
        Box::pin(self.read_with(move |snapshot| snapshot.external_events(&root, after.number())))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        let changes = self.changes.subscribe();
        if let Some(queue) = &self.queue {
            // If the writer is gone, nothing changes any more.
            let _ = queue.send(Message::Watched);
        }
        changes
    }

    fn followers(&self) -> &Followers {
        &self.followers
    }

    fn between_commits(&self, work: &mut dyn FnMut()) {
        self.gate.close_while(COMMIT_TIMEOUT, work);
    }

    fn lease(&self, root: &SessionId, owner: &Owner, at: u64) -> BoxFuture<'_, Result<Lease, StoreError>> {
        let (root, owner) = (root.clone(), owner.clone());
        self.write(move |tx| tx.lease(&root, &owner, at))
    }

    fn renew(&self, lease: &Lease, at: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        let lease = lease.clone();
        self.write(move |tx| tx.renew(&lease, at))
    }

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<(), StoreError>> {
        let lease = lease.clone();
        self.write(move |tx| tx.release(&lease))
    }

    fn runner(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Owner>, StoreError>> {
        let root = root.clone();
        Box::pin(self.read_with(move |snapshot| snapshot.runner(&root)))
    }

    fn roots(&self) -> BoxFuture<'_, Result<Vec<RootSummary>, StoreError>> {
        Box::pin(self.read_with(move |snapshot| snapshot.roots()))
    }

    fn totals(&self, roots: Vec<SessionId>) -> BoxFuture<'_, Result<Vec<TreeTotals>, StoreError>> {
        Box::pin(self.read_with(move |snapshot| Ok(roots.iter().map(|root| snapshot.totals(root)).collect())))
    }

    fn sessions(&self, root: &SessionId) -> BoxFuture<'_, Result<Vec<SessionId>, StoreError>> {
        let root = root.clone();
        Box::pin(self.read_with(move |snapshot| snapshot.sessions(&root)))
    }

    fn remove(&self, root: &SessionId) -> BoxFuture<'_, Result<(), StoreError>> {
        let root = root.clone();
        self.write(move |tx| tx.remove(&root))
    }

    fn blob(&self, hash: Hash) -> BoxFuture<'_, Result<Option<Arc<str>>, StoreError>> {
        Box::pin(self.read_with(move |snapshot| snapshot.blob(hash)))
    }

    fn has_edit(&self, content: Hash) -> BoxFuture<'_, Result<bool, StoreError>> {
        Box::pin(async move {
            let search = self.read_with(move |snapshot| snapshot.find_edit(content)).await?;
            if search.is_slow && self.queue.is_some() {
                self.write(|tx| Ok(tx.index_edits()?)).await?;
            }
            Ok(search.is_found)
        })
    }

    fn restore(&self, records: Vec<Record>, blobs: Vec<Arc<str>>) -> BoxFuture<'_, Result<u64, StoreError>> {
        match restore::RestoreJob::new(records, blobs) {
            Ok(job) => self.write(move |tx| tx.restore(&job)),
            Err(error) => Box::pin(ready(Err(schema::broken(&self.place, error.to_string())))),
        }
    }

    fn imported(&self, root: &SessionId) -> BoxFuture<'_, Result<Option<Cursor>, StoreError>> {
        let root = root.clone();
        Box::pin(self.read_with(move |snapshot| Ok(snapshot.imported(&root)?.map(Cursor::new))))
    }
}
