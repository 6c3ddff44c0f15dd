//! Truncated, damaged and foreign files: nothing panics, and no altered record is accepted.

use std::fs;
use std::path::Path;

use brigade::store::{SqliteStore, Store, StoreError};
use brigade_core::{Cursor, Record};
use rusqlite::{Connection, params};

use crate::effort::some_or_all;
use crate::store::support::*;

/// Runs `statement` on the file of a store with `count` events and opens it again.
async fn altered_store(count: u64, statement: &str) -> (tempfile::TempDir, SqliteStore) {
    let folder = folder();
    let store = open(&folder);
    begin_session(&store, &root(1), count).await;
    begin_session(&store, &root(2), 3).await;
    drop(store);
    let connection = Connection::open(database(folder.path())).unwrap();
    assert!(connection.execute(statement, []).unwrap() > 0);
    drop(connection);
    let store = open(&folder);
    (folder, store)
}

/// Error of reading the session, after checking that nothing else is affected.
async fn fault(store: &SqliteStore, whole: usize) -> StoreError {
    let (prefix, fault) = store.read_prefix(&root(1)).await.unwrap();
    let fault = fault.unwrap();
    assert_eq!(prefix.len(), whole);
    assert_eq!(store.read(&root(1), 0).await.unwrap_err(), fault);
    let tail = store.tail(&root(1), Cursor::START, 99).await;
    if whole == 0 {
        assert_eq!(tail.unwrap_err(), fault);
    } else {
        let tail = tail.unwrap();
        assert_eq!(tail, prefix);
        let after = tail.last().unwrap().pos;
        assert_eq!(store.tail(&root(1), after, 99).await.unwrap_err(), fault);
    }
    assert_eq!(store.read(&root(2), 0).await.unwrap().len(), 3);
    assert_eq!(store.roots().await.unwrap().len(), 2, "one bad tree does not hide the others");
    fault
}

#[tokio::test]
async fn flipped_bit_is_named() {
    let flip = "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'fact 4', 'fact 5') AS BLOB)
                WHERE pos IN (SELECT pos FROM events WHERE session LIKE 'aaaaaaaaaaaaaaaaaaaaaaaaab' AND seq = 4)";
    let (_folder, store) = altered_store(9, flip).await;
    let fault = fault(&store, 4).await;
    assert!(
        matches!(&fault, StoreError::Damaged { session, seq: 4, .. } if *session == root(1)),
        "{fault:?}"
    );
}

#[tokio::test]
async fn every_column_but_the_position_is_under_the_checksum() {
    for column in ["at = at + 1", "v = 0", "outside = 1", "sum = zeroblob(8)", "body = zeroblob(3)"] {
        let statement = format!("UPDATE events SET {column} WHERE session = '{}' AND seq = 2", root(1));
        let (_folder, store) = altered_store(4, &statement).await;
        let fault = fault(&store, 2).await;
        assert!(matches!(fault, StoreError::Damaged { seq: 2, .. }), "{column}: {fault:?}");
    }
    // A store may assign positions again, for example to order each tree by itself.
    let moved = format!("UPDATE events SET pos = 1000 WHERE session = '{}' AND seq = 3", root(1));
    let (_folder, store) = altered_store(4, &moved).await;
    let records = store.read(&root(1), 0).await.unwrap();
    assert_eq!((records.len(), records[3].pos), (4, Cursor::new(1000)));
}

#[tokio::test]
async fn rows_with_the_checksum_of_earlier_versions_are_read_and_still_protected() {
    let folder = folder();
    let store = open(&folder);
    begin_session(&store, &root(1), 4).await;
    let whole = store.read(&root(1), 0).await.unwrap();
    drop(store);
    let connection = Connection::open(database(folder.path())).unwrap();
    cover_positions(&connection);
    assert_eq!(open(&folder).read(&root(1), 0).await.unwrap(), whole);
    connection.execute("UPDATE events SET at = at + 1 WHERE seq = 2", []).unwrap();
    let fault = open(&folder).read(&root(1), 0).await.unwrap_err();
    assert!(matches!(fault, StoreError::Damaged { seq: 2, .. }), "{fault:?}");
}

#[tokio::test]
async fn missing_record_is_reported() {
    for seq in [0, 1, 5] {
        let delete = format!("DELETE FROM events WHERE session = '{}' AND seq = {seq}", root(1));
        let (_folder, store) = altered_store(9, &delete).await;
        assert_eq!(fault_of_hole(&store, seq).await, StoreError::MissingRecord { session: root(1), seq });
        if seq > 0 {
            assert!(store.read(&root(1), seq + 1).await.is_ok(), "what is behind the hole can still be read");
        }
    }
}

