//! Summaries that the user requests.

use brigade::core::{Event, Purpose, SessionId, Status};
use brigade::{ResumeOptions, RunError, Task};
use brigade_testing::{Fault, Reply, Script, call, fault, reply};
use serde_json::json;

use crate::run::support::{Harness, check_laws, end};

/// Summaries and replies of a conversation.
fn conversation() -> [Reply; 2] {
    [reply("They talked about tea: {heard}").purpose(Purpose::Compaction), reply("turn {turn}: {heard}")]
}

fn harness() -> Harness {
    Harness::new(Script::new().replies(conversation()))
}

/// A conversation of this many rounds.
async fn talk(harness: &Harness, rounds: u32) -> SessionId {
    let runtime = harness.runtime();
    let session = end(runtime.start(Task::new("one")).await.unwrap()).await.unwrap().session;
    for round in 1..rounds {
        runtime.tell(&session, &format!("more {round}")).await.unwrap();
        end(runtime.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    }
    session
}

async fn compact(harness: &Harness, session: &SessionId) -> Result<brigade::RunResult, RunError> {
    end(harness.runtime().compact(session, ResumeOptions::default()).await?).await
}

fn turns(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Called { purpose: Purpose::Turn, .. })).count()
}

#[tokio::test]
async fn conversation_is_summarised_on_request() {
    // Also far from the end of the context window, and if the window is unknown.
    let script = Script::new().replies(conversation());
    for script in [script.clone().window(100_000), script] {
        let harness = Harness::new(script);
        let session = talk(&harness, 3).await;
        let result = compact(&harness, &session).await.unwrap();
        assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
        assert_eq!(result.outcome.text.as_str(), "");
        let events = harness.events(&session).await;
        let summary = events.iter().find_map(|event| match event {
            Event::Compacted { summary, keep_from } => Some((summary.to_string(), *keep_from)),
            _ => None,
        });
        let (summary, keep_from) = summary.unwrap();
        assert_eq!(keep_from, 3, "the last turn stays");
        for words in ["turn 1: one", "more 1", "turn 2: more 1"] {
            assert!(summary.contains(words), "the model reads all of it: {summary}");
        }
        assert!(!summary.contains("turn 3"), "{summary}");
        assert_eq!(turns(&events), 3, "nothing else is asked");
        let state = brigade::core::State::fold(session.clone(), &events);
        assert!(format!("{:?}", state.messages()).contains("They talked about tea"));
        let runtime = harness.runtime();
        runtime.tell(&session, "and on").await.unwrap();
        let next = end(runtime.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
        assert_eq!(next.outcome.text.as_str(), "turn 5: and on");
        check_laws(&harness.log(&session).await);
    }
}

#[tokio::test]
async fn compact_without_older_turns_is_refused() {
    let harness = harness();
    let session = talk(&harness, 1).await;
    let before = harness.events(&session).await.len();
    let refused = compact(&harness, &session).await.unwrap_err().to_string();
    insta::assert_snapshot!("no_older_part", refused.replace(session.as_str(), "ID"));
    harness.runtime().tell(&session, "unheard").await.unwrap();
    let refused = compact(&harness, &session).await.unwrap_err().to_string();
    insta::assert_snapshot!("no_reply_yet", refused.replace(session.as_str(), "ID"));
    assert_eq!(harness.events(&session).await.len(), before + 1, "no round began");
}

#[tokio::test]
async fn compact_does_not_resume_stopped_work() {
    let script = Script::new()
        .turns([call("echo", json!({ "text": "x" })), fault(Fault::Hang).turn(2)])
        .replies(conversation());
    let harness = Harness::new(script);
    let runtime = harness.runtime();
    let run = runtime.start(Task::new("one")).await.unwrap();
    let session = run.session().clone();
    while turns(&harness.events(&session).await) < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    runtime.cancel(&session, "the user").await.unwrap();
    end(run).await.unwrap();
    let result = compact(&harness, &session).await.unwrap();
    assert!(matches!(result.outcome.status, Status::Cancelled { .. }), "{:?}", result.outcome);
    let events = harness.events(&session).await;
    assert!(events.iter().any(|event| matches!(event, Event::Compacted { .. })));
    assert_eq!(turns(&events), 2, "the model is not asked to continue");
    check_laws(&harness.log(&session).await);
}

#[tokio::test]
async fn summary_that_fails_leaves_the_conversation_as_it_was() {
    let harness = Harness::new(
        Script::new()
            .reply(fault(Fault::Overloaded).attempt(1).purpose(Purpose::Compaction))
            .reply(fault(Fault::Refused).purpose(Purpose::Compaction))
            .reply("turn {turn}: {heard}"),
    );
    let session = talk(&harness, 2).await;
    let result = compact(&harness, &session).await.unwrap();
    assert!(matches!(result.outcome.status, Status::Failed { .. }), "{:?}", result.outcome);
    let events = harness.events(&session).await;
    assert!(!events.iter().any(|event| matches!(event, Event::Compacted { .. })));
    let asked = |event: &&Event| matches!(event, Event::Called { purpose: Purpose::Compaction, .. });
    assert_eq!(events.iter().filter(asked).count(), 2, "a fault that may pass is tried again");
    let runtime = harness.runtime();
    runtime.tell(&session, "and on").await.unwrap();
    let next = end(runtime.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert!(next.outcome.text.as_str().ends_with(": and on"), "{:?}", next.outcome);
    check_laws(&harness.log(&session).await);
}

#[tokio::test]
async fn crash_during_a_summary_on_request_loses_nothing() {
    for appends in 0.. {
        let harness = harness();
        let session = talk(&harness, 2).await;
        harness.store.crash_after(appends);
        let is_over = compact(&harness, &session).await.is_ok();
        harness.store.repair();
        let runtime = harness.runtime();
        runtime.tell(&session, "and on").await.unwrap();
        let result = end(runtime.resume(&session, ResumeOptions::default()).await.unwrap()).await.unwrap();
        assert_eq!(result.outcome.status, Status::Done, "after {appends} appends: {:?}", result.outcome);
        assert!(result.outcome.text.as_str().ends_with("and on"), "after {appends}: {:?}", result.outcome);
        check_laws(&harness.log(&session).await);
        if is_over {
            assert!(appends > 1, "{appends}");
            return;
        }
    }
}
