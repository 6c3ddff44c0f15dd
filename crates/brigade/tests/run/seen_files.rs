//! Writes to files that other agents or programs have changed.

use std::borrow::Cow;
use std::time::Duration;

use brigade::core::event::Effect;
use brigade::core::{Event, Status, ToolOutput};
use brigade::{ResumeOptions, Settings, Tool, ToolContext};
use brigade_testing::{Fault, Reply, Script, call, delegate, fault, reply};
use serde_json::json;

use crate::run::support::{Harness, check_laws, end};

fn content(harness: &Harness, path: &str) -> String {
    std::fs::read_to_string(harness.path().join(path)).unwrap()
}

fn put(harness: &Harness, path: &str, content: &str) {
    std::fs::write(harness.path().join(path), content).unwrap();
}

/// A tool that changes files without the file tools, like another program.
struct ExternalEdit;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct ExternalEditInput {
    path: String,
    content: String,
}

impl Tool for ExternalEdit {
    const NAME: &'static str = "meddle";
    type Input = ExternalEditInput;

    fn description(&self) -> Cow<'static, str> {
        "Change a file.".into()
    }

    fn effect(&self) -> Effect {
        Effect::Opaque
    }

    async fn run(&self, input: ExternalEditInput, context: &ToolContext) -> ToolOutput {
        std::fs::write(context.files.workspace().root().join(&input.path), input.content).unwrap();
        ToolOutput::ok("done")
    }
}

fn with_external_edit(settings: &mut Settings) {
    settings.tools = settings.tools.clone().with(ExternalEdit);
    settings.permissions.mode = brigade::core::permission::Mode::Auto;
}

/// A script of the lead, with a reply for each turn.
fn script(turns: impl IntoIterator<Item = Reply>) -> Script {
    Script::new().agent("lead", turns.into_iter().chain([reply("done")]))
}

async fn answers(harness: &Harness) -> Vec<String> {
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done);
    check_laws(&harness.log(&result.session).await);
    harness.answers(&result.session).await
}

/// Adds a lead that reads a file, lets a `Coder` write it, and then changes the content it had read.
fn stale(script: Script) -> Script {
    let calls = call("write_file", json!({ "path": "calc.py", "content": "lead" }))
        .call("edit_file", json!({ "path": "calc.py", "old": "old", "new": "new" }));
    script
        .agent(
            "lead",
            [
                call("read_file", json!({ "path": "./calc.py" })),
                delegate("Coder", "x"),
                calls,
                call("read_file", json!({ "path": "calc.py" })),
                call("edit_file", json!({ "path": "calc.py", "old": "coder", "new": "coder and lead" })),
                reply("done"),
            ],
        )
        .agent(
            "Coder",
            [
                call("read_file", json!({ "path": "calc.py" })),
                call("write_file", json!({ "path": "calc.py", "content": "coder" })),
                reply("coded"),
            ],
        )
}

const REFUSAL: &str = "calc.py was changed by Coder since you read it. Read it again.";

#[tokio::test]
async fn change_of_a_file_that_another_agent_changed_is_refused_and_names_it() {
    let harness = Harness::new(stale(Script::new()));
    put(&harness, "calc.py", "old");
    let answers = answers(&harness).await;
    assert_eq!(answers[2..4], [REFUSAL, REFUSAL], "{answers:?}");
    assert_eq!(content(&harness, "calc.py"), "coder and lead");
}

