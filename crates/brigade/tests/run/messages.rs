//! Messages to a session: while it runs, after its end, and between a crash and its resume.

use std::time::Duration;

use brigade::core::event::Speaker;
use brigade::core::message::Stop;
use brigade::core::{Event, SessionId, Status};
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::{Models, ResumeOptions, Runtime, Settings, Task, Workspace};
use brigade_testing::{Fault, Script, call, delegate, fault, reply};
use futures::stream::BoxStream;
use serde_json::json;

use crate::run::support::{Harness, check_laws, end};

#[tokio::test]
async fn message_after_the_end_starts_a_next_round() {
    let script = Script::new().turns([reply("first"), reply("you said: {heard}")]);
    let harness = Harness::new(script);
    let result = harness.run().await;
    assert_eq!(result.outcome.text.as_str(), "first");
    harness.runtime().tell(&result.session, "and now?").await.unwrap();
    let again = end(harness.runtime().resume(&result.session, ResumeOptions::default()).await.unwrap())
        .await
        .unwrap();
    assert_eq!(again.outcome.text.as_str(), "you said: and now?");
    let log = harness.log(&result.session).await;
    assert_eq!(log.iter().filter(|record| matches!(record.event, Event::Started { .. })).count(), 2);
    check_laws(&log);
}

#[tokio::test]
async fn done_session_without_new_messages_does_nothing() {
    let harness = Harness::new(Script::new().reply("only"));
    let result = harness.run().await;
    let length = harness.log(&result.session).await.len();
    let again = end(harness.runtime().resume(&result.session, ResumeOptions::default()).await.unwrap())
        .await
        .unwrap();
    assert_eq!(again.outcome, result.outcome);
    assert_eq!(harness.log(&result.session).await.len(), length);
    assert_eq!(harness.replies.count(), 1);
}

#[tokio::test]
async fn message_during_a_reply_is_read_at_the_next_turn() {
    let script = Script::new().turns([reply("first").delay_ms(200), reply("heard {heard}")]);
    let harness = Harness::new(script);
    let runtime = harness.runtime();
    let run = runtime.start(Task::new("the task")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(60)).await;
    runtime.tell(run.session(), "one more thing").await.unwrap();
    let result = end(run).await.unwrap();
    assert_eq!(result.outcome.text.as_str(), "heard one more thing");
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn failed_session_can_be_resumed_with_another_model_reply() {
    let script = Script::new().turns([fault(Fault::Refused), reply("better")]);
    let harness = Harness::new(script);
    let result = harness.run().await;
    assert!(matches!(result.outcome.status, Status::Failed { .. }));
    let again = end(harness.runtime().resume(&result.session, ResumeOptions::default()).await.unwrap())
        .await
        .unwrap();
    assert_eq!(again.outcome.text.as_str(), "better");
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn child_can_be_resumed_after_its_tree_ended() {
    let script = Script::new()
        .agent("lead", [delegate("Child", "x"), reply("done")])
        .turns([reply("child"), reply("again: {heard}")]);
    let harness = Harness::new(script);
    let result = harness.run().await;
    let child = result.session.child("1-0".parse().unwrap());
    harness.runtime().tell(&child, "more").await.unwrap();
    let again = end(harness.runtime().resume(&child, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!(again.outcome.text.as_str(), "again: more");
    let Some(Event::Started { parent, depth, .. }) =
        harness.events(&child).await.into_iter().rev().find(|event| matches!(event, Event::Started { .. }))
    else {
        panic!("no second round")
    };
    assert_eq!((parent, depth), (None, 0));
}

/// Messages from the runtime in a session.
async fn runtime_messages(harness: &Harness, session: &SessionId) -> Vec<String> {
    let words = harness.events(session).await.into_iter().filter_map(|event| match event {
        Event::Heard { from: Speaker::Runtime, text } => Some(text.to_string()),
        _ => None,
    });
    words.collect()
}

#[tokio::test]
async fn next_round_is_told_why_the_last_one_ended() {
    let harness = Harness::new(Script::new().turns([fault(Fault::Refused), reply("better")]));
    let result = harness.run().await;
    end(harness.runtime().resume(&result.session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    let words = runtime_messages(&harness, &result.session).await;
    assert!(words[0].starts_with("Your last run failed: ") && !words[0].contains("limit"), "{words:?}");

    let script = Script::new().turns([call("echo", json!({ "text": "a" })), reply("b")]);
    let harness = Harness::new(script);
    let result = harness.run_task(Task::new("go").turns(1)).await;
    assert!(matches!(result.outcome.status, Status::Incomplete { .. }), "{:?}", result.outcome);
    end(harness.runtime().resume(&result.session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    let words = runtime_messages(&harness, &result.session).await;
    assert!(words[0].starts_with("Your last run reached its turn limit."), "{words:?}");
}

/// Replies with the name of the requested model.
struct ModelNameModel;

impl Model for ModelNameModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let chunks = [Ok(Chunk::Text(request.model)), Ok(Chunk::Done(Stop::End))];
        Box::pin(futures::stream::iter(chunks))
    }

    fn model_info(&self, _: &str) -> ModelInfo {
        ModelInfo::default()
    }
}

#[tokio::test]
async fn model_chosen_for_a_round_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new("names/first", Workspace::open(folder.path()).unwrap());
    let runtime = Runtime::in_memory(settings, Models::default().with("names", ModelNameModel));
    let result = end(runtime.start(Task::new("go")).await.unwrap()).await.unwrap();
    let session = result.session;
    let mut answers = vec![result.outcome.text.to_string()];
    for model in [None, Some("names/second"), None] {
        runtime.tell(&session, "more").await.unwrap();
        let more = ResumeOptions { model: model.map(str::to_owned), ..ResumeOptions::default() };
        let result = end(runtime.resume(&session, more).await.unwrap()).await.unwrap();
        answers.push(result.outcome.text.to_string());
    }
    assert_eq!(answers, ["first", "first", "second", "second"]);
}
