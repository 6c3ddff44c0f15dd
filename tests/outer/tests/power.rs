//! Power cuts. A real run is traced. For every write that may be lost, a disk is created as a power cut may
//! leave it. The store has to open with every event that was reported before the cut, and with no partial
//! ones.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use brigade::Store;
use brigade::core::{Cursor, Record, SessionId};
use brigade::store::sqlite::SqliteStore;
use brigade_outer_tests::disk::{self, CutOutcome, Disk};
use brigade_outer_tests::strace::{self, Step};
use brigade_outer_tests::{TestEnv, command};
use brigade_testing::{Script, call, reply};
use serde_json::{Value, json};

/// A tree with a child and an edit.
fn small() -> Script {
    Script::new()
        .agent(
            "lead",
            [
                reply("Two parts.")
                    .delegate("Reader", "Read.")
                    .call("write_file", json!({ "path": "new.txt", "content": "first" })),
                reply("{results}"),
            ],
        )
        .agent("Reader", [call("echo", json!({ "text": "x" })).turn(1)])
        .reply("read")
}

/// Enough commits that the log is checkpointed into the database during the run.
fn long() -> Script {
    Script::new().reply(reply("enough").turn(48)).reply(call("echo", json!({ "text": "turn {turn}" })))
}

/// Number of random disks at each point, in addition to those that lost and kept everything.
const RANDOM_CUTS: u64 = 8;

/// Number of events of each session that were reported on standard output.
#[derive(Default)]
struct ReportedEvents {
    line: Vec<u8>,
    events: HashMap<String, u64>,
}

impl ReportedEvents {
    fn read_stdout(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line: Value = serde_json::from_slice(&std::mem::take(&mut self.line)).unwrap();
            if let (Some(session), Some(seq)) = (line["session"].as_str(), line["seq"].as_u64()) {
                let events = self.events.entry(session.to_owned()).or_default();
                *events = (*events).max(seq + 1);
            }
        }
    }
}

/// The name of a file that contains events of the store. Its other files are for running processes.
fn store_file_name<'a>(path: &'a Path, home: &Path) -> Option<&'a str> {
    let name = path.strip_prefix(home).ok()?.to_str()?;
    ["sessions.db", "sessions.db-wal", "sessions.db-journal"].contains(&name).then_some(name)
}

async fn all_events(store: &SqliteStore) -> BTreeMap<SessionId, Vec<Record>> {
    let mut sessions: BTreeMap<SessionId, Vec<Record>> = BTreeMap::new();
    for summary in store.roots().await.unwrap() {
        for record in store.tail(&summary.root, Cursor::START, usize::MAX).await.unwrap() {
            sessions.entry(record.session.clone()).or_default().push(record);
        }
    }
    sessions
}

struct Check<'a> {
    folder: &'a Path,
    /// All events at the end.
    written: BTreeMap<SessionId, Vec<Record>>,
    cuts: u64,
    /// The largest number of events that a cut removed. They had not been reported yet.
    lost: usize,
}

impl Check<'_> {
    async fn every_outcome(&mut self, disk: &Disk, reported: &ReportedEvents) {
        let first = self.cuts * RANDOM_CUTS + 1;
        let seeds = (first..first + RANDOM_CUTS).map(CutOutcome::Random);
        for outcome in [CutOutcome::Lost, CutOutcome::Kept].into_iter().chain(seeds) {
            self.cut(disk, reported, outcome).await;
        }
        self.cuts += 1;
    }

    async fn cut(&mut self, disk: &Disk, reported: &ReportedEvents, outcome: CutOutcome) {
        disk::write_files(&disk.after_power_cut(outcome), self.folder);
        let store = SqliteStore::open(&self.folder.join("sessions.db")).unwrap();
        for (session, written) in &self.written {
            let (found, fault) = store.read_prefix(session).await.unwrap();
            let context = format!("{session} at cut {} ({outcome:?})", self.cuts);
            assert_eq!(fault, None, "{context}");
            assert_eq!(found, written[..found.len()], "{context}");
            let reported = reported.events.get(session.as_str()).copied().unwrap_or_default() as usize;
            assert!(
                found.len() >= reported,
                "{context}: {reported} events were told, {} are there",
                found.len()
            );
            self.lost = self.lost.max(written.len() - found.len());
        }
    }
}

/// Runs a script under strace in an environment, on its existing store.
fn run(env: &TestEnv, script: &Script, disk_before: &mut Vec<Step>) {
    std::fs::write(env.path("script.toml"), script.to_string()).unwrap();
    let model = format!("script:{}", env.path("script.toml").display());
    let mut run = command(&env.path("home"));
    run.args(["run", "--mode", "auto", "--model", &model, "--output-format", "stream-json", "go"]);
    run.current_dir(env.path("work"));
    disk_before.extend(strace::trace(&run, &env.path("tmp/trace")));
}

#[tokio::test]
async fn power_cut_at_any_write_loses_no_reported_event() {
    let env = TestEnv::new("");
    let home = env.path("home");
    let mut steps = Vec::new();
    run(&env, &small(), &mut steps);
    run(&env, &long(), &mut steps);
    let written = all_events(&SqliteStore::open(&home.join("sessions.db")).unwrap()).await;
    assert_eq!(written.len(), 3, "two leads and a child");
    // In memory if possible, because many stores are opened and reading them needs no real disk.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
    let mut check = Check { folder: folder.path(), written, cuts: 0, lost: 0 };
    let (mut disk, mut reported, mut syncs) = (Disk::default(), ReportedEvents::default(), HashMap::new());
    let mut checkpoints = 0;
    for step in steps {
        match &step {
            Step::Open(path) => {
                if let Some(name) = store_file_name(path, &home) {
                    disk.open(name);
                }
            }
            Step::Write(path, at, bytes) => {
                if let Some(name) = store_file_name(path, &home) {
                    checkpoints += usize::from(name == "sessions.db" && *at == 0);
                    disk.write(name, *at, bytes.clone());
                }
            }
            Step::Truncate(path, length) => {
                if let Some(name) = store_file_name(path, &home) {
                    disk.truncate(name, *length);
                }
            }
            Step::Remove(path) => {
                if let Some(name) = store_file_name(path, &home) {
                    disk.remove(name);
                }
            }
            Step::SyncBegins(number, path) if *path == home || store_file_name(path, &home).is_some() => {
                check.every_outcome(&disk, &reported).await;
                syncs.insert(*number, disk.begin_sync(store_file_name(path, &home)));
            }
            Step::SyncBegins(..) => {}
            Step::SyncEnds(number) => {
                if let Some(sync) = syncs.remove(number) {
                    disk.end_sync(sync);
                    check.every_outcome(&disk, &reported).await;
                }
            }
            Step::Stdout(bytes) => reported.read_stdout(bytes),
        }
    }
    check.every_outcome(&disk, &reported).await;
    let reported: u64 = reported.events.values().sum();
    assert_eq!(
        reported as usize,
        check.written.values().map(Vec::len).sum::<usize>(),
        "all was told in the end"
    );
    assert!(checkpoints >= 3, "the log was moved while a run went on, and at the end of both: {checkpoints}");
    assert!(check.cuts > 200 && check.lost > 100, "{} cuts, {} events lost", check.cuts, check.lost);
}