/// Runs `statement` on the file of a session with one event, then five that were appended together, then one
/// more.
async fn altered_batch_store(statement: &str) -> (tempfile::TempDir, SqliteStore) {
    let folder = folder();
    let store = open(&folder);
    let lease = begin_session(&store, &root(1), 1).await;
    let facts = (1..6).map(|n| said_event(format!("fact {n}"))).collect();
    store.append(leased_append(&lease, &root(1), 1, facts)).await.unwrap();
    append_events(&store, &lease, &root(1), 6, 1).await.unwrap();
    begin_session(&store, &root(2), 3).await;
    drop(store);
    let connection = Connection::open(database(folder.path())).unwrap();
    assert_eq!(connection.execute(statement, []).unwrap(), 1);
    drop(connection);
    let store = open(&folder);
    (folder, store)
}

#[tokio::test]
async fn damage_affects_the_whole_batch() {
    let flip = format!(
        "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'fact 4', 'fact 7') AS BLOB)
         WHERE session = '{}' AND seq = 5",
        root(1)
    );
    let fewer = format!(
        "UPDATE events SET body = CAST(substr(CAST(body AS TEXT), instr(CAST(body AS TEXT), char(10)) + 1) AS BLOB)
         WHERE session = '{}' AND seq = 5",
        root(1)
    );
    let moved = format!("UPDATE events SET seq = 4 WHERE session = '{}' AND seq = 5", root(1));
    for statement in [&flip, &fewer, &moved] {
        let (_folder, store) = altered_batch_store(statement).await;
        let fault = fault(&store, 1).await;
        assert!(matches!(fault, StoreError::Damaged { seq: 1, .. }), "{statement}: {fault:?}");
    }
    let (_folder, store) = altered_batch_store(&flip).await;
    let error = store.read(&root(1), 3).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged { seq: 1, .. }), "what is before it is whole: {error:?}");
    assert_eq!(store.read(&root(1), 6).await.unwrap().len(), 1, "what is behind it can still be read");

    let delete = format!("DELETE FROM events WHERE session = '{}' AND seq = 5", root(1));
    let (_folder, store) = altered_batch_store(&delete).await;
    let hole = fault_of_hole(&store, 1).await;
    assert_eq!(hole, StoreError::MissingRecord { session: root(1), seq: 1 });
    assert_eq!(store.tail(&root(1), Cursor::new(1), 99).await.unwrap_err(), hole);
    assert_eq!(
        store.read(&root(1), 3).await.unwrap_err(),
        StoreError::MissingRecord { session: root(1), seq: 3 },
        "what was asked for is missing"
    );
}

#[tokio::test]
async fn lost_text_hides_no_other_event_of_its_batch() {
    let folder = folder();
    let store = open(&folder);
    let lease = begin_session(&store, &root(1), 1).await;
    let facts =
        vec![said_event("one"), said_event("long ".repeat(5_000)), said_event("three"), said_event("four")];
    store.append(leased_append(&lease, &root(1), 1, facts)).await.unwrap();
    let whole = store.read(&root(1), 0).await.unwrap();
    drop(store);
    assert_eq!(
        Connection::open(database(folder.path())).unwrap().execute("DELETE FROM blobs", []).unwrap(),
        1
    );
    let store = open(&folder);
    let (prefix, fault) = store.read_prefix(&root(1)).await.unwrap();
    assert_eq!(prefix, whole[..2]);
    assert!(matches!(fault, Some(StoreError::Damaged { seq: 2, .. })), "{fault:?}");
    assert_eq!(store.read(&root(1), 3).await.unwrap(), whole[3..]);
    assert_eq!(store.tail(&root(1), whole[2].pos, 99).await.unwrap(), whole[3..]);
    assert_eq!(store.tail(&root(1), Cursor::START, 99).await.unwrap(), whole[..2]);
    let summary = &store.roots().await.unwrap()[0];
    assert_eq!((summary.first.as_ref(), summary.last.as_ref()), (Ok(&whole[0]), Ok(&whole[4])));
}

async fn fault_of_hole(store: &SqliteStore, seq: u64) -> StoreError {
    let (prefix, fault) = store.read_prefix(&root(1)).await.unwrap();
    assert_eq!(prefix.len() as u64, seq);
    let roots = store.roots().await.unwrap();
    let summary = roots.iter().find(|summary| summary.root == root(1)).unwrap();
    assert_eq!(summary.first.is_ok(), seq > 0);
    fault.unwrap()
}

