//! Approval requests: from any depth, many at once, approved, denied, timed out, interrupted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade::core::event::Answer;
use brigade::core::permission::{Mode, Permissions};
use brigade::core::view::{PendingApproval, Tree};
use brigade::core::{Budget, CallId, Event, Record, SessionId, Status};
use brigade::{
    ApprovalPolicy, ResumeOptions, RunError, RunEvent, RunEvents, RunResult, Runtime, Settings, Task,
};
use brigade_testing::{Script, call, delegate, reply};
use serde_json::json;

use crate::run::crash::{resume, run_until_crash};
use crate::run::support::{Harness, TEST_TIMEOUT, check_laws, end};

/// The deepest of four agents requests approval. Its sibling and its parent's sibling have work to do meanwhile.
fn deep() -> Script {
    Script::new()
        .agent("lead", [delegate("First", "a").delegate("Busy", "b"), reply("all: {results}")])
        .agent("First", [delegate("Second", "c").delegate("Busy", "d"), reply("first {results}")])
        .agent("Second", [delegate("Third", "e"), reply("second {results}")])
        .agent(
            "Third",
            [
                call("write_file", json!({ "path": "third.txt", "content": "written" }))
                    .call("echo", json!({ "text": "beside" })),
                reply("third {results}"),
            ],
        )
        .agent(
            "Busy",
            [
                call("echo", json!({ "text": "one" })).delay_ms(10),
                call("echo", json!({ "text": "two" })).delay_ms(10),
                reply("busy"),
            ],
        )
}

fn enable_approvals(settings: &mut Settings) {
    settings.approval_policy = ApprovalPolicy::AskUser;
    settings.permissions = Permissions { mode: Mode::Ask, ..Permissions::default() };
    settings.delegation_styles.swarm.max_depth = 4;
    settings.delegation_styles.swarm.max_concurrent = 20;
    // Otherwise an agent that waits for approval may hold the budget that the next one needs.
    settings.budget = Budget::UNLIMITED;
}

fn harness(script: impl std::fmt::Display) -> Harness {
    Harness::with(script, enable_approvals)
}

/// Watches all events and answers requests as `decide` says.
async fn answer_approvals(
    runtime: &Runtime,
    watch: &mut RunEvents,
    mut decide: impl FnMut(&Tree, &Record) -> Vec<(PendingApproval, Answer)>,
) {
    let mut tree = Tree::default();
    while let Some(live) = watch.next().await {
        let RunEvent::Record(record) = live else { continue };
        tree.apply(&record);
        for (question, answer) in decide(&tree, &record) {
            // The run may be over, or another answer may have come first.
            let _ = runtime.answer(&question.session, question.call, answer, "the user").await;
        }
    }
}

