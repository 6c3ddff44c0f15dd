//! Behaviour that is specific to the store on disk.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::store::testing::follows;
use brigade::store::{BrokenKind, SqliteStore, Store, StoreError};
use brigade_core::event::Effect;
use brigade_core::{CallId, Cursor, Event, Hash, Resources};
use futures::future::join_all;
use rusqlite::Connection;

use crate::store::support::*;

#[tokio::test]
async fn what_was_appended_is_there_after_reopening() {
    let folder = folder();
    let store = open(&folder);
    let lease = begin_session(&store, &root(1), 50).await;
    let records = store.read(&root(1), 0).await.unwrap();
    drop(store);
    let store = open(&folder);
    assert_eq!(store.read(&root(1), 0).await.unwrap(), records);
    append_events(&store, &lease, &root(1), 50, 1).await.unwrap();
}

#[tokio::test]
async fn dropping_the_store_writes_what_is_queued() {
    let folder = folder();
    let store = open(&folder);
    let lease = begin_session(&store, &root(1), 1).await;
    for length in 1..200 {
        // Polled once and then dropped, so that no caller waits for the result.
        let append = store.append(leased_append(&lease, &root(1), length, vec![said_event("queued")]));
        let _ = futures::FutureExt::now_or_never(append);
    }
    drop(store);
    assert_eq!(open(&folder).read(&root(1), 0).await.unwrap().len(), 200);
}

#[tokio::test]
async fn files_are_for_their_owner_only() {
    let folder = folder();
    let path = folder.path().join("a/b/sessions.db");
    let store = SqliteStore::open(&path).unwrap();
    begin_session(&store, &root(1), 1).await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("a")), 0o700);
    assert_eq!(mode(&folder.path().join("a/b")), 0o700);
    for name in
        ["sessions.db", "sessions.db-wal", "sessions.db-shm", "sessions.db.lock", "sessions.db.waiting"]
    {
        assert_eq!(mode(&folder.path().join("a/b").join(name)), 0o600, "{name}");
    }
}

#[test]
fn place_that_cannot_be_written_says_so() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "not a folder").unwrap();
    for place in [file.join("sessions.db"), "/proc/brigade/sessions.db".into(), folder.path().to_path_buf()] {
        let error = SqliteStore::open(&place).unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
        assert!(!error.to_string().contains("--store"), "{error}");
    }
}

#[test]
fn file_of_another_kind_is_left_alone() {
    let folder = folder();
    let path = database(folder.path());
    let text = "this is no database, but somebody's letters. ".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(
        matches!(&error, StoreError::Broken { kind: BrokenKind::NotAStore, cause, .. } if cause.contains("not a Brigade store")),
        "{error:?}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);

    std::fs::remove_file(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE recipes (name TEXT)").unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert!(
        matches!(&error, StoreError::Broken { kind: BrokenKind::Foreign, cause, .. } if cause.contains("another program")),
        "{error:?}"
    );
}

#[test]
fn newer_store_is_not_touched() {
    let folder = folder();
    drop(open(&folder));
    Connection::open(database(folder.path())).unwrap().pragma_update(None, "user_version", 7).unwrap();
    let error = SqliteStore::open(&database(folder.path())).unwrap_err();
    assert!(matches!(error, StoreError::NewerStore { found: 7, known: 3, .. }), "{error:?}");
}

#[tokio::test]
async fn batched_events_share_a_row() {
    let folder = folder();
    let store = open(&folder);
    let lease = begin_session(&store, &root(1), 1).await;
    let facts = (0..20)
        .map(|n| if n == 10 { heard_event("word") } else { said_event(format!("fact {n}")) })
        .collect();
    store.append(leased_append(&lease, &root(1), 1, facts)).await.unwrap();
    // Many small events are not merged into one row that a single bad page could destroy.
    let large = (0..20).map(|n| said_event(format!("{n:04}").repeat(250))).collect();
    store.append(leased_append(&lease, &root(1), 21, large)).await.unwrap();
    drop(store);
    let connection = Connection::open(database(folder.path())).unwrap();
    let mut statement =
        connection.prepare("SELECT seq, outside, length(body) FROM events ORDER BY pos").unwrap();
    let rows: Vec<(u64, u64, usize)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        rows[..4].iter().map(|row| (row.0, row.1)).collect::<Vec<_>>(),
        [(0, 0), (10, 0), (11, 1), (20, 0)]
    );
    assert_eq!(rows[4..].iter().map(|row| row.0).collect::<Vec<_>>(), [23, 26, 29, 32, 35, 38, 40]);
    assert!(rows.iter().all(|row| row.2 < 4_000), "{rows:?}");
}