#[tokio::test]
async fn lost_text_is_named() {
    let lose = ["DELETE FROM blobs", "UPDATE blobs SET body = body || 'x'"];
    for statement in lose {
        let folder = folder();
        let store = open(&folder);
        let lease = begin_session(&store, &root(1), 2).await;
        store
            .append(leased_append(&lease, &root(1), 2, vec![said_event("long ".repeat(5_000))]))
            .await
            .unwrap();
        drop(store);
        Connection::open(database(folder.path())).unwrap().execute(statement, []).unwrap();
        let fault = open(&folder).read(&root(1), 0).await.unwrap_err();
        assert!(
            matches!(&fault, StoreError::Damaged { seq: 2, cause, .. } if cause.contains("text")),
            "{fault:?}"
        );
    }
}

/// Error for a record with a valid checksum from a newer version.
async fn newer(body: &str, v: u64) -> StoreError {
    newer_after(2, body, v).await
}

/// Same, with `whole` events before the unknown one. Events after the second are in its row.
async fn newer_after(whole: usize, body: &str, v: u64) -> StoreError {
    let folder = folder();
    let store = open(&folder);
    begin_session(&store, &root(1), 2).await;
    drop(store);
    let (pos, seq, at) = (whole as u64 + 1, whole as u64, 5u64);
    let sum = sum_with_position(pos, seq, at, v, body.as_bytes());
    Connection::open(database(folder.path()))
        .unwrap()
        .execute(
            "INSERT INTO events (pos, session, seq, at, v, outside, body, sum) VALUES (?, ?, ?, ?, ?, 0, ?, ?)",
            params![pos, root(1).as_str(), seq, at, v, body.as_bytes(), sum],
        )
        .unwrap();
    let store = open(&folder);
    let (prefix, fault) = store.read_prefix(&root(1)).await.unwrap();
    assert_eq!(prefix.len(), whole);
    fault.unwrap()
}

#[tokio::test]
async fn newer_records_are_distinguished_from_damage() {
    let started = serde_json::to_string(&started("task", "agent", "authority")).unwrap();
    let wider = started.replacen("\"turns\":5", "\"turns\":5,\"moon\":true", 1);
    assert_ne!(wider, started);
    for (body, v, expected) in [
        (r#"{"type":"teleported","where":"moon"}"#, 1, "teleported"),
        (wider.as_str(), 1, "moon"),
        (started.as_str(), 2, "version 2"),
    ] {
        let fault = newer(body, v).await;
        assert!(
            matches!(&fault, StoreError::Newer { seq: 2, what, .. } if what.contains(expected)),
            "{fault:?}"
        );
    }
    for body in [r#"{"type":"said"}"#, "not json", r#"{"kind":"said"}"#] {
        let fault = newer(body, 1).await;
        assert!(matches!(fault, StoreError::Damaged { seq: 2, .. }), "{fault:?}");
    }
    // Events before it in the same row are read.
    let known = serde_json::to_string(&said_event("known")).unwrap();
    let fault = newer_after(3, &format!("{known}\n{{\"type\":\"teleported\"}}"), 1).await;
    assert!(matches!(&fault, StoreError::Newer { seq: 3, .. }), "{fault:?}");
    let fault = newer_after(3, &format!("{known}\n"), 1).await;
    assert!(matches!(&fault, StoreError::Damaged { seq: 3, .. }), "{fault:?}");
}

/// A store with several commits in the write-ahead log, none of them checkpointed. Returns the two files, and the
/// records with the length of the log after each commit.
async fn uncheckpointed_store(
    commits: u64,
    facts: u64,
    size: usize,
) -> (Vec<u8>, Vec<u8>, Vec<(u64, u64)>, Vec<Record>) {
    let folder = folder();
    let store = open(&folder);
    let lease = lease(&store, &root(1)).await;
    drop(store);
    let store = open(&folder);
    let mut ends = Vec::new();
    for commit in 0..commits {
        let events = (0..facts).map(|n| said_event(format!("{commit} {n} ").repeat(size))).collect();
        store.append(leased_append(&lease, &root(1), commit * facts, events)).await.unwrap();
        ends.push((fs::metadata(wal(folder.path())).unwrap().len(), (commit + 1) * facts));
    }
    let (db, log) = (fs::read(database(folder.path())).unwrap(), fs::read(wal(folder.path())).unwrap());
    let records = store.read(&root(1), 0).await.unwrap();
    (db, log, ends, records)
}

/// Size of a page in the write-ahead log with its header.
const FRAME: usize = 8_192 + 24;

/// Reads the session from a store made of these two files.
async fn read_back(
    folder: &Path,
    db: &[u8],
    log: &[u8],
) -> Result<(Vec<Record>, Option<StoreError>), StoreError> {
    for name in ["sessions.db-shm", "sessions.db-wal"] {
        let _ = fs::remove_file(folder.join(name));
    }
    fs::write(database(folder), db).unwrap();
    if !log.is_empty() {
        fs::write(wal(folder), log).unwrap();
    }
    let store = SqliteStore::open(&database(folder))?;
    let _ = store.roots().await;
    let _ = store.tail(&root(1), Cursor::START, 99).await;
    store.read_prefix(&root(1)).await
}

/// A directory in memory, if there is one. The result does not depend on the disk, and thousands of stores are
/// opened.
fn folder_in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| folder())
}

