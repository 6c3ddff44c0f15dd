//! Edge cases of runs.

use std::time::Duration;

use brigade::core::permission::Mode;
use brigade::core::{Event, Status};
use brigade::store::Owner;
use brigade::{ResumeOptions, RunError, StoreError, Task};
use brigade_testing::{Fault, Script, call, delegate, fault, reply};
use serde_json::json;

use crate::run::support::{Harness, check_laws, end};

fn two_edits() -> Script {
    Script::new().turns([
        call("read_file", json!({ "path": "a.txt" })),
        call("edit_file", json!({ "path": "a.txt", "old": "one", "new": "1" }))
            .call("edit_file", json!({ "path": "a.txt", "old": "two", "new": "2" }))
            .call("write_file", json!({ "path": "b.txt", "content": "b" })),
        reply("{results}"),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_of_one_file_in_one_reply_all_happen() {
    for _ in 0..10 {
        let harness = Harness::new(two_edits());
        std::fs::write(harness.path().join("a.txt"), "one two\n").unwrap();
        let result = harness.run().await;
        assert_eq!(
            std::fs::read_to_string(harness.path().join("a.txt")).unwrap(),
            "1 2\n",
            "{}",
            result.outcome.text
        );
        assert_eq!(std::fs::read_to_string(harness.path().join("b.txt")).unwrap(), "b");
        check_laws(&harness.log(&result.session).await);
    }
}

#[tokio::test]
async fn ask_rule_on_delegate_requests_approval() {
    let script = Script::new().turns([delegate("Child", "x"), reply("{result:0}")]);
    let harness =
        Harness::with(script, |settings| settings.permissions.ask.push("delegate".parse().unwrap()));
    let result = harness.run().await;
    insta::assert_snapshot!(result.outcome.text.as_str());
    assert_eq!(result.spent.agents, 0);
}

#[tokio::test]
async fn dropped_run_can_be_resumed_in_the_same_process() {
    let harness = Harness::new(Script::new().turns([fault(Fault::Hang).attempt(1), reply("done")]));
    let runtime = harness.runtime().with_owner(Owner::this_process());
    let run = runtime.start(Task::new("the task")).await.unwrap();
    let session = run.session().clone();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(
        runtime.resume(&session, ResumeOptions::default()).await,
        Err(RunError::Store(StoreError::Held { .. }))
    ));
    drop(run);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let result = end(runtime.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!(result.outcome.text.as_str(), "done");
    check_laws(&harness.log(&session).await);
}

#[tokio::test]
async fn mode_given_on_resume_narrows_an_open_round() {
    let script = Script::new()
        .turns([
            fault(Fault::Hang).attempt(1),
            call("write_file", json!({ "path": "a", "content": "b" })).turn(1),
        ])
        .reply("{result:0}");
    let harness = Harness::with(script, |settings| settings.permissions.mode = Mode::Auto);
    let run = harness.start().await;
    let session = run.session().clone();
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(run);
    let more = ResumeOptions { mode: Some(Mode::Plan), ..ResumeOptions::default() };
    let result = end(harness.runtime().resume(&session, more).await.unwrap()).await.unwrap();
    insta::assert_snapshot!(result.outcome.text.as_str());
    assert!(!harness.path().join("a").exists());
}

#[tokio::test]
async fn detached_child_that_crashed_can_be_resumed() {
    let script = Script::new()
        .agent(
            "lead",
            [
                call("delegate", json!({ "role": "Child", "task": "x", "tools": ["read_file"] })),
                reply("done"),
            ],
        )
        .turns([
            reply("child"),
            fault(Fault::Hang).attempt(1),
            call("write_file", json!({ "path": "a", "content": "b" })).turn(2),
        ])
        .reply("{result:0}");
    let harness = Harness::new(script);
    let result = harness.run().await;
    let child = result.session.child("1-0".parse().unwrap());
    harness.runtime().tell(&child, "more").await.unwrap();
    let run = harness.runtime().resume(&child, ResumeOptions::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(run);
    let result =
        end(harness.runtime().resume(&child, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!(result.outcome.status, Status::Done);
    insta::assert_snapshot!(result.outcome.text.as_str());
    check_laws(&harness.log(&child).await);
}

#[tokio::test]
async fn cut_reply_is_charged_unconfirmed_and_runs_no_calls() {
    let script = Script::new().turns([
        reply("half").call("write_file", json!({ "path": "a", "content": "b" })).fault(Fault::Cut).attempt(1),
        reply("whole"),
    ]);
    let harness = Harness::new(script);
    let result = harness.run().await;
    assert_eq!(result.outcome.text.as_str(), "whole");
    assert!(result.spent.unconfirmed.tokens > 0);
    assert!(!harness.path().join("a").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_message_during_a_model_call_is_paid_for() {
    for delay in 0..12 {
        let harness = Harness::new(Script::new().turns([call("echo", json!({ "text": "e" })), reply("ok")]));
        let runtime = harness.runtime();
        let run = runtime.start(Task::new("the task")).await.unwrap();
        let session = run.session().clone();
        tokio::time::sleep(Duration::from_micros(delay * 100)).await;
        let _ = runtime.tell(&session, &"word ".repeat(20_000)).await;
        let result = end(run).await.unwrap();
        assert_eq!(result.outcome.status, Status::Done);
        assert_eq!(result.spent.overrun.tokens, 0);
        let log = harness.log(&session).await;
        let ended = log.iter().rposition(|record| matches!(record.event, Event::Ended { .. })).unwrap();
        assert!(log[ended..].iter().all(|record| !matches!(record.event, Event::Called { .. })));
    }
}

#[tokio::test]
async fn next_round_keeps_the_mode_of_the_last_one() {
    let script = Script::new().turns([
        reply("first"),
        call("write_file", json!({ "path": "a", "content": "b" })),
        reply("{result:0}"),
    ]);
    let mode = std::sync::Arc::new(std::sync::Mutex::new(Mode::Plan));
    let current = mode.clone();
    let harness = Harness::with(script, move |settings| settings.permissions.mode = *current.lock().unwrap());
    let result = harness.run().await;
    // The next runner's settings are wider. The session keeps its narrow mode unless the caller chooses another.
    *mode.lock().unwrap() = Mode::Auto;
    harness.runtime().tell(&result.session, "more").await.unwrap();
    let again = end(harness.runtime().resume(&result.session, ResumeOptions::default()).await.unwrap())
        .await
        .unwrap();
    insta::assert_snapshot!(again.outcome.text.as_str());
}

#[tokio::test]
async fn wrap_up_after_a_short_timeout_is_short_too() {
    let harness = Harness::new(Script::new().reply(fault(Fault::Hang)));
    let started = std::time::Instant::now();
    let result = harness.run_task(Task::new("go").timeout(Duration::from_millis(200))).await;
    assert!(matches!(result.outcome.status, Status::Incomplete { .. }));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}
