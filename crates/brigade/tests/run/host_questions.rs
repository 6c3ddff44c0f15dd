//! Questions of running calls about hosts: answered, expired, cancelled, interrupted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use brigade::core::event::{Answer, Effect};
use brigade::core::host_question::{MAX_HOST_QUESTIONS, MAX_OPEN_HOST_QUESTIONS};
use brigade::core::network::Target;
use brigade::core::permission::{Mode, Permissions};
use brigade::core::view::{PendingApproval, Tree};
use brigade::core::{CallId, Event, QuestionId, Record, SessionId, Status, ToolOutput};
use brigade::{
    ApprovalPolicy, Run, RunError, RunEvent, RunResult, Runtime, Settings, Task, Tool, ToolContext,
};
use brigade_testing::{Reply, Script, call, reply};
use futures::future::join_all;
use serde_json::json;

use crate::run::crash::resume;
use crate::run::support::{Harness, TEST_TIMEOUT, check_laws, end};

/// Tool that asks for hosts, one after the other or all at once. It reports the answers.
struct Connect {
    effect: Effect,
    /// Number of calls that ran.
    runs: Arc<AtomicUsize>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct ConnectInput {
    hosts: Vec<String>,
    #[serde(default)]
    at_once: bool,
    /// Whether to end without waiting for the last host.
    #[serde(default)]
    leaves: bool,
}

impl Tool for Connect {
    const NAME: &'static str = "connect";
    type Input = ConnectInput;

