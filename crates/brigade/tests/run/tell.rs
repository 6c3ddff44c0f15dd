//! Words to a session: while it runs, after its end, and between a crash and its resume.

use std::time::Duration;

use brigade::core::event::Speaker;
use brigade::core::message::Stop;
use brigade::core::{Event, SessionId, Status};
use brigade::model::{About, Chunk, Model, ModelError, Request};
use brigade::{Models, More, Runtime, Settings, Task, Workspace};
use futures::stream::BoxStream;

use crate::support::{Stage, check_laws, end};

#[tokio::test]
async fn words_after_the_end_ask_for_a_next_round() {
    let script = r#"
[[reply]]
turn = 1
text = "first"
[[reply]]
text = "you said: {heard}"
"#;
    let stage = Stage::new(script);
    let ending = stage.run().await;
    assert_eq!(ending.outcome.text.as_str(), "first");
    stage.runtime().tell(&ending.session, "and now?").await.unwrap();
    let again = end(stage.runtime().resume(&ending.session, More::default()).await.unwrap()).await.unwrap();
    assert_eq!(again.outcome.text.as_str(), "you said: and now?");
    let log = stage.log(&ending.session).await;
    assert_eq!(log.iter().filter(|record| matches!(record.event, Event::Started { .. })).count(), 2);
    check_laws(&log);
}

#[tokio::test]
async fn a_done_session_without_new_words_has_nothing_to_do() {
    let stage = Stage::new("[[reply]]\ntext = 'only'");
    let ending = stage.run().await;
    let length = stage.log(&ending.session).await.len();
    let again = end(stage.runtime().resume(&ending.session, More::default()).await.unwrap()).await.unwrap();
    assert_eq!(again.outcome, ending.outcome);
    assert_eq!(stage.log(&ending.session).await.len(), length);
    assert_eq!(stage.replies.count(), 1);
}

#[tokio::test]
async fn words_while_the_model_answers_are_heard_at_the_next_step() {
    let script = r#"
[[reply]]
turn = 1
delay_ms = 200
text = "first"
[[reply]]
text = "heard {heard}"
"#;
    let stage = Stage::new(script);
    let runtime = stage.runtime();
    let run = runtime.start(Task::new("the task")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(60)).await;
    runtime.tell(run.session(), "one more thing").await.unwrap();
    let ending = end(run).await.unwrap();
    assert_eq!(ending.outcome.text.as_str(), "heard one more thing");
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn a_failed_session_can_be_resumed_with_another_model_reply() {
    let script = r#"
[[reply]]
turn = 1
fault = "refused"
[[reply]]
text = "better"
"#;
    let stage = Stage::new(script);
    let ending = stage.run().await;
    assert!(matches!(ending.outcome.status, Status::Failed { .. }));
    let again = end(stage.runtime().resume(&ending.session, More::default()).await.unwrap()).await.unwrap();
    assert_eq!(again.outcome.text.as_str(), "better");
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn a_child_can_go_on_by_itself_after_its_tree_ended() {
    let script = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Child", task = "x" }
[[reply]]
agent = "lead"
text = "done"
[[reply]]
turn = 1
text = "child"
[[reply]]
text = "again: {heard}"
"#;
    let stage = Stage::new(script);
    let ending = stage.run().await;
    let child = ending.session.child("1-0".parse().unwrap());
    stage.runtime().tell(&child, "more").await.unwrap();
    let again = end(stage.runtime().resume(&child, More::default()).await.unwrap()).await.unwrap();
    assert_eq!(again.outcome.text.as_str(), "again: more");
    let Some(Event::Started { parent, depth, .. }) =
        stage.events(&child).await.into_iter().rev().find(|event| matches!(event, Event::Started { .. }))
    else {
        panic!("no second round")
    };
    assert_eq!((parent, depth), (None, 0));
}

/// The words of the runtime in a session.
async fn runtime_words(stage: &Stage, session: &SessionId) -> Vec<String> {
    let words = stage.events(session).await.into_iter().filter_map(|event| match event {
        Event::Heard { from: Speaker::Runtime, text } => Some(text.to_string()),
        _ => None,
    });
    words.collect()
}

#[tokio::test]
async fn a_next_round_is_told_why_the_last_one_ended() {
    let stage = Stage::new("[[reply]]\nturn = 1\nfault = 'refused'\n[[reply]]\ntext = 'better'\n");
    let ending = stage.run().await;
    end(stage.runtime().resume(&ending.session, More::default()).await.unwrap()).await.unwrap();
    let words = runtime_words(&stage, &ending.session).await;
    assert!(words[0].starts_with("Your last round failed: ") && !words[0].contains("limit"), "{words:?}");

    let script = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'echo'\narguments = { text = 'a' }\n[[reply]]\ntext = 'b'\n";
    let stage = Stage::new(script);
    let ending = stage.run_task(Task::new("go").turns(1)).await;
    assert!(matches!(ending.outcome.status, Status::Incomplete { .. }), "{:?}", ending.outcome);
    end(stage.runtime().resume(&ending.session, More::default()).await.unwrap()).await.unwrap();
    let words = runtime_words(&stage, &ending.session).await;
    assert!(words[0].starts_with("Your last round reached its turn limit."), "{words:?}");
}

/// Answers with the name of the model that is asked.
struct Names;

impl Model for Names {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let chunks = [Ok(Chunk::Text(request.model)), Ok(Chunk::Done(Stop::End))];
        Box::pin(futures::stream::iter(chunks))
    }

    fn about(&self, _: &str) -> About {
        About::default()
    }
}

#[tokio::test]
async fn a_model_that_is_named_for_a_round_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new("names/first", Workspace::open(folder.path()).unwrap());
    let runtime = Runtime::in_memory(settings, Models::default().with("names", Names));
    let ending = end(runtime.start(Task::new("go")).await.unwrap()).await.unwrap();
    let session = ending.session;
    let mut answers = vec![ending.outcome.text.to_string()];
    for model in [None, Some("names/second"), None] {
        runtime.tell(&session, "more").await.unwrap();
        let more = More { model: model.map(str::to_owned), ..More::default() };
        let ending = end(runtime.resume(&session, more).await.unwrap()).await.unwrap();
        answers.push(ending.outcome.text.to_string());
    }
    assert_eq!(answers, ["first", "first", "second", "second"]);
}
