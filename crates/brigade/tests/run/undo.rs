//! Undo of the last round's file edits.

use std::sync::Arc;

use brigade::core::{Event, Hash, SessionId};
use brigade::store::{MemoryStore, SqliteStore, export, import};
use brigade::{ResumeOptions, Store, UndoResult, UndoneFile, Workspace, undo};
use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::run::support::{Harness, end};

/// Reads and edits `old.txt` twice, creates `new.txt`, and has a child that edits `child.txt`.
fn edits() -> Script {
    Script::new()
        .agent(
            "lead",
            [
                call("read_file", json!({ "path": "old.txt" }))
                    .call("write_file", json!({ "path": "new.txt", "content": "made" }))
                    .delegate("Child", "edit"),
                call("edit_file", json!({ "path": "old.txt", "old": "one", "new": "two" }))
                    .call("edit_file", json!({ "path": "old.txt", "old": "two", "new": "three" }))
                    .turn(2),
            ],
        )
        .agent(
            "Child",
            [
                call("read_file", json!({ "path": "child.txt" })),
                call("write_file", json!({ "path": "child.txt", "content": "changed" })).turn(2),
            ],
        )
        .reply("done")
}

fn put(harness: &Harness, path: &str, content: impl AsRef<[u8]>) {
    std::fs::write(harness.path().join(path), content).unwrap();
}

fn content(harness: &Harness, path: &str) -> Option<String> {
    std::fs::read_to_string(harness.path().join(path)).ok()
}

async fn edited() -> (Harness, SessionId) {
    let harness = Harness::new(edits());
    put(&harness, "old.txt", "one line\n");
    put(&harness, "child.txt", "as it was");
    let result = harness.run().await;
    assert_eq!(content(&harness, "old.txt").as_deref(), Some("three line\n"), "{:?}", result.outcome);
    assert_eq!(content(&harness, "child.txt").as_deref(), Some("changed"));
    (harness, result.session)
}

async fn undone(harness: &Harness, session: &SessionId) -> Vec<(String, UndoResult)> {
    let workspace = Workspace::open(harness.path()).unwrap();
    let undone = undo(&*harness.store, session, &workspace).await.unwrap();
    undone.into_iter().map(|UndoneFile { path, result }| (path, result)).collect()
}

fn refused(cause: &str) -> UndoResult {
    UndoResult::Refused { cause: cause.to_owned() }
}

#[tokio::test]
async fn edits_of_all_agents_are_undone() {
    let (harness, session) = edited().await;
    let expected = [
        ("child.txt".to_owned(), UndoResult::Restored),
        ("new.txt".to_owned(), UndoResult::Removed),
        ("old.txt".to_owned(), UndoResult::Restored),
    ];
    assert_eq!(undone(&harness, &session).await, expected);
    assert_eq!(content(&harness, "old.txt").as_deref(), Some("one line\n"));
    assert_eq!(content(&harness, "child.txt").as_deref(), Some("as it was"));
    assert_eq!(content(&harness, "new.txt"), None);
    let again = undone(&harness, &session).await;
    assert!(again.iter().all(|(_, result)| *result == UndoResult::Unchanged), "{again:?}");
}

#[tokio::test]
async fn file_that_was_changed_since_is_refused_and_the_others_are_undone() {
    let (harness, session) = edited().await;
    put(&harness, "old.txt", "the user's");
    std::fs::remove_file(harness.path().join("child.txt")).unwrap();
    let expected = [
        ("child.txt".to_owned(), refused("it has been removed since the edit")),
        ("new.txt".to_owned(), UndoResult::Removed),
        ("old.txt".to_owned(), refused("it has changed since the edit")),
    ];
    assert_eq!(undone(&harness, &session).await, expected);
    assert_eq!(content(&harness, "old.txt").as_deref(), Some("the user's"));
    assert_eq!(content(&harness, "child.txt"), None);
}

