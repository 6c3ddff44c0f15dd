//! Conversations that exceed the context window, fallback models, and empty replies.

use std::sync::{Arc, Mutex};

use brigade::core::event::CallFault;
use brigade::core::{Event, Message, Purpose, Status};
use brigade::model::script;
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::store::memory::MemoryStore;
use brigade::{Models, RunResult, Runtime, Settings, Task, Workspace};
use brigade_testing::{Fault, Script, call, delegate, fault, reply};
use futures::stream::BoxStream;
use serde_json::json;

use crate::run::support::{Harness, check_laws, end};

/// Ten turns of 2,000 bytes each, in a context window that holds four of them.
fn growing() -> Harness {
    let text = format!("{} {{turn}}", "0123456789".repeat(200));
    let script = Script::new()
        .window(2500)
        .reply(reply("Summary at {turn}.").purpose(Purpose::Compaction))
        .reply(reply("done").turn(14))
        .reply(call("echo", json!({ "text": text })));
    Harness::new(script)
}

fn count(events: &[Event], wanted: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| wanted(event)).count()
}

#[tokio::test]
async fn conversation_near_the_window_is_summarised_and_continues() {
    let harness = growing();
    let result = harness.run().await;
    assert_eq!((&result.outcome.status, result.outcome.text.as_str()), (&Status::Done, "done"));
    let log = harness.log(&result.session).await;
    check_laws(&log);
    let events = harness.events(&result.session).await;
    let summaries = count(&events, |event| matches!(event, Event::Compacted { .. }));
    assert!((2..=6).contains(&summaries), "{summaries}");
    let overflows =
        count(&events, |event| matches!(event, Event::CallFailed { cause: CallFault::Overflow { .. }, .. }));
    assert_eq!(overflows, 0, "it was known beforehand");
    let answered = count(&events, |event| matches!(event, Event::ToolEnded { .. }));
    let called = count(&events, |event| matches!(event, Event::Called { purpose: Purpose::Turn, .. }));
    assert_eq!(answered + 1, called, "the log keeps every turn");
}

#[tokio::test]
async fn summary_survives_a_crash_at_every_append() {
    for appends in 1.. {
        let harness = growing();
        harness.store.crash_after(appends);
        let run = harness.start().await;
        let session = run.session().clone();
        if let Ok(result) = end(run).await {
            assert_eq!(result.outcome.text.as_str(), "done");
            assert!(appends > 20, "{appends}");
            return;
        }
        harness.store.repair();
        let run = harness.runtime().resume(&session, brigade::ResumeOptions::default()).await.unwrap();
        let result = end(run).await.unwrap();
        assert_eq!(result.outcome.status, Status::Done, "after {appends} appends: {:?}", result.outcome);
        check_laws(&harness.log(&session).await);
    }
}

#[tokio::test]
async fn conversation_that_the_model_refuses_is_summarised_and_asked_again() {
    let harness =
        Harness::new(Script::new().reply(reply("It was read.").purpose(Purpose::Compaction)).turns([
            reply("I look.").call("echo", json!({ "text": "much" })),
            fault(Fault::Overflow),
            reply("end: {messages}"),
        ]));
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    let events = harness.events(&result.session).await;
    let summary = events.iter().find_map(|event| match event {
        Event::Compacted { summary, keep_from } => Some((summary.to_string(), *keep_from)),
        _ => None,
    });
    assert_eq!(summary, Some(("It was read.".to_owned(), 2)));
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn task_longer_than_the_window_fails_with_a_clear_error() {
    let harness = Harness::new(Script::new().window(2000).reply("never"));
    let result = harness.run_task(Task::new("x".repeat(20_000))).await;
    let Status::Failed { cause } = &result.outcome.status else { panic!("{:?}", result.outcome) };
    assert!(cause.contains("the model's context window holds only 2000. Shorten the task"), "{cause}");
    assert_eq!(harness.replies.count(), 0, "nothing is spent on it");
    // A request that may fit is sent, and the model decides.
    let harness = Harness::new(Script::new().window(4000).reply("never"));
    let result = harness.run_task(Task::new("x".repeat(16_000))).await;
    let Status::Failed { cause } = &result.outcome.status else { panic!("{:?}", result.outcome) };
    assert!(cause.contains("exceeds the context window"), "{cause}");
    assert_eq!(harness.replies.count(), 1, "it is not asked again and again");
}

/// A model that records its requests.
struct RecordingModel {
    script: script::Script,
    heard: Arc<Mutex<Vec<Request>>>,
}

impl Model for RecordingModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        self.heard.lock().unwrap().push(request.clone());
        self.script.stream(request)
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.script.model_info(model)
    }
}