#[tokio::test]
async fn store_of_format_1_is_read_and_written() {
    let folder = folder();
    let store = open(&folder);
    // Rows with one event are the same as in format 1, except for their checksum.
    let lease = begin_session(&store, &root(1), 4).await;
    drop(store);
    let older = "PRAGMA journal_mode = DELETE; PRAGMA page_size = 4096; VACUUM; PRAGMA user_version = 1;";
    let connection = Connection::open(database(folder.path())).unwrap();
    connection.execute_batch(older).unwrap();
    cover_positions(&connection);
    drop(connection);
    let format = || SqliteStore::check_health(&database(folder.path()), u64::MAX).unwrap().format;
    assert_eq!(format(), Some(1));
    let store = open(&folder);
    assert_eq!(store.read(&root(1), 0).await.unwrap().len(), 4);
    assert_eq!(format(), Some(1), "reading does not change it");
    store.append(leased_append(&lease, &root(1), 4, vec![said_event("five")])).await.unwrap();
    assert_eq!(format(), Some(3), "an older version would report the checksum of the new row as damage");
    store
        .append(leased_append(&lease, &root(1), 5, vec![said_event("six"), said_event("seven")]))
        .await
        .unwrap();
    assert_eq!(store.read(&root(1), 0).await.unwrap().len(), 7);
    assert_eq!(format(), Some(3));
    drop(store);
    let pages = Connection::open(database(folder.path())).unwrap();
    assert_eq!(pages.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0)).unwrap(), 4096);
}

#[tokio::test]
async fn what_another_process_wrote_below_a_new_tree_is_seen() {
    let folder = folder();
    let (one, two) = (open(&folder), open(&folder));
    let lease = begin_session(&one, &root(1), 1).await;
    let low = child(&root(1), 0);
    let several = |count: usize| (0..count).map(|n| said_event(format!("{n}"))).collect();
    two.append(leased_append(&lease, &low, 0, several(3))).await.unwrap();
    let conflict = one.append(leased_append(&lease, &low, 0, several(2))).await.unwrap_err();
    assert!(matches!(conflict, StoreError::Conflict { expected: 0, actual: 3, .. }), "{conflict:?}");
    one.append(leased_append(&lease, &low, 3, several(2))).await.unwrap();
    let conflict = two.append(leased_append(&lease, &low, 3, several(5))).await.unwrap_err();
    assert!(matches!(conflict, StoreError::Conflict { expected: 3, actual: 5, .. }), "{conflict:?}");
    assert_eq!(two.read(&low, 0).await.unwrap().len(), 5);
}

#[tokio::test]
async fn leftover_sessions_of_a_removed_tree_are_seen() {
    let folder = folder();
    let store = open(&folder);
    let lease = begin_session(&store, &root(1), 1).await;
    let low = child(&root(1), 0);
    store.append(leased_append(&lease, &low, 0, vec![said_event("one"), said_event("two")])).await.unwrap();
    drop(store);
    let gone = format!("DELETE FROM events WHERE session = '{}'", root(1));
    Connection::open(database(folder.path())).unwrap().execute(&gone, []).unwrap();
    let store = open(&folder);
    append_events(&store, &lease, &root(1), 0, 1).await.unwrap();
    let conflict = store
        .append(leased_append(&lease, &low, 0, vec![said_event("a"), said_event("b"), said_event("c")]))
        .await
        .unwrap_err();
    assert!(matches!(conflict, StoreError::Conflict { expected: 0, actual: 2, .. }), "{conflict:?}");
}

