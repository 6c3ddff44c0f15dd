//! Random damage to a store file: an export without an error is complete.

use std::fs;
use std::path::Path;

use brigade::store::{Lease, SqliteStore, Store, export};
use brigade_core::{CallId, DelegationStyle, Event, Outcome, SessionId, Spent, Status};

use crate::effort::some_or_all;
use crate::store::support::*;

const TREES: u128 = 4;

/// Trees of sessions that delegate, with long texts and definitions, interleaved like concurrent runs.
async fn exported_trees(folder: &Path) -> Vec<(SessionId, String)> {
    let store = SqliteStore::open(&database(folder)).unwrap();
    let mut leases = Vec::new();
    for tree in 1..=TREES {
        let (top, agent) = (root(tree), format!("agent {tree}"));
        let lease = lease(&store, &top).await;
        let mut append =
            leased_append(&lease, &top, 0, vec![started(&format!("task {tree}"), &agent, "authority")]);
        append.blobs = vec![content(&agent), content("authority")];
        store.append(append).await.unwrap();
        leases.push(lease);
    }
    for index in 0..12 {
        for lease in &leases {
            run_child(&store, lease, index).await;
        }
    }
    for lease in &leases {
        store.release(lease).await.unwrap();
    }
    let mut exports = Vec::new();
    for tree in 1..=TREES {
        exports.push((root(tree), export(&store, &root(tree)).await.unwrap()));
    }
    exports
}

/// One child: the loan, its whole log, and its return.
async fn run_child(store: &SqliteStore, lease: &Lease, index: u32) {
    let (top, below) = (&lease.root, child(&lease.root, index));
    let length = store.read(top, 0).await.unwrap().len() as u64;
    let Event::Started { delegation, agent, grant, .. } = started("part", "agent 1", "authority") else {
        unreachable!()
    };
    let delegation = brigade_core::Delegation { style: DelegationStyle::Delegate, ..(*delegation).clone() };
    let call = CallId { turn: 1, index };
    let delegated =
        Event::Delegated { call, child: below.clone(), delegation: delegation.into(), agent, grant };
    let mut append = leased_append(lease, top, length, vec![delegated]);
    append.blobs = vec![content("agent 1")];
    store.append(append).await.unwrap();
    let outcome = || Outcome::new(Status::Done, format!("report {index}"));
    let log = vec![
        started("part", "agent 1", "authority"),
        said_event(format!("{index} ").repeat(if index.is_multiple_of(5) { 6_000 } else { 90 })),
    ];
    store.append(leased_append(lease, &below, 0, log)).await.unwrap();
    let ended = vec![said_event("last"), Event::Ended { outcome: outcome(), spent: Spent::default() }];
    store.append(leased_append(lease, &below, 2, ended)).await.unwrap();
    let returned =
        Event::Returned { child: below, outcome: outcome(), spent: Spent::default(), waited_ms: 0 };
    store.append(leased_append(lease, top, length + 1, vec![returned, said_event("noted")])).await.unwrap();
}

/// Random numbers that depend only on a seed.
struct SeededRng(blake3::OutputReader);

impl SeededRng {
    fn new(seed: u64) -> SeededRng {
        SeededRng(blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof())
    }

    fn below(&mut self, end: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes)).unwrap() % end
    }
}

/// Alters a file in one of the ways that disks and users do.
fn damage(bytes: &mut Vec<u8>, random: &mut SeededRng) -> String {
    let at = random.below(bytes.len());
    match random.below(6) {
        0 => {
            bytes[at] ^= 1 << random.below(8);
            format!("a bit at {at}")
        }
        1 => {
            let end = (at + 1 + random.below(64)).min(bytes.len());
            random.0.fill(&mut bytes[at..end]);
            format!("noise at {at}..{end}")
        }
        2 => {
            let end = (at + 1 + random.below(512)).min(bytes.len());
            bytes[at..end].fill(0);
            format!("zeros at {at}..{end}")
        }
        3 => {
            let (from, to) = (random.below(bytes.len() / PAGE), at / PAGE);
            bytes.copy_within(from * PAGE..(from + 1) * PAGE, to * PAGE);
            format!("page {from} written over page {to}")
        }
        4 => {
            let page = at / PAGE * PAGE;
            // The numbers at the beginning of a page describe its content.
            bytes[page + random.below(12)] = u8::try_from(random.below(256)).unwrap();
            format!("the head of the page at {page}")
        }
        _ => {
            bytes.truncate(at);
            format!("cut at {at}")
        }
    }
}

const PAGE: usize = 8_192;

#[tokio::test]
async fn export_of_a_damaged_store_is_whole_or_an_error() {
    let folder = folder();
    let exports = exported_trees(folder.path()).await;
    let whole = fs::read(database(folder.path())).unwrap();
    let (mut silent, mut told, mut unhurt) = (Vec::new(), 0, 0);
    let damages: u64 = some_or_all(100, 800);
    for seed in 0..damages {
        let mut random = SeededRng::new(seed);
        let mut bytes = whole.clone();
        let what = damage(&mut bytes, &mut random);
        fs::write(database(folder.path()), &bytes).unwrap();
        for name in ["sessions.db-shm", "sessions.db-wal"] {
            let _ = fs::remove_file(folder.path().join(name));
        }
        let Ok(Some(store)) = SqliteStore::open_read_only(&database(folder.path())) else {
            told += 1;
            continue;
        };
        for (root, before) in &exports {
            match export(&store, root).await {
                Ok(text) if text == *before => unhurt += 1,
                Ok(_) => silent.push(format!("{seed}: {what}: {root}")),
                Err(_) => told += 1,
            }
        }
    }
    assert!(silent.is_empty(), "{} of {damages} damages went unnoticed: {silent:#?}", silent.len());
    assert!(told > damages / 2 && unhurt > damages / 2, "{told} told, {unhurt} unhurt");
}