#[tokio::test]
async fn only_the_last_round_is_undone() {
    let (harness, session) = edited().await;
    let runtime = harness.runtime();
    runtime.tell(&session, "more").await.unwrap();
    end(runtime.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert!(undone(&harness, &session).await.is_empty(), "the second round edited nothing");
    assert_eq!(content(&harness, "old.txt").as_deref(), Some("three line\n"));
}

#[tokio::test]
async fn undo_after_a_summary_undoes_the_round_before() {
    let (harness, session) = edited().await;
    end(harness.runtime().compact(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    let results = undone(&harness, &session).await;
    assert_eq!(results.len(), 3, "{results:?}");
    assert_eq!(content(&harness, "old.txt").as_deref(), Some("one line\n"));
}

#[tokio::test]
async fn content_is_kept_once_for_each_file_and_within_a_bound() {
    let (harness, session) = edited().await;
    let kept = |text: &str| {
        let (store, hash) = (harness.store.clone(), Hash::of(text.as_bytes()));
        async move { store.blob(hash).await.unwrap().is_some() }
    };
    assert!(kept("one line\n").await);
    assert!(!kept("two line\n").await, "what the round itself wrote is not needed");
    harness.store.remove(&session).await.unwrap();
    assert!(!kept("one line\n").await, "it is removed with the session");

    let harness = Harness::new(edits());
    put(&harness, "old.txt", format!("one line\n{}", "x".repeat(1 << 20)));
    put(&harness, "child.txt", b"\xff\xfe");
    let session = harness.run().await.session;
    let results = undone(&harness, &session).await;
    let UndoResult::Refused { cause } = &results[2].1 else { panic!("{results:?}") };
    insta::assert_snapshot!(cause);
    assert!(content(&harness, "old.txt").unwrap().starts_with("three line"));
}

#[tokio::test]
async fn undo_keeps_edits_of_other_programs() {
    let script = Script::new().turns([
        call("read_file", json!({ "path": "old.txt" })),
        call("write_file", json!({ "path": "old.txt", "content": "first" })),
        call("read_file", json!({ "path": "old.txt" })).delay_ms(300),
        call("write_file", json!({ "path": "old.txt", "content": "second" })),
        reply("done"),
    ]);
    let harness = Harness::new(script);
    put(&harness, "old.txt", "zero");
    let run = harness.start().await;
    let session = run.session().clone();
    while content(&harness, "old.txt").as_deref() != Some("first") {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    put(&harness, "old.txt", "the user's");
    end(run).await.unwrap();
    assert_eq!(content(&harness, "old.txt").as_deref(), Some("second"));
    assert_eq!(undone(&harness, &session).await, [("old.txt".to_owned(), UndoResult::PartlyRestored)]);
    assert_eq!(content(&harness, "old.txt").as_deref(), Some("the user's"));
}

#[tokio::test]
async fn imported_edits_are_not_undone() {
    let (harness, session) = edited().await;
    let text = export(&*harness.store, &session).await.unwrap();
    let other = MemoryStore::new();
    import(&other, &text).await.unwrap();
    let workspace = Workspace::open(harness.path()).unwrap();
    assert!(undo(&other, &session, &workspace).await.unwrap().is_empty());
    assert_eq!(content(&harness, "new.txt").as_deref(), Some("made"));
}

#[tokio::test]
async fn logs_of_earlier_versions_name_the_file_in_the_call() {
    let (harness, session) = edited().await;
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&folder.path().join("store.db")).unwrap());
    // The same log as an earlier version wrote it: without the path in the end of a call, and without the
    // content.
    let lease = store.lease(&session, &brigade::store::Owner::this_process(), 0).await.unwrap();
    let events: Vec<Event> = harness
        .events(&session)
        .await
        .into_iter()
        .map(|event| match event {
            Event::ToolEnded { call, output, spent, .. } => {
                Event::ToolEnded { call, output, spent, seen: None }
            }
            event => event,
        })
        .collect();
    let append = brigade::store::Append {
        session: session.clone(),
        expect: brigade::store::Expect::Length(0),
        events: Arc::new(events),
        blobs: Vec::new(),
        lease: Some(lease),
        at: 0,
    };
    store.append(append).await.unwrap();
    let workspace = Workspace::open(harness.path()).unwrap();
    let undone = undo(&*store, &session, &workspace).await.unwrap();
    let [new, old] = undone.as_slice() else { panic!("{undone:?}") };
    assert_eq!((new.path.as_str(), &new.result), ("new.txt", &UndoResult::Removed));
    let UndoResult::Refused { cause } = &old.result else { panic!("{undone:?}") };
    assert_eq!(old.path, "old.txt");
    insta::assert_snapshot!(cause);
}

#[tokio::test]
async fn undo_follows_no_link_out_of_the_workspace() {
    let (harness, session) = edited().await;
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("made"), "made").unwrap();
    std::fs::remove_file(harness.path().join("new.txt")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("made"), harness.path().join("new.txt")).unwrap();
    let results = undone(&harness, &session).await;
    assert!(matches!(results[1].1, UndoResult::Refused { .. }), "{results:?}");
    assert!(outside.path().join("made").exists());
}

#[tokio::test]
async fn session_that_does_not_exist_is_an_error() {
    let harness = Harness::new(edits());
    let session = harness.runtime().new_session().unwrap();
    let workspace = Workspace::open(harness.path()).unwrap();
    assert!(undo(&*harness.store, &session, &workspace).await.is_err());
}
