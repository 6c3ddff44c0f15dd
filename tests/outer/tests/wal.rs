//! Every byte prefix of the database's write-ahead log, up to 64 KB. The store has to open with all complete
//! commits before the cut.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use brigade::Store;
use brigade::core::{CallId, Event, Record, SessionId};
use brigade::store::sqlite::SqliteStore;
use brigade::store::{Append, Expect, Owner};

struct WalFixture {
    database: Vec<u8>,
    log: Vec<u8>,
    /// The length of the log after each commit, and the number of events at that time.
    ends: Vec<(usize, usize)>,
    records: Vec<Record>,
}

fn db_path(folder: &Path, suffix: &str) -> PathBuf {
    folder.join(format!("sessions.db{suffix}"))
}

async fn write_log() -> WalFixture {
    let folder = tempfile::tempdir().unwrap();
    let session = SessionId::root(1);
    let store = SqliteStore::open(&db_path(folder.path(), "")).unwrap();
    let lease = store.lease(&session, &Owner::this_process(), 1).await.unwrap();
    drop(store);
    let store = SqliteStore::open(&db_path(folder.path(), "")).unwrap();
    let (mut ends, mut length) = (Vec::new(), 0);
    for commit in 0..3u64 {
        let said =
            |index| Event::Said { call: CallId { turn: 1, index }, text: format!("{commit} {index}").into() };
        let events: Vec<Event> = (0..3).map(said).collect();
        let (expect, lease) = (Expect::Length(length), Some(lease.clone()));
        length += 3;
        let append = Append {
            session: session.clone(),
            expect,
            events: events.into(),
            blobs: Vec::new(),
            lease,
            at: 1,
        };
        store.append(append).await.unwrap();
        let log = std::fs::metadata(db_path(folder.path(), "-wal")).unwrap().len();
        ends.push((log as usize, length as usize));
    }
    WalFixture {
        database: std::fs::read(db_path(folder.path(), "")).unwrap(),
        log: std::fs::read(db_path(folder.path(), "-wal")).unwrap(),
        ends,
        records: store.read(&session, 0).await.unwrap(),
    }
}

async fn cut_everywhere(start: usize) {
    let fixture = write_log().await;
    assert!((20_000..=64 * 1024).contains(&fixture.log.len()), "{}", fixture.log.len());
    // In memory if possible, because thousands of stores are opened and reading them needs no real disk.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
    for cut in (start..=fixture.log.len()).step_by(2) {
        let _ = std::fs::remove_file(db_path(folder.path(), "-shm"));
        std::fs::write(db_path(folder.path(), ""), &fixture.database).unwrap();
        std::fs::write(db_path(folder.path(), "-wal"), &fixture.log[..cut]).unwrap();
        let store = SqliteStore::open(&db_path(folder.path(), "")).unwrap();
        let (found, fault) = store.read_prefix(&SessionId::root(1)).await.unwrap();
        let whole = fixture.ends.iter().rev().find(|(end, _)| *end <= cut).map_or(0, |(_, facts)| *facts);
        assert_eq!(fault, None, "cut at {cut}");
        assert_eq!(found, fixture.records[..whole], "cut at {cut}");
    }
}

#[tokio::test]
async fn log_cut_at_any_even_byte_keeps_all_whole_commits() {
    cut_everywhere(0).await;
}

#[tokio::test]
async fn log_cut_at_any_odd_byte_keeps_all_whole_commits() {
    cut_everywhere(1).await;
}
