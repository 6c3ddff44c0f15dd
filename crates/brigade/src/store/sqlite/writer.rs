//! Writer thread, shared by all callers in this process.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::checkpoint::Checkpointer;
use super::lock::{CommitGate, Lock, LockWait};
use super::schema::store_error;
pub(super) use super::write_tx::WriteTx;
use super::write_tx::{AppendJob, LeaseTimes, WriteCache};
use crate::store::{Appended, Followers, StoreError};

/// Time during which a batch accepts more jobs. With the commit it takes about 5 ms on a typical disk.
const BATCH_WINDOW: Duration = Duration::from_millis(2);
/// Pause of a busy writer before the next transaction. A commit costs far more than its jobs, so it pays to
/// collect them.
const GATHER_PAUSE: Duration = Duration::from_micros(800);
/// Number of jobs in a transaction from which the writer counts as busy.
const BUSY_JOBS: usize = 4;
/// Interval at which an idle writer checks for commits of other processes, while a caller waits for changes.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Number of attempts to commit while another program holds the database, each after a wait.
const MAX_COMMIT_TRIES: u32 = 60;

/// Error of a job in a transaction.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The transaction cannot continue.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// The job is refused and has written nothing. The transaction continues.
    #[error(transparent)]
    Refused(#[from] StoreError),
}

/// Job for the writer. It may run again if its transaction failed.
pub(super) trait Job: Send {
    /// Runs the job and keeps the result.
    fn run(&mut self, tx: &mut WriteTx<'_>) -> rusqlite::Result<()>;
    /// Sends the durable result or the error to the caller.
    fn answer(self: Box<Self>, commit: Result<(), StoreError>);
}

/// A closure as a job.
pub(super) struct ClosureJob<T, F> {
    work: F,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> ClosureJob<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut WriteTx<'_>) -> Result<T, WriteError> + Send + 'static,
{
    /// Creates the job and the receiver of its result.
    pub(super) fn job(work: F) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(ClosureJob { work, result: None, reply }), answer)
    }
}

impl<T, F> Job for ClosureJob<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut WriteTx<'_>) -> Result<T, WriteError> + Send + 'static,
{
    fn run(&mut self, tx: &mut WriteTx<'_>) -> rusqlite::Result<()> {
        run_work(&mut self.result, || (self.work)(tx))
    }

    fn answer(self: Box<Self>, commit: Result<(), StoreError>) {
        // The caller may have gone away.
        let _ = self.reply.send(durable_result(self.result, commit));
    }
}

/// An append as a job. Followers get its events once they are durable.
pub(super) struct AppendTask {
    job: AppendJob,
    followers: Followers,
    result: Option<Result<Appended, StoreError>>,
    reply: oneshot::Sender<Result<Appended, StoreError>>,
}

impl AppendTask {
    /// Creates the job and the receiver of its result.
    pub(super) fn job(
        job: AppendJob,
        followers: Followers,
    ) -> (Box<dyn Job>, oneshot::Receiver<Result<Appended, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(AppendTask { job, followers, result: None, reply }), answer)
    }
}

impl Job for AppendTask {
    fn run(&mut self, tx: &mut WriteTx<'_>) -> rusqlite::Result<()> {
        run_work(&mut self.result, || tx.append(&self.job))
    }

    fn answer(self: Box<Self>, commit: Result<(), StoreError>) {
        let result = durable_result(self.result, commit);
        if let Ok(appended) = result {
            self.followers.appended(&self.job.session, appended, self.job.at, &self.job.events);
        }
        // The caller may have gone away.
        let _ = self.reply.send(result);
    }
}

fn run_work<T>(
    result: &mut Option<Result<T, StoreError>>,
    work: impl FnOnce() -> Result<T, WriteError>,
) -> rusqlite::Result<()> {
    *result = match work() {
        Ok(done) => Some(Ok(done)),
        Err(WriteError::Refused(error)) => Some(Err(error)),
        Err(WriteError::Sql(error)) => return Err(error),
    };
    Ok(())
}

