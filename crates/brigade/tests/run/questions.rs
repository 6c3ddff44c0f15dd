//! Questions to a person: from any depth, many at once, answered, refused, forgotten, cut off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade::core::event::Answer;
use brigade::core::permission::{Mode, Permissions};
use brigade::core::view::{Question, Tree};
use brigade::core::{Budget, CallId, Event, Record, SessionId, Status};
use brigade::{Asks, Ending, Live, More, RunError, Runtime, Settings, Task, Watch};

use crate::crash::{resume, run_until_crash};
use crate::support::{LIMIT, Stage, check_laws, end};

/// The deepest of four asks; its sibling and that of its parent have work to do meanwhile.
const DEEP: &str = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "First", task = "a" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Busy", task = "b" }
[[reply]]
agent = "lead"
text = "all: {results}"
[[reply]]
agent = "First"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Second", task = "c" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Busy", task = "d" }
[[reply]]
agent = "First"
text = "first {results}"
[[reply]]
agent = "Second"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Third", task = "e" }
[[reply]]
agent = "Second"
text = "second {results}"
[[reply]]
agent = "Third"
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "third.txt", content = "written" }
[[reply.call]]
tool = "echo"
arguments = { text = "beside" }
[[reply]]
agent = "Third"
text = "third {results}"
[[reply]]
agent = "Busy"
turn = 1
delay_ms = 10
[[reply.call]]
tool = "echo"
arguments = { text = "one" }
[[reply]]
agent = "Busy"
turn = 2
delay_ms = 10
[[reply.call]]
tool = "echo"
arguments = { text = "two" }
[[reply]]
agent = "Busy"
text = "busy"
"#;

fn asking(settings: &mut Settings) {
    settings.asks = Asks::Person;
    settings.permissions = Permissions { mode: Mode::Ask, ..Permissions::default() };
    settings.faces.swarm.max_depth = 4;
    settings.faces.swarm.max_concurrent = 20;
    // Otherwise one who asks may hold what the next one would be lent.
    settings.budget = Budget::UNLIMITED;
}

fn stage(script: &str) -> Stage {
    Stage::with(script, asking)
}

/// Sees all that happens and answers as it is told to, once it is told to.
async fn person(
    runtime: &Runtime,
    watch: &mut Watch,
    mut decide: impl FnMut(&Tree, &Record) -> Vec<(Question, Answer)>,
) {
    let mut tree = Tree::default();
    while let Some(live) = watch.next().await {
        let Live::Fact(record) = live else { continue };
        tree.apply(&record);
        for (question, answer) in decide(&tree, &record) {
            // Where the run is over, or somebody else was faster, nobody waits for it.
            let _ = runtime.answer(&question.session, question.call, answer, "the person").await;
        }
    }
}