#[tokio::test]
async fn full_disk_refuses_the_append_and_keeps_the_rest() {
    let folder = folder();
    let path = database(folder.path());
    let store = SqliteStore::open_with_max_pages(&path, 30).unwrap();
    let (root, other) = (root(1), root(2));
    let lease = begin_session(&store, &root, 3).await;
    let other_lease = begin_session(&store, &other, 1).await;
    let large = leased_append(&lease, &root, 3, vec![heard_event("small"), said_event(random_text(400_000))]);
    // The append that fits is not affected by the failure of the other.
    let (full, fine) = tokio::join!(
        store.append(large.clone()),
        store.append(leased_append(&other_lease, &other, 1, vec![said_event("fits")]))
    );
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    fine.unwrap();
    assert_eq!(store.read(&root, 0).await.unwrap().len(), 3);
    append_events(&store, &lease, &root, 3, 2).await.unwrap();
    drop(store);

    let store = open(&folder);
    assert_eq!(store.read(&root, 0).await.unwrap().len(), 5);
    assert_eq!(store.read(&other, 0).await.unwrap().len(), 2);
    store
        .append(brigade::store::Append { expect: brigade::store::Expect::Length(5), ..large })
        .await
        .unwrap();
    assert_eq!(store.read(&root, 0).await.unwrap().len(), 7);
}

fn random_text(bytes: usize) -> String {
    let mut text = String::new();
    let mut hash = Hash::of(b"seed");
    while text.len() < bytes {
        hash = Hash::of(hash.as_bytes());
        text.push_str(&hash.to_string());
    }
    text
}

#[tokio::test]
async fn removed_content_is_gone_from_the_files() {
    let folder = folder();
    let store = open(&folder);
    let secret = "XSECRETX".repeat(2_000);
    let lease = lease(&store, &root(1)).await;
    store
        .append(leased_append(&lease, &root(1), 0, vec![said_event(secret.as_str()), said_event("XSECRETX")]))
        .await
        .unwrap();
    begin_session(&store, &root(2), 1).await;
    store.release(&lease).await.unwrap();
    store.remove(&root(1)).await.unwrap();
    drop(store);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(8).any(|window| window == b"XSECRETX"));
    }
}

