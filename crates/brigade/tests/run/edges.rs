//! Moments that are easy to get wrong.

use std::time::Duration;

use brigade::core::permission::Mode;
use brigade::core::{Event, Status};
use brigade::store::Holder;
use brigade::{More, RunError, StoreError, Task};

use crate::support::{Stage, check_laws, end};

const TWO_EDITS: &str = r#"
[[reply]]
turn = 1
[[reply.call]]
tool = "read_file"
arguments = { path = "a.txt" }
[[reply]]
turn = 2
[[reply.call]]
tool = "edit_file"
arguments = { path = "a.txt", old = "one", new = "1" }
[[reply.call]]
tool = "edit_file"
arguments = { path = "a.txt", old = "two", new = "2" }
[[reply.call]]
tool = "write_file"
arguments = { path = "b.txt", content = "b" }
[[reply]]
text = "{results}"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_edits_of_one_file_in_one_reply_all_happen() {
    for _ in 0..10 {
        let stage = Stage::new(TWO_EDITS);
        std::fs::write(stage.path().join("a.txt"), "one two\n").unwrap();
        let ending = stage.run().await;
        assert_eq!(
            std::fs::read_to_string(stage.path().join("a.txt")).unwrap(),
            "1 2\n",
            "{}",
            ending.outcome.text
        );
        assert_eq!(std::fs::read_to_string(stage.path().join("b.txt")).unwrap(), "b");
        check_laws(&stage.log(&ending.session).await);
    }
}

#[tokio::test]
async fn an_ask_rule_on_delegate_is_obeyed() {
    let script = r#"
[[reply]]
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Child", task = "x" }
[[reply]]
text = "{result:0}"
"#;
    let stage = Stage::with(script, |settings| settings.permissions.ask.push("delegate".parse().unwrap()));
    let ending = stage.run().await;
    assert!(ending.outcome.text.as_str().contains("permissions.ask"), "{}", ending.outcome.text);
    assert_eq!(ending.spent.agents, 0);
}

#[tokio::test]
async fn a_run_that_was_dropped_can_be_resumed_in_the_same_process() {
    let stage = Stage::new("[[reply]]\nturn = 1\nattempt = 1\nfault = 'hang'\n[[reply]]\ntext = 'done'");
    let runtime = stage.runtime().held_by(Holder::this_process());
    let run = runtime.start(Task::new("the task")).await.unwrap();
    let session = run.session().clone();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(
        runtime.resume(&session, More::default()).await,
        Err(RunError::Store(StoreError::Held { .. }))
    ));
    drop(run);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let ending = end(runtime.resume(&session, More::default()).await.unwrap()).await.unwrap();
    assert_eq!(ending.outcome.text.as_str(), "done");
    check_laws(&stage.log(&session).await);
}

#[tokio::test]
async fn a_mode_given_on_resume_narrows_an_open_round() {
    let script = r#"
[[reply]]
turn = 1
attempt = 1
fault = "hang"
[[reply]]
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "a", content = "b" }
[[reply]]
text = "{result:0}"
"#;
    let stage = Stage::with(script, |settings| settings.permissions.mode = Mode::Auto);
    let run = stage.start().await;
    let session = run.session().clone();
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(run);
    let more = More { mode: Some(Mode::Plan), ..More::default() };
    let ending = end(stage.runtime().resume(&session, more).await.unwrap()).await.unwrap();
    assert!(ending.outcome.text.as_str().contains("not allowed"), "{}", ending.outcome.text);
    assert!(!stage.path().join("a").exists());
}

#[tokio::test]
async fn a_child_that_went_on_by_itself_and_crashed_can_be_resumed() {
    let script = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Child", task = "x", tools = ["read_file"] }
[[reply]]
agent = "lead"
text = "done"
[[reply]]
turn = 1
text = "child"
[[reply]]
turn = 2
attempt = 1
fault = "hang"
[[reply]]
turn = 2
[[reply.call]]
tool = "write_file"
arguments = { path = "a", content = "b" }
[[reply]]
text = "{result:0}"
"#;
    let stage = Stage::new(script);
    let ending = stage.run().await;
    let child = ending.session.child("1-0".parse().unwrap());
    stage.runtime().tell(&child, "more").await.unwrap();
    let run = stage.runtime().resume(&child, More::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(run);
    let ending = end(stage.runtime().resume(&child, More::default()).await.unwrap()).await.unwrap();
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(
        ending.outcome.text.as_str().contains("There is no tool 'write_file'"),
        "{}",
        ending.outcome.text
    );
    check_laws(&stage.log(&child).await);
}

#[tokio::test]
async fn a_reply_that_was_cut_is_charged_in_doubt_and_none_of_its_calls_run() {
    let script = r#"
[[reply]]
turn = 1
attempt = 1
fault = "cut"
text = "half"
[[reply.call]]
tool = "write_file"
arguments = { path = "a", content = "b" }
[[reply]]
text = "whole"
"#;
    let stage = Stage::new(script);
    let ending = stage.run().await;
    assert_eq!(ending.outcome.text.as_str(), "whole");
    assert!(ending.spent.in_doubt.tokens > 0);
    assert!(!stage.path().join("a").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_words_that_race_with_a_call_are_paid_for() {
    for delay in 0..12 {
        let stage = Stage::new(
            "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'echo'\narguments = { text = 'e' }\n[[reply]]\ntext = 'ok'",
        );
        let runtime = stage.runtime();
        let run = runtime.start(Task::new("the task")).await.unwrap();
        let session = run.session().clone();
        tokio::time::sleep(Duration::from_micros(delay * 100)).await;
        let _ = runtime.tell(&session, &"word ".repeat(20_000)).await;
        let ending = end(run).await.unwrap();
        assert_eq!(ending.outcome.status, Status::Done);
        assert_eq!(ending.spent.overrun.tokens, 0);
        let log = stage.log(&session).await;
        let ended = log.iter().rposition(|record| matches!(record.event, Event::Ended { .. })).unwrap();
        assert!(log[ended..].iter().all(|record| !matches!(record.event, Event::Called { .. })));
    }
}

#[tokio::test]
async fn a_next_round_keeps_the_mode_of_the_last_one() {
    let script = r#"
[[reply]]
turn = 1
text = "first"
[[reply]]
turn = 2
[[reply.call]]
tool = "write_file"
arguments = { path = "a", content = "b" }
[[reply]]
text = "{result:0}"
"#;
    let mode = std::sync::Arc::new(std::sync::Mutex::new(Mode::Plan));
    let current = mode.clone();
    let stage = Stage::with(script, move |settings| settings.permissions.mode = *current.lock().unwrap());
    let ending = stage.run().await;
    // The settings of the next runner are wider; the session is as narrow as it was, unless the caller says otherwise.
    *mode.lock().unwrap() = Mode::Auto;
    stage.runtime().tell(&ending.session, "more").await.unwrap();
    let again = end(stage.runtime().resume(&ending.session, More::default()).await.unwrap()).await.unwrap();
    assert!(again.outcome.text.as_str().contains("not allowed"), "{}", again.outcome.text);
}

#[tokio::test]
async fn a_last_word_after_a_short_time_limit_is_short_too() {
    let stage = Stage::new("[[reply]]\nfault = 'hang'");
    let started = std::time::Instant::now();
    let ending = stage.run_task(Task::new("go").timeout(Duration::from_millis(200))).await;
    assert!(matches!(ending.outcome.status, Status::Incomplete { .. }));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}
