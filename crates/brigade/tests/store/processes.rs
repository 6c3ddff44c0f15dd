//! Several processes on one store.

use brigade_core::Cursor;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::Follow;
use brigade::store::testing::follows;
use brigade::store::{SqliteStore, Store};

use crate::store::support::*;

const PLACE: &str = "BRIGADE_TEST_STORE_PLACE";
const DUTY: &str = "BRIGADE_TEST_STORE_DUTY";

#[expect(clippy::disallowed_methods, reason = "the test starts itself again as the other process")]
fn start(place: &Path, duty: &str) -> Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::processes::worker", "--nocapture", "--include-ignored"])
        .env(PLACE, place)
        .env(DUTY, duty)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Numbers that a worker printed after `report:`.
fn report(child: Child) -> Vec<u64> {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.split_once("report:")).unwrap().1;
    line.split_ascii_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// Worker process. Without its environment variables this test does nothing.
#[test]
#[expect(clippy::disallowed_methods, reason = "the parent says by the environment what to do")]
fn worker() {
    let (Ok(place), Ok(duty)) = (std::env::var(PLACE), std::env::var(DUTY)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(Path::new(&place)).unwrap();
        match duty.as_str() {
            "say" => {
                store.append(external_append(&root(1), vec![heard_event("hello")])).await.unwrap();
                println!("report: {}", milliseconds());
            }
            tree => {
                let (total, gap, p99) = saturate(&store, tree.parse().unwrap()).await;
                println!("report: {total} {gap} {p99}");
            }
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "two processes have no other clock in common")]
fn milliseconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Small appends to 48 sessions at once for two seconds, so that one is always waiting. Returns their number, the
/// longest gap, and the 99th percentile, in milliseconds.
async fn saturate(store: &dyn Store, bits: u128) -> (u64, u64, u64) {
    let lease = lease(store, &root(bits)).await;
    let end = Instant::now() + Duration::from_secs(2);
    let session = |index| {
        let (lease, session) = (&lease, child(&root(bits), index));
        async move {
            let mut done = Vec::new();
            let mut length = 0;
            while Instant::now() < end {
                let began = Instant::now();
                store
                    .append(leased_append(lease, &session, length, vec![said_event("small")]))
                    .await
                    .unwrap();
                done.push((Instant::now(), began.elapsed()));
                length += 1;
            }
            done
        }
    };
    let mut done = futures::future::join_all((0..48).map(session)).await.concat();
    store.release(&lease).await.unwrap();
    done.sort();
    let gap = done.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or(Duration::MAX);
    let mut waits: Vec<Duration> = done.iter().map(|(_, wait)| *wait).collect();
    waits.sort();
    let p99 = waits[waits.len() * 99 / 100];
    (done.len() as u64, gap.as_millis() as u64, p99.as_millis() as u64)
}

#[tokio::test]
async fn two_busy_processes_share_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let place = database(folder.path());
    let store = SqliteStore::open(&place).unwrap();
    let workers = [1, 2].map(|bits| start(&place, &bits.to_string()));
    for (worker, bits) in workers.into_iter().zip(1..) {
        let report = report(worker);
        let [total, gap, p99] = report[..] else { panic!("{report:?}") };
        println!("process {bits}: {total} appends, longest gap {gap} ms, p99 {p99} ms");
        assert!(gap < 1_000, "starved for {gap} ms");
        let mut found = 0;
        for session in store.sessions(&root(bits)).await.unwrap() {
            found += store.read(&session, 0).await.unwrap().len() as u64;
        }
        assert_eq!(found, total, "every append is there, once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_of_another_process_misses_nothing_and_sees_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let place = database(folder.path());
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&place).unwrap());
    let mut follower = Follow::new(store.clone(), &root(1), Cursor::START);
    let worker = start(&place, "1");
    // Commits of this process come in between.
    let own = begin_session(&*store, &root(2), 1).await;
    let mut delivered = follows::next_records(&mut follower, 1).await;
    for length in 1..100 {
        append_events(&*store, &own, &root(2), length, 1).await.unwrap();
        delivered.extend(follows::next_records(&mut follower, 1).await);
    }
    let total = tokio::task::spawn_blocking(move || report(worker)[0]).await.unwrap() as usize;
    delivered.extend(follows::next_records(&mut follower, total - delivered.len()).await);
    let log = store.tail(&root(1), Cursor::START, usize::MAX).await.unwrap();
    follows::assert_same_records(&delivered, &log);
    follows::assert_idle(&mut follower).await;
}

#[tokio::test]
async fn append_of_another_process_signals_changes() {
    let folder = tempfile::tempdir().unwrap();
    let place = database(folder.path());
    let store = SqliteStore::open(&place).unwrap();
    let _lease = begin_session(&store, &root(1), 2).await;
    let mut stirred = store.changes();
    for _ in 0..3 {
        stirred.mark_unchanged();
        let worker = start(&place, "say");
        let report = tokio::task::spawn_blocking(move || report(worker));
        tokio::time::timeout(Duration::from_secs(20), stirred.changed()).await.unwrap().unwrap();
        let seen = milliseconds();
        let said = report.await.unwrap()[0];
        println!("seen {} ms after it was said", seen.saturating_sub(said));
        assert!(seen < said + 600);
    }
    assert_eq!(store.external_events(&root(1), Cursor::START).await.unwrap().len(), 3);
}

#[tokio::test]
async fn killed_process_leaves_whole_commits_and_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let place = database(folder.path());
    let store = SqliteStore::open(&place).unwrap();
    for round in 0..3 {
        let mut worker = start(&place, &(10 + round).to_string());
        tokio::time::sleep(Duration::from_millis(400)).await;
        worker.kill().unwrap();
        worker.wait().unwrap();
        let top = root(10 + round);
        let lease = lease(&store, &top).await;
        for session in store.sessions(&top).await.unwrap() {
            let length = store.read(&session, 0).await.unwrap().len() as u64;
            append_events(&store, &lease, &session, length, 1).await.unwrap();
        }
    }
}
