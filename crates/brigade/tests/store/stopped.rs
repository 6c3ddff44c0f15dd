//! Processes that are stopped in the middle of a commit, and read-only file systems.

use brigade_core::Cursor;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use brigade::store::{BlockerState, SqliteStore, Store, StoreError};
use rusqlite::Connection;

use crate::store::support::*;

const PLACE: &str = "BRIGADE_TEST_STOPPED_PLACE";
const HOLDS: &str = "BRIGADE_TEST_STOPPED_HOLDS";

/// A process that is stopped while it holds locks of a store. It is killed on drop.
struct Stopped(Child);

impl Stopped {
    /// Starts the process: `both` holds the lock file and the write lock of the database as a commit does,
    /// `database` only the latter, as other programs do.
    #[expect(clippy::disallowed_methods, reason = "the test starts itself again as the other process")]
    fn start(place: &Path, holds: &str) -> Stopped {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::stopped::holder", "--nocapture"])
            .env(PLACE, place)
            .env(HOLDS, holds)
            .stdout(Stdio::null())
            // The kernel resumes stopped processes of a group whose parents are gone.
            .process_group(0)
            .spawn()
            .unwrap();
        let stopped = Stopped(child);
        while stopped.state() != Some('T') {
            std::thread::sleep(Duration::from_millis(5));
        }
        stopped
    }

    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Worker process. Without its environment variables this test does nothing.
#[test]
#[expect(clippy::disallowed_methods, reason = "the parent says by the environment what to do")]
fn holder() {
    let (Ok(place), Ok(holds)) = (std::env::var(PLACE), std::env::var(HOLDS)) else { return };
    let lock = std::fs::File::open(format!("{place}.lock")).unwrap();
    if holds == "both" {
        lock.lock().unwrap();
    }
    let connection = Connection::open(&place).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE; UPDATE leases SET renewed = renewed").unwrap();
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::STOP).unwrap();
    // The signal may reach another thread first.
    std::thread::sleep(Duration::from_millis(300));
}

/// A store with one session.
async fn store_with_a_session() -> tempfile::TempDir {
    let folder = folder();
    let store = open(&folder);
    begin_session(&store, &root(1), 3).await;
    folder
}

#[tokio::test]
async fn reading_while_a_writer_is_stopped_does_not_wait() {
    let folder = store_with_a_session().await;
    let _stopped = Stopped::start(&database(folder.path()), "both");
    let began = Instant::now();
    for store in [
        SqliteStore::open_read_only(&database(folder.path())).unwrap().unwrap(),
        SqliteStore::open(&database(folder.path())).unwrap(),
    ] {
        assert_eq!(store.roots().await.unwrap().len(), 1);
        assert_eq!(store.read(&root(1), 0).await.unwrap().len(), 3);
        assert!(brigade::store::export(&store, &root(1)).await.unwrap().contains("fact 2"));
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn writing_while_a_writer_is_stopped_names_the_process_and_the_fix() {
    // Each waits as long as a write may take.
    futures::future::join_all(["both", "database"].map(async |holds| {
        let folder = store_with_a_session().await;
        let stopped = Stopped::start(&database(folder.path()), holds);
        let store = open(&folder);
        let began = Instant::now();
        let word = || external_append(&root(1), vec![heard_event("hello")]);
        // The append queued behind it fails with it.
        let (first, second) = tokio::join!(store.append(word()), store.append(word()));
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        assert_eq!(first, second);
        let error = first.unwrap_err();
        let pid = stopped.0.id();
        let StoreError::Locked { by: Some(by), .. } = &error else { panic!("{error:?}") };
        assert_eq!((by.pid, by.state), (pid, BlockerState::Stopped));
        let text = error.to_string();
        let expected = format!("process {pid} (stopped) holds the lock");
        assert!(text.starts_with("cannot write to the store ") && text.ends_with(&expected), "{text}");
        // The fix that the command suggests works: the process continues and ends.
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        store.append(word()).await.unwrap();
    }))
    .await;
}

#[tokio::test]
async fn opening_while_a_writer_is_stopped_does_not_wait_for_a_waiter_either() {
    let folder = store_with_a_session().await;
    let waiting = std::fs::File::open(format!("{}.waiting", database(folder.path()).display())).unwrap();
    waiting.lock().unwrap();
    let store = open(&folder);
    let began = Instant::now();
    for _ in 0..20 {
        store.append(external_append(&root(1), vec![heard_event("hello")])).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn store_opened_read_only_refuses_writes() {
    let folder = store_with_a_session().await;
    let store = SqliteStore::open_read_only(&database(folder.path())).unwrap().unwrap();
    let refused = store.append(external_append(&root(1), vec![heard_event("hello")])).await.unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly { .. }), "{refused:?}");
    assert!(matches!(store.remove(&root(1)).await, Err(StoreError::ReadOnly { .. })));
    let missing = SqliteStore::open_read_only(&folder.path().join("none.db")).unwrap_err();
    assert!(matches!(missing, StoreError::ReadOnly { .. }), "{missing:?}");
    assert!(!folder.path().join("none.db").exists());
    std::fs::write(folder.path().join("empty.db"), "").unwrap();
    assert!(SqliteStore::open_read_only(&folder.path().join("empty.db")).unwrap().is_none());
}

#[tokio::test]
async fn work_between_commits_finds_the_lock_free() {
    let folder = store_with_a_session().await;
    let store = open(&folder);
    let file = std::fs::File::open(format!("{}.lock", database(folder.path()).display())).unwrap();
    for _ in 0..60 {
        // The results are not awaited, so the writer is busy meanwhile.
        let words = (0..8).map(|_| store.append(external_append(&root(1), vec![heard_event("hello")])));
        let words: Vec<_> = words.collect();
        for _ in 0..4 {
            store.between_commits(&mut || {
                assert!(file.try_lock().is_ok(), "a commit is in progress");
                file.unlock().unwrap();
            });
        }
        futures::future::join_all(words).await.into_iter().for_each(|said| assert!(said.is_ok()));
    }
    assert_eq!(store.external_events(&root(1), Cursor::START).await.unwrap().len(), 480);
}

#[test]
fn open_read_only_during_creation_finds_nothing_or_the_whole_store() {
    for _ in 0..200 {
        let folder = folder();
        let place = database(folder.path());
        std::fs::write(&place, "").unwrap();
        std::thread::scope(|scope| {
            let created = scope.spawn(|| SqliteStore::open(&place).unwrap());
            while SqliteStore::open_read_only(&place).unwrap().is_none() {}
            drop(created.join().unwrap());
        });
    }
}