/// Runs a task with the models `a`, `b` and `c`, of which the last two are fallbacks.
async fn run_with_three_models(
    scripts: [Script; 3],
    tweak: impl Fn(&mut Settings),
) -> (RunResult, Vec<Event>, [Vec<Request>; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::new("a/one", Workspace::open(folder.path()).unwrap());
    settings.limits.retry_pause = std::time::Duration::from_millis(5);
    settings.fallbacks = vec!["b/two".to_owned(), "nobody/there".to_owned(), "c/three".to_owned()];
    tweak(&mut settings);
    let heard: [Arc<Mutex<Vec<Request>>>; 3] = Default::default();
    let mut models = Models::default();
    for ((name, script), heard) in ["a", "b", "c"].into_iter().zip(scripts).zip(&heard) {
        models = models.with(name, RecordingModel { script: script.model(), heard: heard.clone() });
    }
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::new(store.clone(), settings, models);
    let result = end(runtime.start(Task::new("go")).await.unwrap()).await.unwrap();
    let records = brigade::Store::read(&*store, &result.session, 0).await.unwrap();
    let events = records.into_iter().map(|record| record.event).collect();
    (result, events, heard.map(|heard| heard.lock().unwrap().clone()))
}

fn refusing_script() -> Script {
    Script::new().reply(fault(Fault::Refused))
}

fn overloaded_script() -> Script {
    Script::new().reply(fault(Fault::Overloaded))
}

fn answering_script() -> Script {
    Script::new().reply("here")
}

#[tokio::test]
async fn fallback_takes_over_when_a_model_fails() {
    let (result, events, heard) =
        run_with_three_models([refusing_script(), overloaded_script(), answering_script()], |_| {}).await;
    assert_eq!((&result.outcome.status, result.outcome.text.as_str()), (&Status::Done, "here"));
    assert_eq!(heard.each_ref().map(Vec::len), [1, 3, 1], "what may pass is tried again first");
    assert_eq!(heard[2][0].model, "three");
    let next: Vec<String> = events
        .iter()
        .filter_map(|event| match event {
            Event::CallFailed { cause: CallFault::GivenUp { next, .. }, .. } => Some(next.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(next, ["b/two", "c/three"], "one that cannot be used is passed over");
}

#[tokio::test]
async fn last_fallback_reports_its_own_error() {
    let (result, ..) =
        run_with_three_models([refusing_script(), refusing_script(), refusing_script()], |_| {}).await;
    let Status::Failed { cause } = &result.outcome.status else { panic!("{:?}", result.outcome) };
    assert_eq!(cause, "the scripted model refuses");
}

#[tokio::test]
async fn later_turns_use_the_fallback() {
    let b = Script::new().turns([call("echo", json!({ "text": "x" })), reply("two")]);
    let (result, _, heard) = run_with_three_models([refusing_script(), b, answering_script()], |_| {}).await;
    assert_eq!(result.outcome.text.as_str(), "two");
    assert_eq!(heard.each_ref().map(Vec::len), [1, 2, 0]);
    assert!(matches!(heard[1][1].messages.last(), Some(Message::Results(_))));
}

#[tokio::test]
async fn children_inherit_the_chain_unless_they_have_a_model_of_their_own() {
    let lead = Script::new()
        .agent("Child", [fault(Fault::Refused)])
        .turns([delegate("Child", "help"), reply("end {results}")]);
    let (result, _, heard) =
        run_with_three_models([lead.clone(), answering_script(), answering_script()], |_| {}).await;
    assert_eq!(result.outcome.text.as_str(), "end [Child]: here");
    assert_eq!(heard.each_ref().map(Vec::len), [3, 1, 0]);
    let own = |settings: &mut Settings| settings.delegation_styles.swarm.model = Some("a/other".to_owned());
    let (result, _, heard) = run_with_three_models([lead, answering_script(), answering_script()], own).await;
    assert!(result.outcome.text.as_str().contains("the scripted model refuses"), "{:?}", result.outcome);
    assert_eq!(heard.each_ref().map(Vec::len), [3, 0, 0]);
}

#[tokio::test]
async fn disallowed_model_is_no_fallback() {
    let only = |settings: &mut Settings| {
        settings.models =
            brigade::core::grant::Names::Only(["a/one".to_owned(), "c/three".to_owned()].into());
    };
    let (result, _, heard) =
        run_with_three_models([refusing_script(), answering_script(), answering_script()], only).await;
    assert_eq!(result.outcome.status, Status::Done);
    assert_eq!(heard.each_ref().map(Vec::len), [1, 0, 1]);
}

#[tokio::test]
async fn empty_reply_is_not_a_result() {
    let harness = Harness::new(Script::new().reply(reply("").attempt(1)).reply("said"));
    let result = harness.run().await;
    assert_eq!(result.outcome.text.as_str(), "said");
    let harness = Harness::new(Script::new().reply(reply("").tokens(10, 3)));
    let result = harness.run().await;
    let Status::Failed { cause } = &result.outcome.status else { panic!("{:?}", result.outcome) };
    assert!(cause.contains("empty") && cause.contains("6 attempts"), "{cause}");
    assert_eq!(result.spent.usage.total(), 6 * 13, "what it cost is known, and booked");
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn turns_never_change_earlier_messages() {
    let lead = Script::new().agent("Child", [reply("a long result indeed")]).turns([
        delegate("Child", "one"),
        call("delegate", json!({ "role": "Child", "task": "two", "background": true })),
        reply("end"),
    ]);
    let tweak = |settings: &mut Settings| {
        settings.limits.result_bytes = 10;
        settings.delegation_styles.delegation.extras =
            [brigade::core::delegation_styles::ExtraParameter::Background].into();
    };
    let (result, _, [heard, ..]) =
        run_with_three_models([lead, answering_script(), answering_script()], tweak).await;
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    let turns: Vec<&Request> = heard.iter().filter(|request| request.role.is_none()).collect();
    let names =
        |request: &Request| -> Vec<String> { request.tools.iter().map(|tool| tool.name.clone()).collect() };
    assert!(names(turns.last().unwrap()).ends_with(&["read_result".into(), "tell".into(), "stop".into()]));
    for pair in turns.windows(2) {
        let [before, after] = pair else { panic!("two at a time") };
        assert_eq!(before.system, after.system);
        assert_eq!(&after.tools[..before.tools.len()], &before.tools[..], "tools are only added, at the end");
        assert_eq!(&after.messages[..before.messages.len()], &before.messages[..]);
    }
    let siblings: Vec<&Request> = heard.iter().filter(|request| request.role.is_some()).collect();
    assert_eq!(siblings.len(), 2);
    assert!(siblings[0].system == siblings[1].system && siblings[0].tools == siblings[1].tools);
}

/// The tool result of the only turn exceeds the context window, so that neither a report nor a summary can be
/// requested.
#[tokio::test(flavor = "multi_thread")]
async fn report_that_cannot_be_sent_after_a_limit_ends_with_the_last_text() {
    let long = "y".repeat(30_000);
    let script = Script::new()
        .window(4000)
        .agent(
            "lead",
            [
                call("subagent", json!({ "label": "h", "task_prompt": "go", "max_turns": 1 })),
                reply("{results}"),
            ],
        )
        .agent("h", [reply("looking").call("echo", json!({ "text": long }))]);
    let harness = Harness::with(script, |settings| {
        settings.delegation_styles.subagent =
            Some(brigade::core::delegation_styles::subagent::SubagentConfig::default());
    });
    let result = harness.run().await;
    assert_eq!(result.outcome.text.as_str(), "looking\n(incomplete: turns)", "{:?}", result.outcome);
    check_laws(&harness.log(&result.session).await);
}