#[tokio::test]
async fn writer_is_named_after_a_resume() {
    // The first attempt at the third turn hangs.
    let script = Script::new().reply(fault(Fault::Hang).agent("lead").turn(3).attempt(1));
    let harness = Harness::new(stale(script));
    put(&harness, "calc.py", "old");
    let run = harness.start().await;
    let root = run.session().clone();
    let is_asked =
        |events: &[Event]| events.iter().any(|event| matches!(event, Event::Called { turn: 3, .. }));
    while !is_asked(&harness.events(&root).await) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(run);
    let result = end(harness.runtime().resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!(result.outcome.status, Status::Done);
    assert_eq!(harness.answers(&root).await[2..4], [REFUSAL, REFUSAL]);
    assert_eq!(content(&harness, "calc.py"), "coder and lead");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writes_at_the_same_moment_do_not_both_succeed() {
    let agent = |name: &str| {
        [
            call("read_file", json!({ "path": "calc.py" })).agent(name).turn(1),
            call("write_file", json!({ "path": "calc.py", "content": name }))
                .agent(name)
                .turn(2)
                .delay_ms(60),
        ]
    };
    let script = Script::new()
        .agent("lead", [delegate("Coder", "x").delegate("Tester", "x").turn(1)])
        .replies(agent("Coder"))
        .replies(agent("Tester"))
        .reply("done");
    for _ in 0..20 {
        let harness = Harness::new(&script);
        put(&harness, "calc.py", "old");
        let result = harness.run().await;
        let coder = harness.answers(&result.session.child("1-0".parse().unwrap())).await;
        let tester = harness.answers(&result.session.child("1-1".parse().unwrap())).await;
        // An agent that started late and read the other's content may replace it.
        let has_read = |answers: &[String]| answers[0] != "old";
        let wrote = |answers: &[String]| answers[1].starts_with("Wrote");
        assert!(wrote(&coder) || wrote(&tester), "{coder:?} {tester:?}");
        match (wrote(&coder), wrote(&tester)) {
            (true, true) => assert!(has_read(&coder) || has_read(&tester), "{coder:?} {tester:?}"),
            (true, false) => assert_eq!(tester[1], REFUSAL),
            (false, true) => assert_eq!(coder[1], REFUSAL.replace("Coder", "Tester")),
            (false, false) => {}
        }
        check_laws(&harness.log(&result.session).await);
    }
}

#[tokio::test]
async fn change_of_a_file_that_was_not_read_is_refused() {
    let harness = Harness::new(script([
        call("grep", json!({ "pattern": "old" })),
        call("write_file", json!({ "path": "a", "content": "new" }))
            .call("edit_file", json!({ "path": "a", "old": "old", "new": "new" }))
            // A file that the agent reads in the same reply is not read yet.
            .call("read_file", json!({ "path": "a" })),
        call("write_file", json!({ "path": "a", "content": "new" })),
    ]));
    put(&harness, "a", "old\n");
    let answers = answers(&harness).await;
    let refusal = "a exists, but you have not read it. Read it first.";
    assert_eq!(answers[1..3], [refusal, refusal]);
    assert_eq!(content(&harness, "a"), "new", "{answers:?}");
}

#[tokio::test]
async fn partial_read_suffices_for_an_edit_only() {
    let read = || json!({ "path": "a", "offset": 2, "limit": 1 });
    let harness = Harness::new(script([
        call("read_file", read()),
        call("write_file", json!({ "path": "a", "content": "new" })),
        call("edit_file", json!({ "path": "a", "old": "two", "new": "2" })),
        // Its own edit of a part does not show it the rest.
        call("write_file", json!({ "path": "a", "content": "new" })),
        call("read_file", json!({ "path": "a" })).call("read_file", read()),
        call("write_file", json!({ "path": "a", "content": "new" })),
    ]));
    put(&harness, "a", "one\ntwo\nthree\n");
    let answers = answers(&harness).await;
    let refusal = "You have read only part of a. Read all of it before you replace it, or use `edit_file`.";
    assert_eq!([&answers[1], &answers[3]], [refusal, refusal]);
    assert!(answers[2].starts_with("Changed a\n") && answers[6] == "Wrote 3 bytes to a", "{answers:?}");
}

#[tokio::test]
async fn own_writes_count_as_seen_under_any_path_spelling() {
    let harness = Harness::new(script([
        call("write_file", json!({ "path": "d/a", "content": "one" })),
        call("edit_file", json!({ "path": "./d/../d/a", "old": "one", "new": "two" })),
        call("write_file", json!({ "path": "./d/a", "content": "three" })),
        call("edit_file", json!({ "path": "link", "old": "three", "new": "four" })),
    ]));
    std::os::unix::fs::symlink("d/a", harness.path().join("link")).unwrap();
    let answers = answers(&harness).await;
    assert_eq!(content(&harness, "d/a"), "four", "{answers:?}");
}

#[tokio::test]
async fn change_by_another_program_is_noticed() {
    let harness = Harness::with(
        script([
            call("read_file", json!({ "path": "a" })),
            call("meddle", json!({ "path": "a", "content": "meddled\n" })),
            call("edit_file", json!({ "path": "a", "old": "one", "new": "two" })),
            call("write_file", json!({ "path": "a", "content": "new" })),
        ]),
        with_external_edit,
    );
    put(&harness, "a", "one\n");
    let answers = answers(&harness).await;
    let refusal = "a was changed by another program since you read it. Read it again.";
    assert_eq!(answers[2..], [refusal, refusal]);
    assert_eq!(content(&harness, "a"), "meddled\n");
}

#[tokio::test]
async fn write_that_changes_nothing_needs_no_read() {
    let harness = Harness::new(script([call("write_file", json!({ "path": "a", "content": "same" }))]));
    put(&harness, "a", "same");
    assert_eq!(answers(&harness).await, ["Wrote 4 bytes to a"]);
}

#[tokio::test]
async fn agent_without_a_read_tool_is_shown_the_content_with_the_refusal() {
    let script = Script::new()
        .agent(
            "lead",
            [
                call("delegate", json!({ "role": "Writer", "task": "x", "tools": ["write_file"] })),
                reply("done"),
            ],
        )
        .agent(
            "Writer",
            [
                call("write_file", json!({ "path": "a", "content": "new" }))
                    .call("write_file", json!({ "path": "binary", "content": "new" })),
                call("write_file", json!({ "path": "a", "content": "new" })),
                reply("written"),
            ],
        );
    let harness = Harness::new(script);
    put(&harness, "a", "one\ntwo\n");
    put(&harness, "binary", "\0");
    let result = harness.run().await;
    let writer = result.session.child("1-0".parse().unwrap());
    let answers = harness.answers(&writer).await;
    let refusal = "a exists, but you have not read it. Nothing was written. Repeat the change if it still \
                   applies to the current content:\none\ntwo\n";
    assert_eq!(answers[0], refusal);
    assert!(answers[1].starts_with("binary exists, but you have not read it. Its content cannot be shown"));
    assert_eq!(answers[2], "Wrote 3 bytes to a");
    assert_eq!((content(&harness, "a"), content(&harness, "binary")), ("new".to_owned(), "\0".to_owned()));
}

#[tokio::test]
async fn seen_files_survive_a_crash() {
    let text = script([
        call("read_file", json!({ "path": "a" })),
        call("edit_file", json!({ "path": "a", "old": "one", "new": "two" })),
        call("write_file", json!({ "path": "a", "content": "three" })),
    ]);
    for appends in 0.. {
        let harness = Harness::new(&text);
        put(&harness, "a", "one\n");
        let (ended, root) = crate::run::crash::run_until_crash(&harness, None, appends).await;
        let Some(root) = root.filter(|_| appends > 0) else { continue };
        if ended.is_some() {
            assert!(appends > 3);
            return;
        }
        if harness.log(&root).await.is_empty() {
            continue;
        }
        let result = crate::run::crash::resume(&harness, &root).await;
        assert_eq!(result.outcome.status, Status::Done, "after {appends} appends");
        let failed = harness
            .events(&root)
            .await
            .into_iter()
            .find(|event| matches!(event, Event::ToolEnded { output, .. } if output.is_error()));
        assert!(failed.is_none(), "after {appends} appends: {failed:?}");
        assert_eq!(content(&harness, "a"), "three", "after {appends} appends");
        check_laws(&harness.log(&root).await);
    }
}
