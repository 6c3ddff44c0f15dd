//! Followers while commits fail: the jobs of a failed transaction run again one by one, and some of them fail for good.

use std::sync::Arc;

use brigade::Follow;
use brigade::store::testing::follows::{self, WRITERS};
use brigade::store::{Append, Lease, Store, StoreError};
use brigade_core::Cursor;
use futures::future::join_all;
use rusqlite::Connection;

use crate::support::*;

/// Time of an append whose commit fails.
const FAILING_TIME: u64 = 666;
const STEPS: u32 = 12;
/// Records that a writer adds in a step.
const STEP_RECORDS: u64 = 3;

/// Makes every commit fail that contains an event of `FAILING_TIME`. SQLite checks a deferred reference only in
/// `COMMIT`, after all statements of the transaction have succeeded.
fn make_commits_fail(folder: &tempfile::TempDir) {
    let connection = Connection::open(database(folder.path())).unwrap();
    connection
        .execute_batch(&format!(
            "CREATE TABLE present (id INTEGER PRIMARY KEY);
             CREATE TABLE missing (id INTEGER REFERENCES present DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER failing AFTER INSERT ON events WHEN new.at = {FAILING_TIME}
             BEGIN INSERT INTO missing VALUES (1); END;"
        ))
        .unwrap();
}

/// Writes one child session. In every third step the commit fails first, and the writer tries again.
async fn write(store: &dyn Store, lease: &Lease, index: u32) -> u32 {
    let session = child(&lease.root, index);
    let mut failed_commits = 0;
    for step in 0..STEPS {
        let length = u64::from(step) * STEP_RECORDS;
        let events = vec![said_event(format!("{step}")), said_event("and more")];
        let append = leased_append(lease, &session, length, events);
        if (step + index).is_multiple_of(3) {
            let failed = store.append(Append { at: FAILING_TIME, ..append.clone() }).await;
            let is_commit_failure =
                matches!(&failed, Err(StoreError::Broken { cause, .. }) if cause.contains("FOREIGN KEY"));
            assert!(is_commit_failure, "{failed:?}");
            failed_commits += 1;
        }
        store.append(append.clone()).await.unwrap();
        let heard = external_append(&session, vec![heard_event(&format!("{step}"))]);
        let (conflict, heard) = tokio::join!(store.append(append), store.append(heard));
        assert!(matches!(conflict, Err(StoreError::Conflict { .. })), "{conflict:?}");
        heard.unwrap();
    }
    failed_commits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_under_64_writers_sees_committed_records_once_and_no_others() {
    let folder = folder();
    let store: Arc<dyn Store> = Arc::new(open(&folder));
    make_commits_fail(&folder);
    let top = root(1);
    let lease = begin_session(&*store, &top, 1).await;
    let count = (u64::from(WRITERS * STEPS) * STEP_RECORDS + 1) as usize;
    let followers =
        [usize::MAX, 37].map(|stretch| follows::follow(store.clone(), top.clone(), count, stretch));
    let mut late = Follow::new(store.clone(), &top, Cursor::START);
    // From now on it gets the appends from memory.
    let mut delivered_late = follows::next_records(&mut late, 1).await;
    let writers = (0..WRITERS).map(|index| write(&*store, &lease, index));
    let (delivered, failed_commits) = tokio::join!(join_all(followers), join_all(writers));
    assert_eq!(failed_commits.iter().sum::<u32>(), WRITERS * STEPS / 3);
    let log = store.tail(&top, Cursor::START, usize::MAX).await.unwrap();
    assert_eq!(log.len(), count);
    assert!(log.iter().all(|record| record.at != FAILING_TIME));
    delivered_late.extend(follows::next_records(&mut late, count - 1).await);
    for delivered in delivered.iter().chain([&delivered_late]) {
        follows::assert_same_records(delivered, &log);
    }
    follows::assert_idle(&mut late).await;
}