async fn cut_at(
    cuts: impl Iterator<Item = usize>,
    db: &[u8],
    log: &[u8],
    ends: &[(u64, u64)],
    records: &[Record],
) {
    let folder = folder_in_memory();
    for cut in cuts.filter(|cut| *cut <= log.len()) {
        let whole = ends.iter().rev().find(|(end, _)| *end <= cut as u64).map_or(0, |(_, count)| *count);
        let (found, fault) = read_back(folder.path(), db, &log[..cut]).await.unwrap();
        assert_eq!(fault, None, "cut at {cut}");
        assert_eq!(found.len() as u64, whole, "cut at {cut}");
        assert_eq!(found, records[..found.len()], "cut at {cut}");
    }
}

#[tokio::test]
async fn cut_log_keeps_all_whole_commits() {
    let (db, log, ends, records) = uncheckpointed_store(3, 2, 10).await;
    assert!(log.len() <= 64 * 1024, "{}", log.len());
    // A prime step eventually covers every offset in a frame. The ends of frames are tested exactly. The outer
    // tests cut at every single byte.
    let frames = (0..log.len()).step_by(FRAME).flat_map(|start| start + 31..=start + 33);
    cut_at(
        (0..log.len()).step_by(some_or_all(389, 97)).chain(frames).chain(0..40),
        &db,
        &log,
        &ends,
        &records,
    )
    .await;
}

#[tokio::test]
async fn long_log_cut_around_its_frames_keeps_all_whole_commits() {
    let (db, log, ends, records) = uncheckpointed_store(12, 5, 300).await;
    assert!(log.len() > 200 * 1024, "{}", log.len());
    let frames = (0..log.len()).step_by(FRAME).flat_map(|start| start + 31..=start + 33);
    cut_at(frames, &db, &log, &ends, &records).await;
}

/// Flips about `samples` single bits and checks that no altered record is accepted.
async fn flip(db: &[u8], log: &[u8], which: DamagedFile, samples: usize, records: &[Record]) {
    let folder = folder();
    let length = if which == DamagedFile::Log { log.len() } else { db.len() };
    let mut seen = 0;
    for sample in 0..samples {
        let bit = (sample * (length * 8 / samples) + sample % 61) % (length * 8);
        let (mut db, mut log) = (db.to_vec(), log.to_vec());
        let bytes = if which == DamagedFile::Log { &mut log } else { &mut db };
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Failing to open and reporting an error are both acceptable.
        if let Ok((found, _)) = read_back(folder.path(), &db, &log).await {
            assert!(found.len() <= records.len(), "bit {bit}");
            assert_eq!(found, records[..found.len()], "bit {bit}");
            seen += found.len();
        }
    }
    assert!(seen > samples, "most flips hurt nothing or little");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DamagedFile {
    Database,
    Log,
}

#[tokio::test]
async fn corrupted_database_never_returns_wrong_records() {
    let (db, log, _, records) = uncheckpointed_store(10, 3, 20).await;
    let folder = folder();
    read_back(folder.path(), &db, &log).await.unwrap();
    // Closing the store moved the log into the database.
    let db = fs::read(database(folder.path())).unwrap();
    flip(&db, &[], DamagedFile::Database, some_or_all(150, 600), &records).await;
}

#[tokio::test]
async fn corrupted_wal_never_returns_wrong_records() {
    let (db, log, _, records) = uncheckpointed_store(4, 3, 20).await;
    flip(&db, &log, DamagedFile::Log, some_or_all(100, 400), &records).await;
}