#[tokio::test]
async fn two_stores_on_one_file_see_each_other() {
    let folder = folder();
    let (one, two) = (open(&folder), open(&folder));
    let lease = begin_session(&one, &root(1), 1).await;
    assert!(matches!(
        append_events(&two, &lease, &root(1), 0, 1).await,
        Err(StoreError::Conflict { actual: 1, .. })
    ));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut stirred = one.changes();
    stirred.mark_unchanged();
    let said = Instant::now();
    two.append(external_append(&root(1), vec![heard_event("hello"), Event::CancelAsked { by: "me".into() }]))
        .await
        .unwrap();
    tokio::time::timeout(Duration::from_secs(5), stirred.changed()).await.unwrap().unwrap();
    assert!(said.elapsed() < Duration::from_millis(500), "{:?}", said.elapsed());
    assert_eq!(one.external_events(&root(1), Cursor::START).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_two_stores_on_one_file_miss_nothing_and_see_nothing_twice() {
    let folder = folder();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(open(&folder)), Arc::new(open(&folder))];
    let lease = begin_session(&*stores[0], &root(1), 1).await;
    let count = follows::WRITERS as usize * follows::RECORDS_OF_A_WRITER + 1;
    let followers = [(0, usize::MAX), (1, usize::MAX), (0, 41), (1, 41)]
        .map(|(nth, stretch): (usize, _)| follows::follow(stores[nth].clone(), root(1), count, stretch));
    let writers = (0..follows::WRITERS)
        .map(|index| follows::write(stores[index as usize % 2].clone(), lease.clone(), index));
    let (followed, _) = tokio::join!(join_all(followers), join_all(writers));
    let log = stores[0].tail(&root(1), Cursor::START, usize::MAX).await.unwrap();
    assert_eq!(log.len(), count);
    for delivered in followed {
        follows::assert_same_records(&delivered, &log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_ahead_log_stays_bounded() {
    let folder = folder();
    let store = open(&folder);
    let lease = begin_session(&store, &root(1), 1).await;
    for round in 0..400 {
        let facts = (0..50).map(|n| said_event(format!("{n}").repeat(400))).collect();
        store.append(leased_append(&lease, &root(1), 1 + round * 50, facts)).await.unwrap();
    }
    let written = std::fs::metadata(database(folder.path())).unwrap().len();
    let wal = std::fs::metadata(wal(folder.path())).unwrap().len();
    assert!(written > 1_000_000 && wal < 40_000_000, "{written} {wal}");
}

#[tokio::test]
async fn health_check_finds_damage_and_writes_nothing() {
    use brigade::store::Integrity;
    let folder = folder();
    let place = folder.path().join("looked-at.db");
    assert!(matches!(SqliteStore::check_health(&place, u64::MAX), Err(StoreError::ReadOnly { .. })));
    assert!(!place.exists(), "a look makes no store");
    let store = SqliteStore::open(&place).unwrap();
    begin_session(&store, &root(1), 400).await;
    let while_open = SqliteStore::check_health(&place, u64::MAX).unwrap();
    assert_eq!(while_open.integrity, Integrity::Intact);
    drop(store);
    let found = SqliteStore::check_health(&place, u64::MAX).unwrap();
    assert_eq!((found.format, found.integrity), (Some(3), Integrity::Intact));
    assert!(found.bytes > 8192, "{}", found.bytes);
    assert_eq!(SqliteStore::check_health(&place, 100).unwrap().integrity, Integrity::Unknown);
    let mut bytes = std::fs::read(&place).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(7);
    std::fs::write(&place, bytes).unwrap();
    match SqliteStore::check_health(&place, u64::MAX) {
        Ok(found) => assert!(matches!(found.integrity, Integrity::Damaged(places) if !places.is_empty())),
        Err(error) => assert!(matches!(error, StoreError::Broken { .. }), "{error}"),
    }
}

/// A store with many events is not read again for each lookup of an edit.
#[tokio::test]
async fn edits_are_indexed_once_there_are_many_rows() {
    let folder = folder();
    let store = open(&folder);
    let edit = |after: &str| Event::ToolStarted {
        call: CallId { turn: 1, index: 0 },
        effect: Effect::Edit,
        before: None,
        after: Some(Hash::of(after.as_bytes())),
        lent: Resources::default(),
        lines: None,
    };
    let knows =
        async |store: &SqliteStore, text: &str| store.has_edit(Hash::of(text.as_bytes())).await.unwrap();
    let tables = || {
        let file = Connection::open(folder.path().join("sessions.db")).unwrap();
        let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, u64>(0)).ok();
        (count("SELECT count(*) FROM edits"), count("SELECT pos FROM edits_until"))
    };
    let lease = begin_session(&store, &root(1), 1).await;
    store.append(leased_append(&lease, &root(1), 1, vec![edit("early")])).await.unwrap();
    assert!(knows(&store, "early").await);
    assert_eq!(tables(), (None, None), "a small store is just read");
    // External events have a row each.
    let messages = |n: usize| (0..n).map(|n| heard_event(&format!("{n}"))).collect::<Vec<_>>();
    store.append(leased_append(&lease, &root(1), 2, messages(2_100))).await.unwrap();
    assert!(!knows(&store, "late").await);
    assert_eq!(tables(), (Some(1), Some(2_102)));
    store.append(leased_append(&lease, &root(1), 2_102, vec![edit("late")])).await.unwrap();
    for text in ["early", "late"] {
        assert!(knows(&store, text).await, "{text}");
    }
    drop(store);
    let readable = SqliteStore::open_read_only(&folder.path().join("sessions.db")).unwrap().unwrap();
    assert!(knows(&readable, "early").await && knows(&readable, "late").await);
    assert!(!knows(&readable, "never").await);
}