/// Answers every request as it arrives.
fn answer_immediately(answer: Answer) -> impl FnMut(&Tree, &Record) -> Vec<(PendingApproval, Answer)> {
    move |tree, record| match &record.event {
        Event::Asked { call, .. } => {
            let open =
                tree.pending_approvals().find(|open| open.session == record.session && open.call == *call);
            open.map(|open| (open.clone(), answer.clone())).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

async fn run_with(
    harness: &Harness,
    decide: impl FnMut(&Tree, &Record) -> Vec<(PendingApproval, Answer)>,
) -> RunResult {
    let runtime = harness.runtime();
    let mut run = runtime.start(Task::new("the task")).await.unwrap();
    let mut watch = run.take_events();
    let (result, ()) = tokio::join!(end(run), answer_approvals(&runtime, &mut watch, decide));
    result.unwrap()
}

/// Checks that every request has an answer or that its call ended.
fn check_questions(log: &[Record]) {
    check_laws(log);
    assert_eq!(Tree::fold(log).pending_approvals().count(), 0, "a question was lost");
    let mut asked: BTreeMap<(&SessionId, CallId), usize> = BTreeMap::new();
    for record in log {
        if let Event::Asked { call, .. } = &record.event {
            *asked.entry((&record.session, *call)).or_default() += 1;
        }
    }
    for (session, call) in asked.into_keys() {
        let ended = |record: &&Record| {
            record.session == *session
                && matches!(&record.event, Event::ToolEnded { call: c, .. } if *c == call)
        };
        assert_eq!(log.iter().filter(ended).count(), 1, "{session}:{call} has one end");
    }
}

fn count(log: &[Record], kind: &str) -> usize {
    log.iter().filter(|record| record.event.kind() == kind).count()
}

#[tokio::test]
async fn approval_at_depth_three_waits_while_others_work() {
    let harness = harness(deep());
    let mut open: Option<PendingApproval> = None;
    let mut ended = 0;
    let result = run_with(&harness, |tree, record| {
        open = open.take().or_else(|| tree.pending_approvals().next().cloned());
        ended += usize::from(matches!(record.event, Event::Ended { .. }));
        // Both busy agents are done, and so is the call beside the waiting one.
        if ended == 2 {
            open.clone().map(|open| (open, Answer::Once)).into_iter().collect()
        } else {
            Vec::new()
        }
    })
    .await;
    assert_eq!(result.outcome.status, Status::Done);
    assert!(result.outcome.text.as_str().contains("[Third]: third"), "{}", result.outcome.text);
    let question = open.unwrap();
    assert_eq!(question.tool(), "write_file");
    assert_eq!(question.arguments(), r#"{"content":"written","path":"third.txt"}"#);
    assert_eq!(question.why, "this mode requires approval");
    assert_eq!(question.always.as_deref(), Some("write_file(./third.txt)"));
    let log = harness.log(&result.session).await;
    let tree = Tree::fold(&log);
    assert_eq!(tree.lineage(&question.session), ["lead", "First", "Second", "Third"]);
    assert_eq!(std::fs::read_to_string(harness.path().join("third.txt")).unwrap(), "written");
    check_questions(&log);
}

/// A lead with twenty sub-agents that write a file each.
fn twenty_calls() -> Script {
    Script::new()
        .agent("lead", [delegate("W", "{n}").repeat(20), reply("all: {results}")])
        .agent("W", [call("write_file", json!({ "path": "{task}.txt", "content": "x" })), reply("{results}")])
}

#[tokio::test]
async fn twenty_parallel_approvals_are_answered_individually() {
    let harness = harness(twenty_calls());
    let result = run_with(&harness, |tree, _| {
        let open: Vec<&PendingApproval> = tree.pending_approvals().collect();
        if open.len() < 20 {
            return Vec::new();
        }
        let answer = |(number, question): (usize, &&PendingApproval)| {
            let word = format!("not {number}");
            let no = Answer::Deny { word: Some(word) };
            ((*question).clone(), if number % 2 == 0 { Answer::Once } else { no })
        };
        open.iter().enumerate().map(answer).collect()
    })
    .await;
    assert_eq!(result.outcome.status, Status::Done);
    let files = std::fs::read_dir(harness.path()).unwrap().count();
    assert_eq!(files, 10);
    assert_eq!(result.outcome.text.as_str().matches("call: not ").count(), 10);
    let log = harness.log(&result.session).await;
    assert_eq!((count(&log, "asked"), count(&log, "answered")), (20, 20));
    check_questions(&log);
}

#[tokio::test]
async fn always_applies_to_the_requesting_session_only() {
    let script =
        Script::new().agent("lead", [delegate("W", "a"), delegate("W", "b"), reply("{results}")]).agent(
            "W",
            [
                call("write_file", json!({ "path": "docs/x.txt", "content": "1" })),
                call("write_file", json!({ "path": "docs/x.txt", "content": "2" }))
                    .call("write_file", json!({ "path": "docs/y.txt", "content": "2" })),
                reply("{results}"),
            ],
        );
    let harness = harness(script);
    let always = Answer::Always("write_file(docs/x.txt)".to_owned());
    let result = run_with(&harness, answer_immediately(always)).await;
    assert_eq!(result.outcome.status, Status::Done);
    let log = harness.log(&result.session).await;
    let asked: Vec<String> = log
        .iter()
        .filter_map(|record| match &record.event {
            Event::Asked { what, .. } => Some(what.as_str().rsplit('"').nth(1).unwrap().to_owned()),
            _ => None,
        })
        .collect();
    // The first agent asks once per file, and so does its sibling. Approvals are not inherited.
    assert_eq!(asked, ["docs/x.txt", "docs/y.txt", "docs/x.txt", "docs/y.txt"]);
    check_questions(&log);
}

#[tokio::test]
async fn call_without_an_approver_is_refused_at_once() {
    let harness = Harness::with(deep(), |settings| {
        enable_approvals(settings);
        settings.approval_policy = ApprovalPolicy::Deny;
    });
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done);
    insta::assert_snapshot!(result.outcome.text.as_str());
    assert_eq!(count(&harness.log(&result.session).await, "asked"), 0);
    assert!(!harness.path().join("third.txt").exists());
}

#[tokio::test]
async fn unanswered_approval_is_denied() {
    let harness = Harness::with(deep(), |settings| {
        enable_approvals(settings);
        settings.limits.question_timeout = Duration::from_millis(120);
    });
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done);
    insta::assert_snapshot!(result.outcome.text.as_str());
    let log = harness.log(&result.session).await;
    let by = log.iter().find_map(|record| match &record.event {
        Event::Answered { by, .. } => Some(by.clone()),
        _ => None,
    });
    assert_eq!(by.as_deref(), Some("the time limit"));
    check_questions(&log);
}

#[tokio::test]
async fn session_waiting_for_approval_holds_no_slot() {
    let harness = Harness::with(twenty_calls(), |settings| {
        enable_approvals(settings);
        settings.limits.concurrency = 1;
    });
    // With one slot in total, twenty requests can be open at once only if a waiting session holds no slot.
    let result = run_with(&harness, |tree, _| {
        let open: Vec<PendingApproval> = tree.pending_approvals().cloned().collect();
        if open.len() < 20 { Vec::new() } else { open.into_iter().map(|open| (open, Answer::Once)).collect() }
    })
    .await;
    assert_eq!(result.outcome.status, Status::Done);
    check_questions(&harness.log(&result.session).await);
}

#[tokio::test]
async fn only_pending_approvals_accept_answers_with_valid_rules() {
    let harness = harness(deep());
    let runtime = harness.runtime();
    let mut refused = Vec::new();
    let mut run = runtime.start(Task::new("the task")).await.unwrap();
    let mut watch = run.take_events();
    let talk = async {
        let mut tree = Tree::default();
        while let Some(live) = watch.next().await {
            let RunEvent::Record(record) = live else { continue };
            tree.apply(&record);
            let Event::Asked { call, .. } = &record.event else { continue };
            let answer = async |call, answer| runtime.answer(&record.session, call, answer, "me").await;
            refused.push(answer(*call, Answer::Always("shell(".to_owned())).await);
            refused.push(answer(CallId { turn: 9, index: 9 }, Answer::Once).await);
            answer(*call, Answer::Deny { word: Some("use a pipe".to_owned()) }).await.unwrap();
            refused.push(answer(*call, Answer::Once).await);
        }
    };
    let (result, ()) = tokio::join!(end(run), talk);
    assert!(matches!(
        &refused[..],
        [Err(RunError::Rule(_)), Err(RunError::NoSuchApproval { .. }), Err(RunError::NoSuchApproval { .. })]
    ));
    insta::assert_snapshot!(result.unwrap().outcome.text.as_str());
    assert!(!harness.path().join("third.txt").exists());
}

#[tokio::test]
async fn ask_rules_apply_to_delegations_and_messages() {
    let script = Script::new()
        .agent("lead", [delegate("W", "a").call("message", json!({ "text": "hello" })).turn(1)])
        .reply("done {results}");
    let harness = || {
        Harness::with(&script, |settings| {
            enable_approvals(settings);
            settings.permissions.ask = ["delegate", "message"].map(|rule| rule.parse().unwrap()).to_vec();
        })
    };
    let permitted = harness();
    let result = run_with(&permitted, answer_immediately(Answer::Once)).await;
    assert_eq!(result.outcome.status, Status::Done);
    let log = permitted.log(&result.session).await;
    assert_eq!((count(&log, "asked"), count(&log, "delegated"), count(&log, "said")), (2, 1, 1));
    check_questions(&log);
    let result = run_with(&harness(), answer_immediately(Answer::Deny { word: None })).await;
    assert_eq!(
        result.outcome.text.as_str().matches("The user denied this `").count(),
        2,
        "{}",
        result.outcome.text
    );
}

/// Resumes, and answers the requests from then on.
async fn resume_with(harness: &Harness, root: &SessionId, answer: Answer) -> RunResult {
    let runtime = harness.runtime();
    let known = harness.log(root).await.len();
    let run = runtime.resume(root, ResumeOptions::default()).await.unwrap();
    let talk = async {
        loop {
            let since = Tree::fold(&harness.log(root).await[known..]);
            for question in since.pending_approvals() {
                let _ = runtime.answer(&question.session, question.call, answer.clone(), "the user").await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        result = end(run) => result.unwrap(),
        () = talk => unreachable!(),
    }
}

#[tokio::test]
async fn crash_before_every_append_requests_approval_again_once() {
    let whole = harness(deep());
    run_with(&whole, answer_immediately(Answer::Once)).await;
    let appends = whole.store.appends.load(Ordering::SeqCst);
    let mut asked_again = 0;
    for at in 0..=appends {
        let harness = harness(deep());
        let runtime = harness.runtime();
        harness.store.crash_after(at);
        let Ok(mut run) = runtime.start(Task::new("the task")).await else { continue };
        let root = run.session().clone();
        let mut watch = run.take_events();
        let (first, ()) =
            tokio::join!(end(run), answer_approvals(&runtime, &mut watch, answer_immediately(Answer::Once)));
        harness.store.repair();
        if harness.log(&root).await.is_empty() {
            continue;
        }
        let result = match first {
            Ok(result) => result,
            Err(_) => resume_with(&harness, &root, Answer::Once).await,
        };
        assert_eq!(result.outcome.status, Status::Done, "after {at}");
        assert_eq!(std::fs::read_to_string(harness.path().join("third.txt")).unwrap(), "written");
        let log = harness.log(&root).await;
        check_questions(&log);
        let (asked, answered) = (count(&log, "asked"), count(&log, "answered"));
        assert!(asked == 1 || asked == 2, "{asked} questions after {at}");
        assert_eq!(answered, 1, "after {at}");
        asked_again += usize::from(asked == 2);
    }
    assert!(asked_again > 0, "no crash hit an open question");
}

#[tokio::test]
async fn cancelling_at_every_event_leaves_no_approval_pending() {
    // Agents without a request have ended when the last event before the answer is written.
    let waiting = harness(deep());
    let root = run_until_pending(&waiting, 1, 2).await;
    let facts = waiting.log(&root).await.len() - 2;
    for at in 1..=facts {
        let harness = harness(deep());
        let runtime = harness.runtime();
        let canceller = runtime.clone();
        let mut run = runtime.start(Task::new("the task")).await.unwrap();
        let root = run.session().clone();
        let mut watch = run.take_events();
        let cancel = async {
            let mut seen = 0;
            while let Some(live) = watch.next().await {
                if matches!(live, RunEvent::Record(_)) {
                    seen += 1;
                }
                if seen == at {
                    let _ = canceller.cancel(&root, "the user").await;
                }
            }
        };
        // No answer is given.
        let timeout = Duration::from_secs(5);
        let (result, ()) = tokio::join!(tokio::time::timeout(timeout, end(run)), cancel);
        let result = result.expect("a cancelled run ends").unwrap();
        assert!(matches!(result.outcome.status, Status::Cancelled { .. }), "{at}: {:?}", result.outcome);
        check_questions(&harness.log(&root).await);
        assert!(!harness.path().join("third.txt").exists());
    }
}

#[tokio::test]
async fn timeout_at_any_moment_leaves_no_approval_pending() {
    let mut hit = 0;
    for millis in (10..400).step_by(13) {
        let harness = harness(deep());
        let result = harness.run_task(Task::new("the task").timeout(Duration::from_millis(millis))).await;
        let log = harness.log(&result.session).await;
        check_questions(&log);
        assert!(!harness.path().join("third.txt").exists());
        hit += usize::from(count(&log, "asked") == 1);
    }
    assert!(hit > 0, "no limit hit an open question");
}

#[tokio::test]
async fn expiring_approval_is_answered_once() {
    // Earlier than the user, at about the same time, and later.
    for millis in (1..60).step_by(4) {
        let harness = Harness::with(deep(), move |settings| {
            enable_approvals(settings);
            settings.limits.question_timeout = Duration::from_millis(millis);
        });
        let runtime = harness.runtime();
        let mut run = runtime.start(Task::new("the task")).await.unwrap();
        let mut watch = run.take_events();
        let late = async {
            while let Some(live) = watch.next().await {
                let RunEvent::Record(record) = live else { continue };
                let Event::Asked { call, .. } = &record.event else { continue };
                tokio::time::sleep(Duration::from_millis(30)).await;
                let _ = runtime.answer(&record.session, *call, Answer::Once, "the user").await;
            }
        };
        let (result, ()) = tokio::join!(end(run), late);
        let result = result.unwrap();
        assert_eq!(result.outcome.status, Status::Done);
        let log = harness.log(&result.session).await;
        check_questions(&log);
        // A late answer is in the log but has no effect. The first answer decided the call.
        let first = log.iter().find_map(|record| match &record.event {
            Event::Answered { answer, .. } => Some(answer.clone()),
            _ => None,
        });
        assert_eq!(harness.path().join("third.txt").exists(), first == Some(Answer::Once), "{millis} ms");
    }
}

/// Leaves a run with unanswered requests, like a killed process, once this many sessions have ended.
async fn run_until_pending(harness: &Harness, questions: usize, ended: usize) -> SessionId {
    let run = harness.start().await;
    let root = run.session().clone();
    let quiet = async {
        loop {
            let log = harness.log(&root).await;
            if Tree::fold(&log).pending_approvals().count() == questions && count(&log, "ended") == ended {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, quiet).await.expect("the questions are asked");
    root
}

#[tokio::test]
async fn pending_approval_is_denied_on_resume_without_an_approver() {
    let is_alone = Arc::new(AtomicBool::new(false));
    let alone = is_alone.clone();
    let harness = Harness::with(deep(), move |settings| {
        enable_approvals(settings);
        if alone.load(Ordering::SeqCst) {
            settings.approval_policy = ApprovalPolicy::Deny;
        }
    });
    let root = run_until_pending(&harness, 1, 2).await;
    is_alone.store(true, Ordering::SeqCst);
    let result = resume(&harness, &root).await;
    insta::assert_snapshot!(result.outcome.text.as_str());
    let log = harness.log(&root).await;
    assert_eq!((count(&log, "asked"), count(&log, "answered")), (1, 1));
    check_questions(&log);
}

#[tokio::test]
async fn answer_given_while_not_running_counts_on_resume() {
    let script = Script::new().turns([
        call("write_file", json!({ "path": "docs/x.txt", "content": "1" }))
            .call("write_file", json!({ "path": "docs/x.txt", "content": "2" })),
        reply("{results}"),
    ]);
    let harness = harness(script);
    let root = run_until_pending(&harness, 2, 0).await;
    let always = Answer::Always("write_file(docs/x.txt)".to_owned());
    let runtime = harness.runtime();
    runtime.answer(&root, CallId { turn: 1, index: 0 }, always, "the user").await.unwrap();
    let result = resume(&harness, &root).await;
    assert_eq!(result.outcome.status, Status::Done);
    let log = harness.log(&root).await;
    assert_eq!((count(&log, "asked"), count(&log, "answered")), (2, 2));
    check_questions(&log);
    assert_eq!(std::fs::read_to_string(harness.path().join("docs/x.txt")).unwrap(), "2");
}

#[tokio::test]
async fn started_call_does_not_wait_for_an_impossible_approval() {
    let script = Script::new()
        .turns([call("write_file", json!({ "path": "out.txt", "content": "x" })), reply("{results}")]);
    let asks = Arc::new(AtomicBool::new(false));
    let now_asks = asks.clone();
    let harness = Harness::with(script, move |settings| {
        enable_approvals(settings);
        settings.permissions.mode = Mode::Edit;
        if now_asks.load(Ordering::SeqCst) {
            settings.permissions.ask = vec!["write_file".parse().unwrap()];
        }
    });
    // Before the append of its result: the intent is recorded, and the file is unchanged.
    let (_, root) = run_until_crash(&harness, None, 2).await;
    let root = root.unwrap();
    let last = harness.events(&root).await.pop();
    assert!(matches!(last, Some(Event::ToolStarted { .. })), "{last:?}");
    std::fs::remove_file(harness.path().join("out.txt")).unwrap();
    asks.store(true, Ordering::SeqCst);
    let result = resume(&harness, &root).await;
    assert_eq!(result.outcome.status, Status::Done);
    insta::assert_snapshot!(result.outcome.text.as_str());
    check_questions(&harness.log(&root).await);
    assert!(!harness.path().join("out.txt").exists());
}

#[tokio::test]
async fn approved_path_cannot_be_written_under_another_name() {
    let script = Script::new()
        .turns([call("write_file", json!({ "path": "notes.txt", "content": "x" })), reply("{results}")]);
    let harness = harness(script);
    std::fs::write(harness.path().join("deploy.sh"), "deploy").unwrap();
    std::os::unix::fs::symlink("deploy.sh", harness.path().join("notes.txt")).unwrap();
    let result = run_with(&harness, answer_immediately(Answer::Once)).await;
    insta::assert_snapshot!(result.outcome.text.as_str());
    assert_eq!(std::fs::read_to_string(harness.path().join("deploy.sh")).unwrap(), "deploy");
}

#[tokio::test]
async fn rule_for_another_tool_is_not_a_valid_answer() {
    let harness = harness(deep());
    let root = run_until_pending(&harness, 1, 2).await;
    let tree = Tree::fold(&harness.log(&root).await);
    let open = tree.pending_approvals().next().unwrap();
    let always = Answer::Always("shell".to_owned());
    let refused = harness.runtime().answer(&open.session, open.call, always, "me").await;
    let Err(RunError::Rule(refusal)) = refused else { panic!("{refused:?}") };
    insta::assert_snapshot!(refusal);
}

#[tokio::test]
async fn approval_just_before_the_timeout_counts() {
    let harness = Harness::with(deep(), |settings| {
        enable_approvals(settings);
        settings.limits.question_timeout = Duration::from_millis(50);
    });
    harness.store.is_answered_first.store(true, Ordering::SeqCst);
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done);
    assert_eq!(std::fs::read_to_string(harness.path().join("third.txt")).unwrap(), "written");
    let log = harness.log(&result.session).await;
    assert_eq!(count(&log, "answered"), 1);
    check_questions(&log);
}