fn durable_result<T>(
    result: Option<Result<T, StoreError>>,
    commit: Result<(), StoreError>,
) -> Result<T, StoreError> {
    commit.and_then(|()| result.unwrap_or(Err(StoreError::Closed)))
}

/// Message to the writer.
pub(super) enum Message {
    Job(Box<dyn Job>),
    /// A caller waits for changes, so commits of other processes have to be detected.
    Watched,
}

/// Receivers of changes that appends of this process do not account for.
pub(super) struct ChangeSignals {
    pub(super) changes: watch::Sender<u64>,
    pub(super) followers: Followers,
}

impl ChangeSignals {
    fn notify(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// State of the writer thread.
pub(super) struct Writer {
    place: Arc<Path>,
    connection: Connection,
    lock: Lock,
    queue: mpsc::Receiver<Message>,
    signals: ChangeSignals,
    checkpointer: Checkpointer,
    times: LeaseTimes,
    cache: WriteCache,
    /// Whether the last transaction had many jobs.
    is_busy: bool,
    /// Last `data_version` seen. SQLite changes it only for commits of other connections. The writer checks it
    /// itself, so that its own commits trigger no notification.
    last_data_version: i64,
}

impl Writer {
    pub(super) fn new(
        place: Arc<Path>,
        connection: Connection,
        queue: mpsc::Receiver<Message>,
        signals: ChangeSignals,
        checkpointer: Checkpointer,
        gate: Arc<CommitGate>,
    ) -> Result<Writer, StoreError> {
        let lock = Lock::open(&place, gate)?;
        let last_data_version = data_version(&connection).map_err(|error| store_error(&place, error))?;
        let (times, cache) = (LeaseTimes::default(), WriteCache::default());
        Ok(Writer {
            place,
            connection,
            lock,
            queue,
            signals,
            checkpointer,
            times,
            cache,
            is_busy: false,
            last_data_version,
        })
    }

    /// Runs until the store is dropped and the queue is empty.
    pub(super) fn run(mut self) {
        loop {
            match self.next_message() {
                Ok(Message::Job(job)) => {
                    if self.is_busy {
                        std::thread::sleep(GATHER_PAUSE);
                    }
                    self.batch(job);
                }
                Ok(Message::Watched) | Err(mpsc::RecvTimeoutError::Timeout) => detect_foreign_commit(
                    &self.connection,
                    &mut self.last_data_version,
                    &mut self.cache,
                    &self.signals,
                ),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Waits for a message. Returns after `POLL_INTERVAL` only if a caller waits for changes.
    fn next_message(&self) -> Result<Message, mpsc::RecvTimeoutError> {
        if self.signals.changes.receiver_count() > 0 {
            return self.queue.recv_timeout(POLL_INTERVAL);
        }
        self.queue.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
    }

    /// Runs one transaction for the queued jobs. If it fails, each job gets its own transaction, so that a job
    /// that cannot succeed, for example on a full disk, fails alone.
    fn batch(&mut self, first: Box<dyn Job>) {
        let mut jobs = vec![first];
        let result = self.transact(&mut jobs, Intake::Queue);
        self.is_busy = jobs.len() >= BUSY_JOBS;
        match result {
            Ok(()) => jobs.into_iter().for_each(|job| job.answer(Ok(()))),
            // While another process holds the lock, no job can succeed, alone or together.
            Err(error @ StoreError::Locked { .. }) => {
                jobs.into_iter().for_each(|job| job.answer(Err(error.clone())));
            }
            Err(error) if jobs.len() == 1 => jobs.into_iter().for_each(|job| job.answer(Err(error.clone()))),
            Err(_) => {
                for job in jobs {
                    let mut single = vec![job];
                    let result = self.transact(&mut single, Intake::Closed);
                    single.into_iter().for_each(|job| job.answer(result.clone()));
                }
            }
        }
        detect_foreign_commit(&self.connection, &mut self.last_data_version, &mut self.cache, &self.signals);
        self.lock.yield_to_waiter();
    }

    fn transact(&mut self, jobs: &mut Vec<Box<dyn Job>>, intake: Intake) -> Result<(), StoreError> {
        let _guard = self.lock.acquire()?;
        begin(&self.place, &self.connection)?;
        detect_foreign_commit(&self.connection, &mut self.last_data_version, &mut self.cache, &self.signals);
        let result = run_jobs(&self.connection, &mut self.times, &mut self.cache, jobs, intake, &self.queue)
            .and_then(|tx| commit(&self.connection).map(|()| tx));
        match result {
            Ok(effects) => {
                self.checkpointer.wrote(effects.bytes);
                if effects.removed {
                    self.checkpointer.removed();
                }
                if effects.restored {
                    self.signals.followers.changed();
                }
                if effects.must_notify {
                    self.signals.notify();
                }
                Ok(())
            }
            Err(error) => {
                self.cache = WriteCache::default();
                if !self.connection.is_autocommit() {
                    // If this fails too, the next BEGIN fails and reports the cause.
                    let _ = self.connection.execute_batch("ROLLBACK");
                }
                Err(store_error(&self.place, error))
            }
        }
    }
}

/// Whether a transaction accepts more jobs than it began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    Queue,
    Closed,
}

/// Effects of a transaction that others have to know.
#[derive(Debug, Default)]
pub(super) struct CommitEffects {
    pub(super) bytes: u64,
    pub(super) must_notify: bool,
    pub(super) removed: bool,
    pub(super) restored: bool,
}

/// Runs the jobs, and those that arrive meanwhile, within the batch window.
fn run_jobs(
    connection: &Connection,
    times: &mut LeaseTimes,
    cache: &mut WriteCache,
    jobs: &mut Vec<Box<dyn Job>>,
    intake: Intake,
    queue: &mpsc::Receiver<Message>,
) -> rusqlite::Result<CommitEffects> {
    let started = Instant::now();
    let mut tx = WriteTx::open(connection, times, cache)?;
    let mut next = 0;
    loop {
        while let Some(job) = jobs.get_mut(next) {
            job.run(&mut tx)?;
            next += 1;
        }
        if intake == Intake::Closed || started.elapsed() >= BATCH_WINDOW {
            return Ok(tx.done());
        }
        match queue.try_recv() {
            Ok(Message::Job(job)) => jobs.push(job),
            Ok(Message::Watched) => {}
            Err(_) => return Ok(tx.done()),
        }
    }
}

/// Begins a transaction. Only other programs can make it wait, because the writers of this one are serialized by
/// the lock file.
fn begin(place: &Path, connection: &Connection) -> Result<(), StoreError> {
    let mut wait = LockWait::begin();
    loop {
        let begun = connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([]));
        let Err(error) = begun else { return Ok(()) };
        let is_busy = is_busy(&error);
        let error = store_error(place, error);
        let by = if let StoreError::Locked { by, .. } = &error { *by } else { None };
        if !is_busy || wait.has_timed_out(by) {
            return Err(error);
        }
    }
}

fn commit(connection: &Connection) -> rusqlite::Result<()> {
    let mut tries = 1;
    loop {
        match connection.prepare_cached("COMMIT")?.execute([]) {
            Err(error) if tries < MAX_COMMIT_TRIES && is_busy(&error) => tries += 1,
            result => return result.map(|_| ()),
        }
    }
}

/// Whether waiting longer may help.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed))
}

/// If another process has committed, notifies waiters and clears the cache.
fn detect_foreign_commit(
    connection: &Connection,
    last_data_version: &mut i64,
    cache: &mut WriteCache,
    signals: &ChangeSignals,
) {
    let version = data_version(connection).ok();
    if version == Some(*last_data_version) {
        return;
    }
    *cache = WriteCache::default();
    if let Some(version) = version {
        *last_data_version = version;
        signals.followers.changed();
        signals.notify();
    }
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}