/// Answers every question as it comes.
fn at_once(answer: Answer) -> impl FnMut(&Tree, &Record) -> Vec<(Question, Answer)> {
    move |tree, record| match &record.event {
        Event::Asked { call, .. } => {
            let open = tree.questions().find(|open| open.session == record.session && open.call == *call);
            open.map(|open| (open.clone(), answer.clone())).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

async fn run_with(stage: &Stage, decide: impl FnMut(&Tree, &Record) -> Vec<(Question, Answer)>) -> Ending {
    let runtime = stage.runtime();
    let prepared = runtime.prepare(Task::new("the task")).await.unwrap();
    let mut watch = prepared.watch();
    let run = prepared.start();
    let (ending, ()) = tokio::join!(end(run), person(&runtime, &mut watch, decide));
    ending.unwrap()
}

/// Every question has an answer or an end of its call, and none of them is left open.
fn check_questions(log: &[Record]) {
    check_laws(log);
    assert_eq!(Tree::fold(log).questions().count(), 0, "a question was lost");
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
async fn a_question_from_depth_three_waits_while_the_others_work() {
    let stage = stage(DEEP);
    let mut open: Option<Question> = None;
    let mut ended = 0;
    let ending = run_with(&stage, |tree, record| {
        open = open.take().or_else(|| tree.questions().next().cloned());
        ended += usize::from(matches!(record.event, Event::Ended { .. }));
        // Both that are busy are done, and so is the call beside the one that waits.
        if ended == 2 {
            open.clone().map(|open| (open, Answer::Once)).into_iter().collect()
        } else {
            Vec::new()
        }
    })
    .await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(ending.outcome.text.as_str().contains("[Third]: third"), "{}", ending.outcome.text);
    let question = open.unwrap();
    assert_eq!(question.tool(), "write_file");
    assert_eq!(question.arguments(), r#"{"content":"written","path":"third.txt"}"#);
    assert_eq!(question.why, "this mode asks before it");
    assert_eq!(question.always.as_deref(), Some("write_file(./third.txt)"));
    let log = stage.log(&ending.session).await;
    let tree = Tree::fold(&log);
    assert_eq!(tree.lineage(&question.session), ["lead", "First", "Second", "Third"]);
    assert_eq!(std::fs::read_to_string(stage.path().join("third.txt")).unwrap(), "written");
    check_questions(&log);
}

/// A lead that has twenty write a file each.
fn twenty() -> String {
    let mut script = "[[reply]]\nagent = \"lead\"\nturn = 1\n".to_owned();
    for number in 0..20 {
        script.push_str(&format!(
            "[[reply.call]]\ntool = \"delegate\"\narguments = {{ role = \"W\", task = \"{number}\" }}\n"
        ));
    }
    script.push_str("[[reply]]\nagent = \"lead\"\ntext = \"all: {results}\"\n");
    script.push_str(
        "[[reply]]\nagent = \"W\"\nturn = 1\n[[reply.call]]\ntool = \"write_file\"\n\
         arguments = { path = \"{task}.txt\", content = \"x\" }\n[[reply]]\nagent = \"W\"\ntext = \"{results}\"\n",
    );
    script
}

#[tokio::test]
async fn twenty_questions_at_once_are_each_answered_as_asked() {
    let stage = stage(&twenty());
    let ending = run_with(&stage, |tree, _| {
        let open: Vec<&Question> = tree.questions().collect();
        if open.len() < 20 {
            return Vec::new();
        }
        let answer = |(number, question): (usize, &&Question)| {
            let word = format!("not {number}");
            let no = Answer::Deny { word: Some(word) };
            ((*question).clone(), if number % 2 == 0 { Answer::Once } else { no })
        };
        open.iter().enumerate().map(answer).collect()
    })
    .await;
    assert_eq!(ending.outcome.status, Status::Done);
    let files = std::fs::read_dir(stage.path()).unwrap().count();
    assert_eq!(files, 10);
    assert_eq!(ending.outcome.text.as_str().matches("The answer was no: not ").count(), 10);
    let log = stage.log(&ending.session).await;
    assert_eq!((count(&log, "asked"), count(&log, "answered")), (20, 20));
    check_questions(&log);
}

#[tokio::test]
async fn always_counts_for_the_session_that_asked_and_for_no_sibling() {
    let script = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "W", task = "a" }
[[reply]]
agent = "lead"
turn = 2
[[reply.call]]
tool = "delegate"
arguments = { role = "W", task = "b" }
[[reply]]
agent = "lead"
text = "{results}"
[[reply]]
agent = "W"
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "docs/x.txt", content = "1" }
[[reply]]
agent = "W"
turn = 2
[[reply.call]]
tool = "write_file"
arguments = { path = "docs/x.txt", content = "2" }
[[reply.call]]
tool = "write_file"
arguments = { path = "docs/y.txt", content = "2" }
[[reply]]
agent = "W"
text = "{results}"
"#;
    let stage = stage(script);
    let always = Answer::Always("write_file(docs/x.txt)".to_owned());
    let ending = run_with(&stage, at_once(always)).await;
    assert_eq!(ending.outcome.status, Status::Done);
    let log = stage.log(&ending.session).await;
    let asked: Vec<String> = log
        .iter()
        .filter_map(|record| match &record.event {
            Event::Asked { what, .. } => Some(what.as_str().rsplit('"').nth(1).unwrap().to_owned()),
            _ => None,
        })
        .collect();
    // The first asks once for each file, and so does its sibling: nothing is handed on.
    assert_eq!(asked, ["docs/x.txt", "docs/y.txt", "docs/x.txt", "docs/y.txt"]);
    check_questions(&log);
}

#[tokio::test]
async fn where_nobody_can_be_asked_the_call_is_refused_at_once() {
    let stage = Stage::with(DEEP, |settings| {
        asking(settings);
        settings.asks = Asks::Nobody;
    });
    let ending = stage.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(ending.outcome.text.as_str().contains("nobody can be asked here"), "{}", ending.outcome.text);
    assert_eq!(count(&stage.log(&ending.session).await, "asked"), 0);
    assert!(!stage.path().join("third.txt").exists());
}

#[tokio::test]
async fn a_question_that_nobody_answers_is_answered_with_no() {
    let stage = Stage::with(DEEP, |settings| {
        asking(settings);
        settings.limits.question_timeout = Duration::from_millis(120);
    });
    let ending = stage.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(ending.outcome.text.as_str().contains("nobody answered in time"), "{}", ending.outcome.text);
    let log = stage.log(&ending.session).await;
    let by = log.iter().find_map(|record| match &record.event {
        Event::Answered { by, .. } => Some(by.clone()),
        _ => None,
    });
    assert_eq!(by.as_deref(), Some("the time limit"));
    check_questions(&log);
}

#[tokio::test]
async fn who_waits_for_a_person_holds_no_slot() {
    let stage = Stage::with(&twenty(), |settings| {
        asking(settings);
        settings.limits.concurrency = 1;
    });
    // With one slot for all, twenty can only be asking at once if none of them holds it.
    let ending = run_with(&stage, |tree, _| {
        let open: Vec<Question> = tree.questions().cloned().collect();
        if open.len() < 20 { Vec::new() } else { open.into_iter().map(|open| (open, Answer::Once)).collect() }
    })
    .await;
    assert_eq!(ending.outcome.status, Status::Done);
    check_questions(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn only_open_questions_can_be_answered_and_only_with_rules_that_can_be_read() {
    let stage = stage(DEEP);
    let runtime = stage.runtime();
    let mut refused = Vec::new();
    let prepared = runtime.prepare(Task::new("the task")).await.unwrap();
    let mut watch = prepared.watch();
    let run = prepared.start();
    let talk = async {
        let mut tree = Tree::default();
        while let Some(live) = watch.next().await {
            let Live::Fact(record) = live else { continue };
            tree.apply(&record);
            let Event::Asked { call, .. } = &record.event else { continue };
            let answer = async |call, answer| runtime.answer(&record.session, call, answer, "me").await;
            refused.push(answer(*call, Answer::Always("shell(".to_owned())).await);
            refused.push(answer(CallId { turn: 9, index: 9 }, Answer::Once).await);
            answer(*call, Answer::Deny { word: Some("use a pipe".to_owned()) }).await.unwrap();
            refused.push(answer(*call, Answer::Once).await);
        }
    };
    let (ending, ()) = tokio::join!(end(run), talk);
    assert!(matches!(
        &refused[..],
        [Err(RunError::Rule(_)), Err(RunError::NotAsked { .. }), Err(RunError::NotAsked { .. })]
    ));
    assert!(ending.unwrap().outcome.text.as_str().contains("The answer was no: use a pipe"));
    assert!(!stage.path().join("third.txt").exists());
}

#[tokio::test]
async fn delegations_and_messages_are_asked_about_where_a_rule_says_so() {
    let script = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "W", task = "a" }
[[reply.call]]
tool = "message"
arguments = { text = "hello" }
[[reply]]
text = "done {results}"
"#;
    let stage = || {
        Stage::with(script, |settings| {
            asking(settings);
            settings.permissions.ask = ["delegate", "message"].map(|rule| rule.parse().unwrap()).to_vec();
        })
    };
    let permitted = stage();
    let ending = run_with(&permitted, at_once(Answer::Once)).await;
    assert_eq!(ending.outcome.status, Status::Done);
    let log = permitted.log(&ending.session).await;
    assert_eq!((count(&log, "asked"), count(&log, "delegated"), count(&log, "said")), (2, 1, 1));
    check_questions(&log);
    let ending = run_with(&stage(), at_once(Answer::Deny { word: None })).await;
    assert_eq!(
        ending.outcome.text.as_str().matches("the answer was no").count(),
        2,
        "{}",
        ending.outcome.text
    );
}

/// Resumes, and answers what is asked from then on.
async fn resume_with(stage: &Stage, root: &SessionId, answer: Answer) -> Ending {
    let runtime = stage.runtime();
    let known = stage.log(root).await.len();
    let run = runtime.resume(root, More::default()).await.unwrap();
    let talk = async {
        loop {
            let since = Tree::fold(&stage.log(root).await[known..]);
            for question in since.questions() {
                let _ = runtime.answer(&question.session, question.call, answer.clone(), "the person").await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        ending = end(run) => ending.unwrap(),
        () = talk => unreachable!(),
    }
}

#[tokio::test]
async fn a_crash_before_every_append_asks_again_once_and_acts_once() {
    let whole = stage(DEEP);
    run_with(&whole, at_once(Answer::Once)).await;
    let appends = whole.store.appends.load(Ordering::SeqCst);
    let mut asked_again = 0;
    for at in 0..=appends {
        let stage = stage(DEEP);
        let runtime = stage.runtime();
        stage.store.crash_after(at);
        let Ok(prepared) = runtime.prepare(Task::new("the task")).await else { continue };
        let root = prepared.session().clone();
        let mut watch = prepared.watch();
        let run = prepared.start();
        let (first, ()) = tokio::join!(end(run), person(&runtime, &mut watch, at_once(Answer::Once)));
        stage.store.mend();
        if stage.log(&root).await.is_empty() {
            continue;
        }
        let ending = match first {
            Ok(ending) => ending,
            Err(_) => resume_with(&stage, &root, Answer::Once).await,
        };
        assert_eq!(ending.outcome.status, Status::Done, "after {at}");
        assert_eq!(std::fs::read_to_string(stage.path().join("third.txt")).unwrap(), "written");
        let log = stage.log(&root).await;
        check_questions(&log);
        let (asked, answered) = (count(&log, "asked"), count(&log, "answered"));
        assert!(asked == 1 || asked == 2, "{asked} questions after {at}");
        assert_eq!(answered, 1, "after {at}");
        asked_again += usize::from(asked == 2);
    }
    assert!(asked_again > 0, "no crash hit an open question");
}

#[tokio::test]
async fn cancelling_at_every_fact_leaves_no_question_open() {
    // Those that have nothing to ask have ended when the last fact before the answer is written.
    let waiting = stage(DEEP);
    let root = leave_open(&waiting, 1, 2).await;
    let facts = waiting.log(&root).await.len() - 2;
    for at in 1..=facts {
        let stage = stage(DEEP);
        let runtime = stage.runtime();
        let canceller = runtime.clone();
        let prepared = runtime.prepare(Task::new("the task")).await.unwrap();
        let root = prepared.session().clone();
        let mut watch = prepared.watch();
        let run = prepared.start();
        let cancel = async {
            let mut seen = 0;
            while let Some(live) = watch.next().await {
                if matches!(live, Live::Fact(_)) {
                    seen += 1;
                }
                if seen == at {
                    let _ = canceller.cancel(&root, "the person").await;
                }
            }
        };
        // Nobody answers.
        let timeout = Duration::from_secs(5);
        let (ending, ()) = tokio::join!(tokio::time::timeout(timeout, end(run)), cancel);
        let ending = ending.expect("a cancelled run ends").unwrap();
        assert!(matches!(ending.outcome.status, Status::Cancelled { .. }), "{at}: {:?}", ending.outcome);
        check_questions(&stage.log(&root).await);
        assert!(!stage.path().join("third.txt").exists());
    }
}

#[tokio::test]
async fn a_time_limit_at_any_moment_leaves_no_question_open() {
    let mut hit = 0;
    for millis in (10..400).step_by(13) {
        let stage = stage(DEEP);
        let ending = stage.run_task(Task::new("the task").timeout(Duration::from_millis(millis))).await;
        let log = stage.log(&ending.session).await;
        check_questions(&log);
        assert!(!stage.path().join("third.txt").exists());
        hit += usize::from(count(&log, "asked") == 1);
    }
    assert!(hit > 0, "no limit hit an open question");
}

#[tokio::test]
async fn a_question_that_runs_out_at_any_moment_is_answered_once() {
    // Sooner than the person, at about the same time, and later.
    for millis in (1..60).step_by(4) {
        let stage = Stage::with(DEEP, move |settings| {
            asking(settings);
            settings.limits.question_timeout = Duration::from_millis(millis);
        });
        let runtime = stage.runtime();
        let prepared = runtime.prepare(Task::new("the task")).await.unwrap();
        let mut watch = prepared.watch();
        let run = prepared.start();
        let late = async {
            while let Some(live) = watch.next().await {
                let Live::Fact(record) = live else { continue };
                let Event::Asked { call, .. } = &record.event else { continue };
                tokio::time::sleep(Duration::from_millis(30)).await;
                let _ = runtime.answer(&record.session, *call, Answer::Once, "the person").await;
            }
        };
        let (ending, ()) = tokio::join!(end(run), late);
        let ending = ending.unwrap();
        assert_eq!(ending.outcome.status, Status::Done);
        let log = stage.log(&ending.session).await;
        check_questions(&log);
        // An answer that came too late stands in the log and counts for nothing: the first is what was done.
        let first = log.iter().find_map(|record| match &record.event {
            Event::Answered { answer, .. } => Some(answer.clone()),
            _ => None,
        });
        assert_eq!(stage.path().join("third.txt").exists(), first == Some(Answer::Once), "{millis} ms");
    }
}

/// Leaves a run whose questions nobody answers, as a process does that is killed, once so many sessions have ended.
async fn leave_open(stage: &Stage, questions: usize, ended: usize) -> SessionId {
    let run = stage.start().await;
    let root = run.session().clone();
    let quiet = async {
        loop {
            let log = stage.log(&root).await;
            if Tree::fold(&log).questions().count() == questions && count(&log, "ended") == ended {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, quiet).await.expect("the questions are asked");
    root
}

#[tokio::test]
async fn an_open_question_is_refused_when_a_resume_finds_nobody_to_ask() {
    let is_alone = Arc::new(AtomicBool::new(false));
    let alone = is_alone.clone();
    let stage = Stage::with(DEEP, move |settings| {
        asking(settings);
        if alone.load(Ordering::SeqCst) {
            settings.asks = Asks::Nobody;
        }
    });
    let root = leave_open(&stage, 1, 2).await;
    is_alone.store(true, Ordering::SeqCst);
    let ending = resume(&stage, &root).await;
    assert!(ending.outcome.text.as_str().contains("nobody can be asked here"), "{}", ending.outcome.text);
    let log = stage.log(&root).await;
    assert_eq!((count(&log, "asked"), count(&log, "answered")), (1, 1));
    check_questions(&log);
}

#[tokio::test]
async fn an_answer_that_came_while_nobody_ran_the_tree_counts_for_what_it_covers() {
    let script = r#"
[[reply]]
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "docs/x.txt", content = "1" }
[[reply.call]]
tool = "write_file"
arguments = { path = "docs/x.txt", content = "2" }
[[reply]]
text = "{results}"
"#;
    let stage = stage(script);
    let root = leave_open(&stage, 2, 0).await;
    let always = Answer::Always("write_file(docs/x.txt)".to_owned());
    let runtime = stage.runtime();
    runtime.answer(&root, CallId { turn: 1, index: 0 }, always, "the person").await.unwrap();
    let ending = resume(&stage, &root).await;
    assert_eq!(ending.outcome.status, Status::Done);
    let log = stage.log(&root).await;
    assert_eq!((count(&log, "asked"), count(&log, "answered")), (2, 2));
    check_questions(&log);
    assert_eq!(std::fs::read_to_string(stage.path().join("docs/x.txt")).unwrap(), "2");
}

#[tokio::test]
async fn a_call_that_had_begun_is_not_left_waiting_for_a_question_that_cannot_be_asked() {
    let script = r#"
[[reply]]
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "out.txt", content = "x" }
[[reply]]
text = "{results}"
"#;
    let asks = Arc::new(AtomicBool::new(false));
    let now_asks = asks.clone();
    let stage = Stage::with(script, move |settings| {
        asking(settings);
        settings.permissions.mode = Mode::Edit;
        if now_asks.load(Ordering::SeqCst) {
            settings.permissions.ask = vec!["write_file".parse().unwrap()];
        }
    });
    // Before the append of its result: the intent is there, and the file is as it was.
    let (_, root) = run_until_crash(&stage, None, 2).await;
    let root = root.unwrap();
    let last = stage.events(&root).await.pop();
    assert!(matches!(last, Some(Event::ToolStarted { .. })), "{last:?}");
    std::fs::remove_file(stage.path().join("out.txt")).unwrap();
    asks.store(true, Ordering::SeqCst);
    let ending = resume(&stage, &root).await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(ending.outcome.text.as_str().contains("asks before it"), "{}", ending.outcome.text);
    check_questions(&stage.log(&root).await);
    assert!(!stage.path().join("out.txt").exists());
}

#[tokio::test]
async fn what_is_asked_about_by_one_name_is_not_written_under_another() {
    let script = r#"
[[reply]]
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "notes.txt", content = "x" }
[[reply]]
text = "{results}"
"#;
    let stage = stage(script);
    std::fs::write(stage.path().join("deploy.sh"), "deploy").unwrap();
    std::os::unix::fs::symlink("deploy.sh", stage.path().join("notes.txt")).unwrap();
    let ending = run_with(&stage, at_once(Answer::Once)).await;
    assert!(ending.outcome.text.as_str().contains("is really `deploy.sh`"), "{}", ending.outcome.text);
    assert_eq!(std::fs::read_to_string(stage.path().join("deploy.sh")).unwrap(), "deploy");
}

#[tokio::test]
async fn a_rule_for_another_tool_is_no_answer() {
    let stage = stage(DEEP);
    let root = leave_open(&stage, 1, 2).await;
    let tree = Tree::fold(&stage.log(&root).await);
    let open = tree.questions().next().unwrap();
    let always = Answer::Always("shell".to_owned());
    let refused = stage.runtime().answer(&open.session, open.call, always, "me").await;
    assert!(matches!(refused, Err(RunError::Rule(words)) if words.contains("no rule for write_file")));
}

#[tokio::test]
async fn a_yes_that_comes_just_before_the_time_limit_counts() {
    let stage = Stage::with(DEEP, |settings| {
        asking(settings);
        settings.limits.question_timeout = Duration::from_millis(50);
    });
    stage.store.is_outrun.store(true, Ordering::SeqCst);
    let ending = stage.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert_eq!(std::fs::read_to_string(stage.path().join("third.txt")).unwrap(), "written");
    let log = stage.log(&ending.session).await;
    assert_eq!(count(&log, "answered"), 1);
    check_questions(&log);
}