    fn description(&self) -> Cow<'static, str> {
        "Connect to hosts.".into()
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    async fn run(&self, input: ConnectInput, context: &ToolContext) -> ToolOutput {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let ask = |host: &String| {
            let host = host.clone();
            async move {
                let allowed = context.ask_host(&host, 443).await;
                format!("{host} {}", if allowed { "yes" } else { "no" })
            }
        };
        let mut answers = Vec::new();
        if input.at_once {
            answers = join_all(input.hosts.iter().map(ask)).await;
        } else {
            for (index, host) in input.hosts.iter().enumerate() {
                if input.leaves && index + 1 == input.hosts.len() {
                    // The question is asked, and its answer is not awaited.
                    let _ = tokio::time::timeout(Duration::from_millis(100), ask(host)).await;
                    break;
                }
                answers.push(ask(host).await);
            }
        }
        ToolOutput::ok(answers.join(", "))
    }
}

/// Runs of the tool in a test, whichever runtime ran it.
type Runs = Arc<AtomicUsize>;

fn asks_users(settings: &mut Settings) {
    settings.approval_policy = ApprovalPolicy::AskUser;
    // Other calls need no approval, and yet every host does.
    settings.permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
}

fn harness_with(script: Script, effect: Effect, tweak: impl Fn(&mut Settings) + 'static) -> (Harness, Runs) {
    let runs = Runs::default();
    let counted = runs.clone();
    let harness = Harness::with(script, move |settings| {
        asks_users(settings);
        settings.tools = settings.tools.clone().with(Connect { effect, runs: counted.clone() });
        tweak(settings);
    });
    (harness, runs)
}

fn harness(script: Script) -> Harness {
    harness_with(script, Effect::Opaque, |_| {}).0
}

fn connect(hosts: &[&str]) -> Reply {
    call("connect", json!({ "hosts": hosts }))
}

fn connect_at_once(hosts: &[&str]) -> Reply {
    call("connect", json!({ "hosts": hosts, "at_once": true }))
}

/// A lead with one reply of calls.
fn one(calls: Reply) -> Script {
    Script::new().turns([calls, reply("{results}")])
}

/// Answers every question as it arrives.
async fn run_with(harness: &Harness, decide: impl FnMut(&PendingApproval) -> Option<Answer>) -> RunResult {
    let runtime = harness.runtime();
    let run = runtime.start(Task::new("the task")).await.unwrap();
    answer_all(&runtime, run, decide).await
}

async fn answer_all(
    runtime: &Runtime,
    mut run: Run,
    mut decide: impl FnMut(&PendingApproval) -> Option<Answer>,
) -> RunResult {
    let mut watch = run.take_events();
    let talk = async {
        let mut tree = Tree::default();
        while let Some(live) = watch.next().await {
            let RunEvent::Record(record) = live else { continue };
            tree.apply(&record);
            if !matches!(record.event, Event::HostAsked { .. }) {
                continue;
            }
            for open in tree.pending_approvals() {
                if let Some(answer) = decide(open) {
                    // An answer to this one may be on its way.
                    let _ = runtime.answer(&open.session, open.question(), answer, "the user").await;
                }
            }
        }
    };
    let (result, ()) = tokio::join!(end(run), talk);
    result.unwrap()
}

fn deny(word: Option<&str>) -> Answer {
    Answer::Deny { word: word.map(str::to_owned) }
}

fn count(log: &[Record], kind: &str) -> usize {
    log.iter().filter(|record| record.event.kind() == kind).count()
}

/// Checks that every question has exactly one end that counts.
fn check_questions(log: &[Record]) {
    check_laws(log);
    assert_eq!(Tree::fold(log).pending_approvals().count(), 0, "a question was lost");
    let mut open: BTreeMap<(&SessionId, CallId, &Target), u32> = BTreeMap::new();
    for record in log {
        match &record.event {
            Event::HostAsked { call, host, .. } => {
                let before = open.insert((&record.session, *call, host), 0);
                assert!(before.is_none_or(|ends| ends > 0), "{call} asks twice for {host}");
            }
            Event::HostAnswered { call, host, .. } => {
                *open.get_mut(&(&record.session, *call, host)).expect("an answer to nothing") += 1;
            }
            _ => {}
        }
    }
    assert!(open.values().all(|ends| *ends >= 1), "{open:?}");
}

/// Starts a run and waits until this many questions are open.
async fn run_until_asked(harness: &Harness, questions: usize) -> Run {
    let run = harness.start().await;
    wait_until_asked(harness, run.session(), questions).await;
    run
}

async fn wait_until_asked(harness: &Harness, root: &SessionId, questions: usize) {
    let asked = async {
        while Tree::fold(&harness.log(root).await).pending_approvals().count() != questions {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, asked).await.expect("the questions are asked");
}

fn question(index: u32, host: &str) -> QuestionId {
    QuestionId { call: CallId { turn: 1, index }, host: Some(format!("{host}:443").parse().unwrap()) }
}

#[tokio::test]
async fn answer_to_a_host_holds_for_the_call() {
    let hosts = ["a.example", "b.example", "a.example", "b.example"];
    let harness = harness(one(connect(&hosts).call("connect", json!({ "hosts": ["a.example"] }))));
    let mut shown = Vec::new();
    let result = run_with(&harness, |open| {
        if open.call.index == 0 {
            shown.push((open.host.clone().unwrap().to_string(), open.why.clone(), open.always.clone()));
        }
        Some(match (open.call.index, open.host.as_ref().unwrap().to_string().as_str()) {
            (0, "a.example:443") => Answer::Once,
            _ => deny(Some("use the mirror")),
        })
    })
    .await;
    assert_eq!(result.outcome.status, Status::Done);
    let always = Some("a.example:443".to_owned());
    let why = "the sandbox does not allow this host".to_owned();
    assert_eq!(shown[0], ("a.example:443".to_owned(), why, always));
    // The second call asks again.
    insta::assert_snapshot!(result.outcome.text.as_str());
    let log = harness.log(&result.session).await;
    assert_eq!((count(&log, "host_asked"), count(&log, "asked")), (3, 0));
    check_questions(&log);
}

#[tokio::test]
async fn always_holds_for_the_session_and_survives_a_restart() {
    let script = Script::new().turns([
        connect(&["a.example"]),
        connect(&["a.example", "b.example"]),
        reply("{results}"),
        connect(&["a.example"]),
        reply("{results}"),
    ]);
    let (harness, _) = harness_with(script, Effect::Opaque, |_| {});
    let result = run_with(&harness, |open| match open.host.as_ref().unwrap().to_string().as_str() {
        "a.example:443" => Some(Answer::Always("a.example:443".to_owned())),
        _ => Some(Answer::Once),
    })
    .await;
    let log = harness.log(&result.session).await;
    assert_eq!(count(&log, "host_asked"), 2);
    check_questions(&log);
    // A new process reads the answer from the log.
    let runtime = harness.runtime();
    runtime.tell(&result.session, "once more").await.unwrap();
    let run = runtime.resume(&result.session, brigade::ResumeOptions::default()).await.unwrap();
    let result = end(run).await.unwrap();
    assert_eq!(result.outcome.text.as_str(), "a.example yes");
    assert_eq!(count(&harness.log(&result.session).await, "host_asked"), 2);
}

#[tokio::test]
async fn always_does_not_apply_to_children() {
    let script = Script::new()
        .agent("lead", [connect(&["a.example"]), brigade_testing::delegate("W", "x"), reply("{results}")])
        .agent("W", [connect(&["a.example"]), reply("{results}")]);
    let harness = harness(script);
    let result = run_with(&harness, |open| {
        Some(match open.session.is_root() {
            true => Answer::Always("a.example:443".to_owned()),
            false => deny(None),
        })
    })
    .await;
    let log = harness.log(&result.session).await;
    assert_eq!(count(&log, "host_asked"), 2);
    assert!(result.outcome.text.as_str().contains("a.example no"), "{}", result.outcome.text);
    check_questions(&log);
}

#[tokio::test]
async fn connections_to_one_host_share_a_question() {
    let harness = harness(one(connect_at_once(&["a.example", "a.example", "A.example.", "b.example"])));
    let result = run_with(&harness, |_| Some(Answer::Once)).await;
    assert_eq!(result.outcome.text.as_str(), "a.example yes, a.example yes, A.example. yes, b.example yes");
    let log = harness.log(&result.session).await;
    assert_eq!(count(&log, "host_asked"), 2);
    check_questions(&log);
}

#[tokio::test]
async fn unanswered_question_is_denied_and_the_user_is_not_asked_again() {
    let calls = connect(&["a.example", "b.example"]);
    let (harness, _) = harness_with(one(calls), Effect::Opaque, |settings| {
        settings.limits.question_timeout = Duration::from_millis(100);
    });
    let result = harness.run().await;
    insta::assert_snapshot!(result.outcome.text.as_str());
    let log = harness.log(&result.session).await;
    assert_eq!(count(&log, "host_asked"), 1);
    let by = log.iter().find_map(|record| match &record.event {
        Event::HostAnswered { by, .. } => Some(by.as_str()),
        _ => None,
    });
    assert_eq!(by, Some("the time limit"));
    check_questions(&log);
}

#[tokio::test]
async fn hosts_are_denied_without_a_question_if_nobody_may_allow_them() {
    type Tweak = fn(&mut Settings);
    let cases: [(&str, Tweak); 3] = [
        ("no user", |settings| settings.approval_policy = ApprovalPolicy::Deny),
        ("plan", |settings| settings.permissions.mode = Mode::Plan),
        ("a rule", |settings| {
            settings.permissions.deny = vec!["web_fetch(*.example)".parse().unwrap()];
        }),
    ];
    for (name, tweak) in cases {
        let (harness, _) = harness_with(one(connect(&["a.example"])), Effect::Pure, tweak);
        let result = harness.run().await;
        assert_eq!(result.outcome.text.as_str(), "a.example no", "{name}");
        assert_eq!(count(&harness.log(&result.session).await, "host_asked"), 0, "{name}");
    }
}

#[tokio::test]
async fn invalid_hosts_are_denied_without_a_question() {
    let harness = harness(one(connect(&["a b", "", "a.example\u{1b}[2J", "x:y", "ä.example"])));
    let result = harness.run().await;
    assert_eq!(result.outcome.text.as_str().matches(" no").count(), 5, "{}", result.outcome.text);
    assert_eq!(count(&harness.log(&result.session).await, "host_asked"), 0);
}

#[tokio::test]
async fn number_of_questions_is_bounded() {
    let many: Vec<String> =
        (0..MAX_OPEN_HOST_QUESTIONS + 5).map(|number| format!("h{number}.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let harness = harness(one(connect_at_once(&many)));
    let run = run_until_asked(&harness, MAX_OPEN_HOST_QUESTIONS).await;
    let root = run.session().clone();
    let runtime = harness.runtime();
    for open in Tree::fold(&harness.log(&root).await).pending_approvals() {
        runtime.answer(&open.session, open.question(), Answer::Once, "the user").await.unwrap();
    }
    let result = end(run).await.unwrap();
    let text = result.outcome.text.as_str();
    assert_eq!(text.matches(" yes").count(), MAX_OPEN_HOST_QUESTIONS, "{text}");
    assert_eq!(text.matches(" no").count(), 5, "{text}");
    check_questions(&harness.log(&root).await);
}

#[tokio::test]
async fn total_number_of_questions_is_bounded() {
    let many: Vec<String> = (0..MAX_HOST_QUESTIONS + 5).map(|number| format!("h{number}.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let harness = harness(one(connect(&many)));
    let result = run_with(&harness, |_| Some(Answer::Once)).await;
    let text = result.outcome.text.as_str();
    assert_eq!(text.matches(" yes").count(), MAX_HOST_QUESTIONS, "{text}");
    assert_eq!(text.matches(" no").count(), 5, "{text}");
    check_questions(&harness.log(&result.session).await);
}

#[tokio::test]
async fn question_ends_with_its_call_and_a_late_answer_is_refused() {
    let leaves = call("connect", json!({ "hosts": ["a.example"], "leaves": true }));
    let harness = harness(Script::new().turns([leaves, reply("done")]));
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done);
    let log = harness.log(&result.session).await;
    let ends: Vec<_> = log
        .iter()
        .filter_map(|record| match &record.event {
            Event::HostAnswered { answer, by, .. } => Some((answer.clone(), by.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(deny(None), "the end of the call")]);
    check_questions(&log);
    let runtime = harness.runtime();
    let late = runtime.answer(&result.session, question(0, "a.example"), Answer::Once, "me").await;
    let Err(error @ RunError::NoSuchApproval { .. }) = late else { panic!("{late:?}") };
    assert!(error.to_string().contains("1-0:a.example:443"), "{error}");
    assert!(error.to_string().contains("or the call may have ended"), "{error}");
}

#[tokio::test]
async fn only_open_questions_accept_answers_and_only_for_their_host() {
    let harness = harness(one(connect(&["a.example"])));
    let run = run_until_asked(&harness, 1).await;
    let (root, runtime) = (run.session().clone(), harness.runtime());
    let answer = async |question: QuestionId, answer: Answer| {
        runtime.answer(&root, question, answer, "me").await.map_err(|error| error.to_string())
    };
    let of_call = QuestionId::from(CallId { turn: 1, index: 0 });
    assert!(answer(of_call, Answer::Once).await.is_err());
    assert!(answer(question(0, "b.example"), Answer::Once).await.is_err());
    let other = answer(question(0, "a.example"), Answer::Always("b.example:443".to_owned())).await;
    insta::assert_snapshot!(other.unwrap_err());
    answer(question(0, "a.example"), Answer::Once).await.unwrap();
    assert!(answer(question(0, "a.example"), deny(None)).await.is_err());
    let result = end(run).await.unwrap();
    assert_eq!(result.outcome.text.as_str(), "a.example yes");
    check_questions(&harness.log(&root).await);
}

#[tokio::test]
async fn cancel_and_time_limit_close_open_questions() {
    for is_cancelled in [true, false] {
        let harness = harness(one(connect_at_once(&["a.example", "b.example"])));
        let runtime = harness.runtime();
        let mut task = Task::new("the task");
        if !is_cancelled {
            task = task.timeout(Duration::from_millis(300));
        }
        let run = runtime.start(task).await.unwrap();
        let root = run.session().clone();
        wait_until_asked(&harness, &root, 2).await;
        if is_cancelled {
            runtime.cancel(&root, "the user").await.unwrap();
        }
        let result = end(run).await.unwrap();
        match is_cancelled {
            true => assert!(matches!(result.outcome.status, Status::Cancelled { .. })),
            false => assert!(matches!(result.outcome.status, Status::Incomplete { .. })),
        }
        let log = harness.log(&root).await;
        assert_eq!((count(&log, "host_asked"), count(&log, "host_answered")), (2, 2));
        check_questions(&log);
        let results = harness.answers(&root).await.concat();
        assert!(!results.contains("the user denied"), "{results}");
        assert!(runtime.answer(&root, question(0, "a.example"), Answer::Once, "me").await.is_err());
    }
}

#[tokio::test]
async fn interrupted_call_is_not_repeated_and_its_questions_are_closed() {
    let (harness, runs) =
        harness_with(one(connect_at_once(&["a.example", "b.example"])), Effect::Opaque, |_| {});
    let run = run_until_asked(&harness, 2).await;
    let root = run.session().clone();
    // The process is gone, with the questions open.
    drop(run);
    let result = resume(&harness, &root).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let text = result.outcome.text.as_str();
    assert!(text.starts_with("interrupted, outcome unknown: Brigade exited while this call"), "{text}");
    let log = harness.log(&root).await;
    assert_eq!((count(&log, "host_asked"), count(&log, "host_answered")), (2, 2));
    check_questions(&log);
}

#[tokio::test]
async fn pure_call_that_runs_again_asks_again() {
    let (harness, runs) = harness_with(one(connect(&["a.example"])), Effect::Pure, |_| {});
    let run = run_until_asked(&harness, 1).await;
    let root = run.session().clone();
    drop(run);
    let runtime = harness.runtime();
    let run = runtime.resume(&root, brigade::ResumeOptions::default()).await.unwrap();
    let result = answer_all(&runtime, run, |_| Some(Answer::Once)).await;
    assert_eq!(result.outcome.text.as_str(), "a.example yes");
    assert_eq!(runs.load(Ordering::SeqCst), 2);
    let log = harness.log(&root).await;
    assert_eq!((count(&log, "host_asked"), count(&log, "host_answered")), (2, 2));
    check_questions(&log);
}

#[tokio::test]
async fn crash_before_every_append_closes_every_question() {
    let script = || one(connect(&["a.example", "b.example"]).call("echo", json!({ "text": "beside" })));
    let whole = harness(script());
    run_with(&whole, |_| Some(Answer::Once)).await;
    let appends = whole.store.appends.load(Ordering::SeqCst);
    let (mut interrupted, mut asked) = (0, 0);
    for at in 0..=appends {
        let (harness, runs) = harness_with(script(), Effect::Opaque, |_| {});
        let runtime = harness.runtime();
        harness.store.crash_after(at);
        let Ok(mut run) = runtime.start(Task::new("the task")).await else { continue };
        let root = run.session().clone();
        let mut watch = run.take_events();
        // The process is killed when the answer cannot be written.
        let killed = async {
            let mut tree = Tree::default();
            while let Some(live) = watch.next().await {
                let RunEvent::Record(record) = live else { continue };
                tree.apply(&record);
                for open in tree.pending_approvals() {
                    let answered = runtime.answer(&open.session, open.question(), Answer::Once, "the user");
                    if matches!(answered.await, Err(error) if !matches!(error, RunError::NoSuchApproval { .. }))
                    {
                        return;
                    }
                }
            }
            std::future::pending().await
        };
        let first = tokio::select! {
            result = end(run) => result.ok(),
            () = killed => None,
        };
        harness.store.repair();
        if harness.log(&root).await.is_empty() {
            continue;
        }
        let started = count(&harness.log(&root).await, "tool_started") > 0;
        let result = match first {
            Some(result) => result,
            None => {
                let runtime = harness.runtime();
                let run = runtime.resume(&root, brigade::ResumeOptions::default()).await.unwrap();
                answer_all(&runtime, run, |_| Some(Answer::Once)).await
            }
        };
        assert_eq!(result.outcome.status, Status::Done, "after {at}");
        let log = harness.log(&root).await;
        check_questions(&log);
        assert!(runs.load(Ordering::SeqCst) <= 1, "the call ran twice after {at}");
        interrupted += usize::from(started && result.outcome.text.as_str().contains("outcome unknown"));
        asked += count(&log, "host_asked");
    }
    assert!(interrupted > 1 && asked > 2, "{interrupted} interrupted, {asked} questions");
}

#[tokio::test]
async fn other_calls_continue_while_a_question_is_open() {
    let harness = harness(one(connect(&["a.example"]).call("echo", json!({ "text": "beside" }))));
    let run = run_until_asked(&harness, 1).await;
    let root = run.session().clone();
    let beside = async {
        while harness.answers(&root).await != ["beside"] {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, beside).await.expect("the other call ends");
    harness.runtime().answer(&root, question(0, "a.example"), Answer::Once, "me").await.unwrap();
    assert!(end(run).await.unwrap().outcome.text.as_str().contains("a.example yes"));
}

#[tokio::test]
async fn remembered_host_is_allowed_without_a_user_and_others_are_denied() {
    let script = Script::new().turns([
        connect(&["a.example"]),
        reply("first"),
        connect(&["a.example", "b.example"]),
        reply("{results}"),
    ]);
    let is_alone = Arc::new(AtomicBool::new(false));
    let alone = is_alone.clone();
    let (harness, _) = harness_with(script, Effect::Opaque, move |settings| {
        if alone.load(Ordering::SeqCst) {
            settings.approval_policy = ApprovalPolicy::Deny;
        }
    });
    let first = run_with(&harness, |_| Some(Answer::Always("a.example:443".to_owned()))).await;
    is_alone.store(true, Ordering::SeqCst);
    let runtime = harness.runtime();
    runtime.tell(&first.session, "once more").await.unwrap();
    let run = runtime.resume(&first.session, brigade::ResumeOptions::default()).await.unwrap();
    assert_eq!(end(run).await.unwrap().outcome.text.as_str(), "a.example yes, b.example no");
}
