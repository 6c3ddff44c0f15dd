//! Summaries that the user asks for.

use brigade::core::{Event, Purpose, SessionId, Status};
use brigade::{More, RunError, Task};

use crate::support::{Stage, check_laws, end};

const TALK: &str = r#"
[[reply]]
purpose = "compaction"
text = "They talked about tea: {heard}"
[[reply]]
text = "turn {turn}: {heard}"
"#;

/// A conversation of so many rounds.
async fn talk(stage: &Stage, rounds: u32) -> SessionId {
    let runtime = stage.runtime();
    let session = end(runtime.start(Task::new("one")).await.unwrap()).await.unwrap().session;
    for round in 1..rounds {
        runtime.tell(&session, &format!("more {round}")).await.unwrap();
        end(runtime.resume(&session, More::default()).await.unwrap()).await.unwrap();
    }
    session
}

async fn compact(stage: &Stage, session: &SessionId) -> Result<brigade::Ending, RunError> {
    end(stage.runtime().prepare_compact(session, More::default()).await?.start()).await
}

fn turns(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Called { purpose: Purpose::Turn, .. })).count()
}

#[tokio::test]
async fn a_conversation_is_summarised_on_request() {
    // Far from the end of its window too, and if the window is not known.
    for window in ["window = 100000", ""] {
        let stage = Stage::new(&format!("{window}\n{TALK}"));
        let session = talk(&stage, 3).await;
        let ending = compact(&stage, &session).await.unwrap();
        assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
        assert_eq!(ending.outcome.text.as_str(), "");
        let events = stage.events(&session).await;
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
        let runtime = stage.runtime();
        runtime.tell(&session, "and on").await.unwrap();
        let next = end(runtime.resume(&session, More::default()).await.unwrap()).await.unwrap();
        assert_eq!(next.outcome.text.as_str(), "turn 5: and on");
        check_laws(&stage.log(&session).await);
    }
}

#[tokio::test]
async fn a_conversation_without_an_older_part_is_left_alone() {
    let stage = Stage::new(TALK);
    let session = talk(&stage, 1).await;
    let before = stage.events(&session).await.len();
    let refused = compact(&stage, &session).await.unwrap_err().to_string();
    assert!(refused.starts_with("cannot compact ") && refused.contains("no older part"), "{refused}");
    stage.runtime().tell(&session, "unheard").await.unwrap();
    let refused = compact(&stage, &session).await.unwrap_err().to_string();
    assert!(refused.contains("has not answered"), "{refused}");
    assert_eq!(stage.events(&session).await.len(), before + 1, "no round began");
}

#[tokio::test]
async fn work_that_was_stopped_is_not_taken_up_by_a_summary() {
    let script = format!(
        "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'echo'\narguments = {{ text = 'x' }}\n\
         [[reply]]\nturn = 2\nfault = 'hang'\n{TALK}"
    );
    let stage = Stage::new(&script);
    let runtime = stage.runtime();
    let run = runtime.start(Task::new("one")).await.unwrap();
    let session = run.session().clone();
    while turns(&stage.events(&session).await) < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    runtime.cancel(&session, "the user").await.unwrap();
    end(run).await.unwrap();
    let ending = compact(&stage, &session).await.unwrap();
    assert!(matches!(ending.outcome.status, Status::Cancelled { .. }), "{:?}", ending.outcome);
    let events = stage.events(&session).await;
    assert!(events.iter().any(|event| matches!(event, Event::Compacted { .. })));
    assert_eq!(turns(&events), 2, "the model is not asked to continue");
    check_laws(&stage.log(&session).await);
}

#[tokio::test]
async fn a_summary_that_fails_leaves_the_conversation_as_it_was() {
    let stage = Stage::new(
        "[[reply]]\npurpose = 'compaction'\nattempt = 1\nfault = 'overloaded'\n\
         [[reply]]\npurpose = 'compaction'\nfault = 'refused'\n[[reply]]\ntext = 'turn {turn}: {heard}'",
    );
    let session = talk(&stage, 2).await;
    let ending = compact(&stage, &session).await.unwrap();
    assert!(matches!(ending.outcome.status, Status::Failed { .. }), "{:?}", ending.outcome);
    let events = stage.events(&session).await;
    assert!(!events.iter().any(|event| matches!(event, Event::Compacted { .. })));
    let asked = |event: &&Event| matches!(event, Event::Called { purpose: Purpose::Compaction, .. });
    assert_eq!(events.iter().filter(asked).count(), 2, "a fault that may pass is tried again");
    let runtime = stage.runtime();
    runtime.tell(&session, "and on").await.unwrap();
    let next = end(runtime.resume(&session, More::default()).await.unwrap()).await.unwrap();
    assert!(next.outcome.text.as_str().ends_with(": and on"), "{:?}", next.outcome);
    check_laws(&stage.log(&session).await);
}

#[tokio::test]
async fn a_crash_during_a_summary_on_request_loses_nothing() {
    for appends in 0.. {
        let stage = Stage::new(TALK);
        let session = talk(&stage, 2).await;
        stage.store.crash_after(appends);
        let is_over = compact(&stage, &session).await.is_ok();
        stage.store.mend();
        let runtime = stage.runtime();
        runtime.tell(&session, "and on").await.unwrap();
        let ending = end(runtime.resume(&session, More::default()).await.unwrap()).await.unwrap();
        assert_eq!(ending.outcome.status, Status::Done, "after {appends} appends: {:?}", ending.outcome);
        assert!(ending.outcome.text.as_str().ends_with("and on"), "after {appends}: {:?}", ending.outcome);
        check_laws(&stage.log(&session).await);
        if is_over {
            assert!(appends > 1, "{appends}");
            return;
        }
    }
}
