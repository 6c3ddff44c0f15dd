//! Conversations that grow too long for their model, models that others stand in for, and replies without a word.

use std::sync::{Arc, Mutex};

use brigade::core::event::CallFault;
use brigade::core::{Event, Message, Purpose, Status};
use brigade::model::script::Script;
use brigade::model::{About, Chunk, Model, ModelError, Request};
use brigade::store::memory::MemoryStore;
use brigade::{Ending, Models, Runtime, Settings, Task, Workspace};
use futures::stream::BoxStream;

use crate::support::{Stage, check_laws, end};

/// Ten turns of 2,000 bytes each, in a window that holds four of them.
const GROWING: &str = r#"
window = 2500
[[reply]]
purpose = "compaction"
text = "Summary at {turn}."
[[reply]]
turn = 14
text = "done"
[[reply]]
[[reply.call]]
tool = "echo"
arguments = { text = "LONG {turn}" }
"#;

fn growing() -> Stage {
    let long = "0123456789".repeat(200);
    Stage::new(&GROWING.replace("LONG", &long))
}

fn count(events: &[Event], wanted: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| wanted(event)).count()
}

#[tokio::test]
async fn a_conversation_that_nears_the_window_is_summarised_and_goes_on() {
    let stage = growing();
    let ending = stage.run().await;
    assert_eq!((&ending.outcome.status, ending.outcome.text.as_str()), (&Status::Done, "done"));
    let log = stage.log(&ending.session).await;
    check_laws(&log);
    let events = stage.events(&ending.session).await;
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
async fn a_summary_survives_a_crash_at_every_append() {
    for appends in 1.. {
        let stage = growing();
        stage.store.crash_after(appends);
        let run = stage.start().await;
        let session = run.session().clone();
        if let Ok(ending) = end(run).await {
            assert_eq!(ending.outcome.text.as_str(), "done");
            assert!(appends > 20, "{appends}");
            return;
        }
        stage.store.mend();
        let run = stage.runtime().resume(&session, brigade::More::default()).await.unwrap();
        let ending = end(run).await.unwrap();
        assert_eq!(ending.outcome.status, Status::Done, "after {appends} appends: {:?}", ending.outcome);
        check_laws(&stage.log(&session).await);
    }
}

#[tokio::test]
async fn a_conversation_that_the_model_refuses_is_summarised_and_asked_again() {
    let stage = Stage::new(
        r#"
[[reply]]
purpose = "compaction"
text = "It was read."
[[reply]]
turn = 1
text = "I look."
[[reply.call]]
tool = "echo"
arguments = { text = "much" }
[[reply]]
turn = 2
fault = "overflow"
[[reply]]
text = "end: {messages}"
"#,
    );
    let ending = stage.run().await;
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
    let events = stage.events(&ending.session).await;
    let summary = events.iter().find_map(|event| match event {
        Event::Compacted { summary, keep_from } => Some((summary.to_string(), *keep_from)),
        _ => None,
    });
    assert_eq!(summary, Some(("It was read.".to_owned(), 2)));
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn a_task_that_is_longer_than_the_window_ends_with_clear_words() {
    let stage = Stage::new("window = 2000\n[[reply]]\ntext = 'never'\n");
    let ending = stage.run_task(Task::new("x".repeat(20_000))).await;
    let Status::Failed { cause } = &ending.outcome.status else { panic!("{:?}", ending.outcome) };
    assert!(cause.contains("the context window of the model holds 2000. Shorten the task"), "{cause}");
    assert_eq!(stage.replies.count(), 0, "nothing is spent on it");
    // What may fit is sent, and the model decides.
    let stage = Stage::new("window = 4000\n[[reply]]\ntext = 'never'\n");
    let ending = stage.run_task(Task::new("x".repeat(16_000))).await;
    let Status::Failed { cause } = &ending.outcome.status else { panic!("{:?}", ending.outcome) };
    assert!(cause.contains("longer than the context window"), "{cause}");
    assert_eq!(stage.replies.count(), 1, "it is not asked again and again");
}

/// A model that remembers what it was asked.
struct Hearing {
    script: Script,
    heard: Arc<Mutex<Vec<Request>>>,
}

impl Model for Hearing {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        self.heard.lock().unwrap().push(request.clone());
        self.script.stream(request)
    }

    fn about(&self, model: &str) -> About {
        self.script.about(model)
    }
}

/// Runs a task with the models `a`, `b` and `c`, of which the last two stand in for the first.
async fn with_three(
    scripts: [&str; 3],
    tweak: impl Fn(&mut Settings),
) -> (Ending, Vec<Event>, [Vec<Request>; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::new("a/one", Workspace::open(folder.path()).unwrap());
    settings.limits.retry_pause = std::time::Duration::from_millis(5);
    settings.fallbacks = vec!["b/two".to_owned(), "nobody/there".to_owned(), "c/three".to_owned()];
    tweak(&mut settings);
    let heard: [Arc<Mutex<Vec<Request>>>; 3] = Default::default();
    let mut models = Models::default();
    for ((name, script), heard) in ["a", "b", "c"].into_iter().zip(scripts).zip(&heard) {
        models = models.with(name, Hearing { script: Script::parse(script).unwrap(), heard: heard.clone() });
    }
    let store = Arc::new(MemoryStore::new());
    let runtime = Runtime::new(store.clone(), settings, models);
    let ending = end(runtime.start(Task::new("go")).await.unwrap()).await.unwrap();
    let records = brigade::Store::read(&*store, &ending.session, 0).await.unwrap();
    let events = records.into_iter().map(|record| record.event).collect();
    (ending, events, heard.map(|heard| heard.lock().unwrap().clone()))
}

const REFUSES: &str = "[[reply]]\nfault = 'refused'\n";
const OVERLOADED: &str = "[[reply]]\nfault = 'overloaded'\n";
const ANSWERS: &str = "[[reply]]\ntext = 'here'\n";

#[tokio::test]
async fn another_model_takes_over_where_one_fails_for_good() {
    let (ending, events, heard) = with_three([REFUSES, OVERLOADED, ANSWERS], |_| {}).await;
    assert_eq!((&ending.outcome.status, ending.outcome.text.as_str()), (&Status::Done, "here"));
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
async fn the_last_of_a_chain_fails_in_its_own_words() {
    let (ending, ..) = with_three([REFUSES, REFUSES, REFUSES], |_| {}).await;
    let Status::Failed { cause } = &ending.outcome.status else { panic!("{:?}", ending.outcome) };
    assert_eq!(cause, "the scripted model refuses");
}

#[tokio::test]
async fn the_turns_after_go_to_the_model_that_took_over() {
    let b = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'echo'\narguments = { text = 'x' }\n[[reply]]\ntext = 'two'\n";
    let (ending, _, heard) = with_three([REFUSES, b, ANSWERS], |_| {}).await;
    assert_eq!(ending.outcome.text.as_str(), "two");
    assert_eq!(heard.each_ref().map(Vec::len), [1, 2, 0]);
    assert!(matches!(heard[1][1].messages.last(), Some(Message::Results(_))));
}

#[tokio::test]
async fn children_inherit_the_chain_unless_they_have_a_model_of_their_own() {
    let lead = "[[reply]]\nagent = 'Child'\nfault = 'refused'\n[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
                arguments = { role = 'Child', task = 'help' }\n[[reply]]\ntext = 'end {results}'\n";
    let (ending, _, heard) = with_three([lead, ANSWERS, ANSWERS], |_| {}).await;
    assert_eq!(ending.outcome.text.as_str(), "end [Child]: here");
    assert_eq!(heard.each_ref().map(Vec::len), [3, 1, 0]);
    let own = |settings: &mut Settings| settings.faces.swarm.model = Some("a/other".to_owned());
    let (ending, _, heard) = with_three([lead, ANSWERS, ANSWERS], own).await;
    assert!(ending.outcome.text.as_str().contains("the scripted model refuses"), "{:?}", ending.outcome);
    assert_eq!(heard.each_ref().map(Vec::len), [3, 0, 0]);
}

#[tokio::test]
async fn a_model_that_may_not_be_used_takes_over_for_nobody() {
    let only = |settings: &mut Settings| {
        settings.models =
            brigade::core::grant::Names::Only(["a/one".to_owned(), "c/three".to_owned()].into());
    };
    let (ending, _, heard) = with_three([REFUSES, ANSWERS, ANSWERS], only).await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert_eq!(heard.each_ref().map(Vec::len), [1, 0, 1]);
}

#[tokio::test]
async fn a_reply_without_a_word_is_no_result() {
    let stage = Stage::new("[[reply]]\nattempt = 1\n[[reply]]\ntext = 'said'\n");
    let ending = stage.run().await;
    assert_eq!(ending.outcome.text.as_str(), "said");
    let stage = Stage::new("[[reply]]\nusage = { input = 10, output = 3 }\n");
    let ending = stage.run().await;
    let Status::Failed { cause } = &ending.outcome.status else { panic!("{:?}", ending.outcome) };
    assert!(cause.contains("empty") && cause.contains("6 attempts"), "{cause}");
    assert_eq!(ending.spent.usage.total(), 6 * 13, "what it cost is known, and booked");
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn what_stands_before_a_turn_is_never_changed_by_it() {
    let lead = "[[reply]]\nagent = 'Child'\ntext = 'a long result indeed'\n\
                [[reply]]\nturn = 1\n[[reply.call]]\ntool = 'delegate'\narguments = { role = 'Child', task = 'one' }\n\
                [[reply]]\nturn = 2\n[[reply.call]]\ntool = 'delegate'\n\
                arguments = { role = 'Child', task = 'two', background = true }\n\
                [[reply]]\ntext = 'end'\n";
    let tweak = |settings: &mut Settings| {
        settings.limits.result_bytes = 10;
        settings.faces.delegation.extras = [brigade::core::faces::Extra::Background].into();
    };
    let (ending, _, [heard, ..]) = with_three([lead, ANSWERS, ANSWERS], tweak).await;
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
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

/// The tool result of the only turn is longer than the window, so that neither a report nor a summary can be asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_cannot_be_sent_after_a_limit_ends_with_the_last_text() {
    let long = "y".repeat(30_000);
    let script = format!(
        "window = 4000\n[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'subagent'\n\
         arguments = {{ label = 'h', task_prompt = 'go', max_turns = 1 }}\n\
         [[reply]]\nagent = 'lead'\ntext = '{{results}}'\n\
         [[reply]]\nagent = 'h'\ntext = 'looking'\n[[reply.call]]\ntool = 'echo'\narguments = {{ text = '{long}' }}\n"
    );
    let stage = Stage::with(&script, |settings| {
        settings.faces.subagent = Some(brigade::core::faces::subagent::SubagentConfig::default());
    });
    let ending = stage.run().await;
    assert_eq!(ending.outcome.text.as_str(), "looking\n(incomplete: turns)", "{:?}", ending.outcome);
    check_laws(&stage.log(&ending.session).await);
}
