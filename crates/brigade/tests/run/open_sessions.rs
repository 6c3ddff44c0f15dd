//! Open sessions: admission, one prompt at a time, stop, close, approvals and settings.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade::core::event::{Answer, Effect};
use brigade::core::permission::{Mode, Permissions};
use brigade::core::view::PendingApproval;
use brigade::core::{Agent, Event, RemoteContext, SessionId, Status, ToolOutput};
use brigade::open_sessions::{OpenError, OpenLimits, PromptError, PromptPermit, Resumed, SessionOptions};
use brigade::store::Owner;
use brigade::{
    ApprovalPolicy, OpenSession, OpenSessions, Run, RunError, RunEvent, RunResult, Settings, StoreError,
    Tool, ToolContext,
};
use brigade_testing::{Fault, Script, call, fault, reply};
use serde_json::json;

use crate::run::support::{Harness, TEST_TIMEOUT, check_laws, end};

fn answers() -> Script {
    Script::new().reply("done")
}

fn hangs() -> Script {
    Script::new().reply(fault(Fault::Hang))
}

/// Answers the first prompt and then hangs.
fn hangs_later() -> Script {
    Script::new().turns([reply("done"), fault(Fault::Hang)])
}

/// Requests an approval.
fn asks() -> Script {
    Script::new()
        .turns([call("write_file", json!({ "path": "a.txt", "content": "written" })), reply("{results}")])
}

const BY: &str = "the test";

fn limits(max_open: usize) -> OpenLimits {
    OpenLimits { max_open, stop_timeout: Some(TEST_TIMEOUT) }
}

fn options(harness: &Harness) -> SessionOptions {
    SessionOptions::new(harness.runtime())
}

fn open(harness: &Harness) -> (OpenSessions, Arc<OpenSession>) {
    let sessions = OpenSessions::new(limits(4));
    let open = sessions.open_new(options(harness), ()).unwrap();
    (sessions, open)
}

fn asking(script: Script) -> Harness {
    Harness::with(script, |settings: &mut Settings| {
        settings.approval_policy = ApprovalPolicy::AskUser;
        settings.permissions = Permissions { mode: Mode::Ask, ..Permissions::default() };
    })
}

/// Starts a prompt. The run keeps the session busy.
async fn send(open: &Arc<OpenSession>, text: &str) -> Run {
    open.begin_prompt().unwrap().send(Some(text), None).await.unwrap()
}

async fn prompt(open: &Arc<OpenSession>, text: &str) -> RunResult {
    let result = end(send(open, text).await).await.unwrap();
    assert!(!open.is_busy(), "the session is idle as soon as the result is known");
    result
}

async fn within_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TEST_TIMEOUT, future).await.expect("the wait does not end")
}

/// Waits for an event of the run.
async fn wait_for(run: &mut Run, is_wanted: impl Fn(&Event) -> bool) {
    let wait = async {
        loop {
            let event = run.next().await.expect("the run ended without the event");
            if matches!(&event, RunEvent::Record(record) if is_wanted(&record.event)) {
                return;
            }
        }
    };
    within_time(wait).await;
}

async fn wait_for_approval(run: &mut Run, open: &OpenSession) -> PendingApproval {
    wait_for(run, |event| matches!(event, Event::Asked { .. })).await;
    open.pending_approvals().await.unwrap().remove(0)
}

fn is_cancelled(result: &RunResult) -> bool {
    matches!(&result.outcome.status, Status::Cancelled { by } if by == BY)
}

fn is_not_open(answered: Result<(), RunError>) -> bool {
    matches!(answered, Err(RunError::NoSuchApproval { .. }))
}

#[tokio::test]
async fn open_beyond_the_limit_is_refused_until_a_session_closes() {
    let harness = Harness::new(answers());
    let sessions = OpenSessions::<()>::new(limits(2));
    let first = sessions.open_new(options(&harness), ()).unwrap();
    let second = sessions.open_new(options(&harness), ()).unwrap();
    assert!(matches!(sessions.open_new(options(&harness), ()), Err(OpenError::Full)));
    assert!(matches!(sessions.open_once(options(&harness), ()), Err(OpenError::Full)));
    // A session that is opened again takes no second place.
    prompt(&second, "hello").await;
    let again = sessions.open_stored(second.id().clone(), options(&harness), ()).await.unwrap();
    assert!(sessions.get(second.id()).is_some_and(|open| Arc::ptr_eq(&open, &again)));
    assert!(sessions.close(first.id(), BY).await);
    assert!(!sessions.close(first.id(), BY).await, "it is closed already");
    assert!(sessions.open_new(options(&harness), ()).is_ok());
}

#[tokio::test]
async fn open_of_an_unknown_session_is_refused() {
    let harness = Harness::new(answers());
    let sessions = OpenSessions::<()>::new(limits(2));
    let unknown = sessions.open_stored(SessionId::root(7), options(&harness), ()).await;
    assert!(matches!(unknown, Err(OpenError::Unknown(session)) if session == SessionId::root(7)));
}

#[tokio::test]
async fn session_for_one_prompt_closes_with_it() {
    let harness = Harness::new(answers());
    let sessions = OpenSessions::<()>::new(limits(1));
    let permit = sessions.open_once(options(&harness), ()).unwrap();
    let session = permit.session().id().clone();
    let run = permit.send(Some("hello"), None).await.unwrap();
    let mut background = permit.run_in_background(run, BY);
    assert!(matches!(sessions.open_once(options(&harness), ()), Err(OpenError::Full)));
    let result = within_time(background.result()).await.unwrap();
    assert_eq!(result.session, session);
    assert!(sessions.get(&session).is_none(), "its place is free as soon as the result is known");
    assert!(sessions.open_once(options(&harness), ()).is_ok());
}

#[tokio::test]
async fn second_prompt_while_one_runs_is_refused() {
    let harness = Harness::new(hangs_later());
    let (sessions, open) = open(&harness);
    assert_eq!(prompt(&open, "first").await.outcome.text.as_str(), "done");
    let permit = open.begin_prompt().unwrap();
    // The session is reserved before the run exists.
    assert!(matches!(open.begin_prompt(), Err(OpenError::Busy)));
    let run = permit.send(Some("second"), None).await.unwrap();
    drop(permit);
    assert!(matches!(open.begin_prompt(), Err(OpenError::Busy)));
    let again = sessions.open_stored(open.id().clone(), options(&harness), ()).await;
    assert!(matches!(again, Err(OpenError::Busy)), "a busy session is not replaced");
    assert!(!sessions.close_idle(open.id()));
    assert!(open.stop(BY));
    assert!(is_cancelled(&end(run).await.unwrap()));
    within_time(open.idle()).await;
    assert!(open.begin_prompt().is_ok());
    assert!(sessions.close_idle(open.id()));
}

#[tokio::test]
async fn stop_before_the_run_exists_cancels_it() {
    let harness = Harness::new(hangs());
    let (_sessions, open) = open(&harness);
    assert!(!open.stop(BY), "nothing is running");
    let permit = open.begin_prompt().unwrap();
    assert!(open.stop(BY));
    let run = permit.send(Some("hello"), None).await.unwrap();
    assert!(is_cancelled(&end(run).await.unwrap()));
    let events = harness.events(open.id()).await;
    let cancels = events.iter().filter(|event| matches!(event, Event::CancelAsked { .. })).count();
    assert_eq!(cancels, 1);
}

#[tokio::test]
async fn stop_of_an_earlier_prompt_does_not_stop_the_next() {
    let harness = Harness::new(answers());
    let (_sessions, open) = open(&harness);
    let permit = open.begin_prompt().unwrap();
    open.stop(BY);
    drop(permit);
    assert_eq!(prompt(&open, "hello").await.outcome.status, Status::Done);
}

#[tokio::test]
async fn stop_during_an_approval_ends_the_prompt_and_closes_the_request() {
    let harness = asking(asks());
    let (_sessions, open) = open(&harness);
    let mut run = send(&open, "write").await;
    let approval = wait_for_approval(&mut run, &open).await;
    open.stop(BY);
    open.stop("someone else");
    assert!(is_cancelled(&end(run).await.unwrap()), "the first stop counts");
    assert!(open.pending_approvals().await.unwrap().is_empty());
    assert!(is_not_open(open.answer(&approval.session, approval.call, Answer::Once, BY).await));
    assert!(!harness.path().join("a.txt").exists());
    check_laws(&harness.log(open.id()).await);
}

/// Tool that runs until it is stopped and notes that. Without a place for the note, it ignores the stop.
struct Wait(Option<Arc<AtomicBool>>);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct WaitInput {}

impl Tool for Wait {
    const NAME: &'static str = "wait";
    type Input = WaitInput;

    fn description(&self) -> Cow<'static, str> {
        "Wait.".into()
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    async fn run(&self, _: WaitInput, context: &ToolContext) -> ToolOutput {
        let Some(was_stopped) = &self.0 else { return std::future::pending().await };
        let _ = context.stop.clone().wait_for(|stop| *stop).await;
        was_stopped.store(true, Ordering::SeqCst);
        ToolOutput::ok("stopped")
    }
}

/// Agent that calls the tool.
fn waiting(was_stopped: Option<Arc<AtomicBool>>) -> Harness {
    let script = Script::new().turns([call("wait", json!({})), reply("late")]);
    Harness::with(script, move |settings| {
        settings.tools = settings.tools.clone().with(Wait(was_stopped.clone()));
        settings.permissions.mode = Mode::Auto;
    })
}

#[tokio::test]
async fn close_during_a_tool_call_stops_it_and_waits_for_the_end() {
    let was_stopped = Arc::new(AtomicBool::new(false));
    let harness = waiting(Some(was_stopped.clone()));
    let (sessions, open) = open(&harness);
    let mut run = send(&open, "wait").await;
    wait_for(&mut run, |event| matches!(event, Event::ToolStarted { .. })).await;
    let (closed, result) = tokio::join!(within_time(sessions.close(open.id(), BY)), end(run));
    assert!(closed && is_cancelled(&result.unwrap()));
    assert!(was_stopped.load(Ordering::SeqCst));
    assert!(sessions.get(open.id()).is_none());
    let log = harness.log(open.id()).await;
    assert!(matches!(log.last().map(|record| &record.event), Some(Event::Ended { .. })));
    check_laws(&log);
}

#[tokio::test]
async fn close_waits_until_the_front_end_has_dropped_its_permit() {
    let harness = Harness::new(answers());
    let (sessions, open) = open(&harness);
    let permit = open.begin_prompt().unwrap();
    end(permit.send(Some("hello"), None).await.unwrap()).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(50), sessions.close(open.id(), BY)).await;
    assert!(waited.is_err(), "the front end has not answered yet");
    drop(permit);
    assert!(within_time(sessions.close(open.id(), BY)).await);
}

#[tokio::test]
async fn second_answer_is_refused() {
    let harness = asking(asks());
    let (_sessions, open) = open(&harness);
    let mut run = send(&open, "write").await;
    let approval = wait_for_approval(&mut run, &open).await;
    let (session, call) = (&approval.session, approval.call);
    let answer = |answer| open.answer(session, call, answer, BY);
    let always = |rule: &str| Answer::Always(rule.to_owned());
    // Answers that do not count leave the request open.
    assert!(matches!(answer(always("write_file(")).await, Err(RunError::Rule(_))));
    assert!(matches!(answer(always("shell(ls)")).await, Err(RunError::Rule(_))));
    assert!(is_not_open(open.answer(&SessionId::root(7), call, Answer::Once, BY).await), "another tree");
    let other_call = brigade::core::CallId { index: call.index + 1, ..call };
    assert!(is_not_open(open.answer(session, other_call, Answer::Once, BY).await), "another call");
    assert_eq!(open.pending_approvals().await.unwrap(), std::slice::from_ref(&approval));
    answer(always("write_file(a.txt)")).await.unwrap();
    assert!(is_not_open(answer(Answer::Deny { word: None }).await), "it is answered");
    assert_eq!(end(run).await.unwrap().outcome.status, Status::Done);
    assert_eq!(std::fs::read_to_string(harness.path().join("a.txt")).unwrap(), "written");
}

#[tokio::test]
async fn denial_with_a_reason_reaches_the_agent() {
    let harness = asking(asks());
    let (_sessions, open) = open(&harness);
    let mut run = send(&open, "write").await;
    let approval = wait_for_approval(&mut run, &open).await;
    let denied = Answer::Deny { word: Some("use b.txt".to_owned()) };
    open.answer(&approval.session, approval.call, denied, BY).await.unwrap();
    let result = end(run).await.unwrap();
    assert!(result.outcome.text.as_str().contains("use b.txt"), "{:?}", result.outcome);
    assert!(!harness.path().join("a.txt").exists());
}

#[tokio::test]
async fn answer_after_the_end_is_refused() {
    let harness = asking(asks());
    let (_sessions, open) = open(&harness);
    let mut run = send(&open, "write").await;
    let approval = wait_for_approval(&mut run, &open).await;
    let answer = || open.answer(&approval.session, approval.call, Answer::Once, BY);
    answer().await.unwrap();
    assert_eq!(end(run).await.unwrap().outcome.status, Status::Done);
    assert!(is_not_open(answer().await));
    // The next prompt has calls of its own, to which the old answer does not apply.
    prompt(&open, "more").await;
    assert!(is_not_open(answer().await));
}

#[tokio::test]
async fn settings_apply_from_the_next_prompt_on() {
    let harness = Harness::new(Script::new().turns([reply("one").delay_ms(50), reply("two")]));
    let (sessions, open) = open(&harness);
    assert_eq!((open.mode(), open.model().as_str()), (Mode::Edit, "script"));
    let recorded = async || {
        let info = harness.runtime().session_info(open.id()).await.unwrap().unwrap();
        (info.mode().unwrap(), info.model().unwrap().to_owned())
    };
    let run = send(&open, "first").await;
    assert!(open.set_mode(Mode::Plan) && open.set_model("script/other"));
    assert!(!open.set_model("unknown/model"));
    end(run).await.unwrap();
    assert_eq!(recorded().await, (Mode::Edit, "script".to_owned()), "the running prompt keeps its settings");
    assert_eq!((open.mode(), open.model().as_str()), (Mode::Plan, "script/other"));
    within_time(open.idle()).await;
    prompt(&open, "second").await;
    assert_eq!(recorded().await, (Mode::Plan, "script/other".to_owned()));
    // A session that is opened again keeps what it was last run with.
    let again = sessions.open_stored(open.id().clone(), options(&harness), ()).await.unwrap();
    assert!(again.is_started());
    assert_eq!((again.mode(), again.model().as_str()), (Mode::Plan, "script/other"));
}

#[tokio::test]
async fn mode_beyond_that_of_the_agent_is_refused() {
    let harness = Harness::new(answers());
    let sessions = OpenSessions::<()>::new(limits(4));
    let agent = Agent { id: "careful".into(), mode: Some(Mode::Ask), ..Agent::default() };
    let options = SessionOptions { agent: Some(agent), ..options(&harness) };
    let open = sessions.open_new(options.clone(), ()).unwrap();
    assert_eq!(open.mode(), Mode::Ask, "the default is bounded, too");
    assert!(!open.set_mode(Mode::Edit) && open.set_mode(Mode::Plan));
    prompt(&open, "hello").await;
    let stored = sessions.open_stored(open.id().clone(), SessionOptions { agent: None, ..options }, ()).await;
    assert!(!stored.unwrap().set_mode(Mode::Edit), "the bound is that of the stored agent");
}

#[tokio::test]
async fn session_that_another_process_runs_is_refused_or_left_to_it() {
    let harness = Harness::new(hangs_later());
    let (_sessions, open) = open(&harness);
    prompt(&open, "first").await;
    let elsewhere = harness.runtime().with_owner(Owner::this_process());
    elsewhere.tell(open.id(), "second").await.unwrap();
    let mut other = elsewhere.resume(open.id(), brigade::ResumeOptions::default()).await.unwrap();
    wait_for(&mut other, |event| matches!(event, Event::Called { .. })).await;
    let permit = open.begin_prompt().unwrap();
    let refused = permit.send(None, None).await;
    assert!(matches!(refused, Err(PromptError::Run(RunError::Store(StoreError::Held { .. })))));
    assert!(matches!(permit.resume().await, Ok(Resumed::RunningElsewhere)));
    drop(other);
}

#[tokio::test]
async fn caller_at_a_greater_depth_cannot_resume_a_session() {
    let harness = Harness::new(answers());
    let (_sessions, open) = open(&harness);
    prompt(&open, "first").await;
    let permit = open.begin_prompt().unwrap();
    let deeper = RemoteContext { depth: 1, ..RemoteContext::default() };
    let before = harness.events(open.id()).await.len();
    let refused = permit.send(Some("second"), Some(deeper)).await;
    assert!(matches!(refused, Err(PromptError::CallerTooDeep { depth: 0, caller: 1 })));
    assert_eq!(harness.events(open.id()).await.len(), before, "the message is not recorded");
}

#[tokio::test]
async fn dropped_run_leaves_the_session_idle_and_resumable() {
    let script = Script::new().turns([fault(Fault::Hang).attempt(1), reply("done")]);
    let harness = Harness::new(script);
    let (_sessions, open) = open(&harness);
    let mut run = send(&open, "hello").await;
    wait_for(&mut run, |event| matches!(event, Event::Called { .. })).await;
    drop(run);
    within_time(open.idle()).await;
    let permit = open.begin_prompt().unwrap();
    let Ok(Resumed::Started(run)) = permit.resume().await else { panic!("it is not resumed") };
    assert_eq!(end(*run).await.unwrap().outcome.text.as_str(), "done");
    let cancels = |event: &Event| matches!(event, Event::CancelAsked { .. });
    assert!(!harness.events(open.id()).await.iter().any(cancels));
}

async fn in_background(harness: &Harness) -> (OpenSessions, brigade::open_sessions::BackgroundPrompt) {
    let sessions = OpenSessions::new(limits(4));
    let permit: PromptPermit = sessions.open_once(options(harness), ()).unwrap();
    let run = permit.send(Some("hello"), None).await.unwrap();
    (sessions, permit.run_in_background(run, BY))
}

#[tokio::test]
async fn dropped_background_prompt_is_cancelled() {
    let harness = Harness::new(hangs());
    let (sessions, background) = in_background(&harness).await;
    let open = background.session().clone();
    drop(background);
    within_time(open.idle()).await;
    assert!(sessions.get(open.id()).is_none());
    let log = harness.log(open.id()).await;
    let ended = log.last().map(|record| &record.event);
    assert!(
        matches!(ended, Some(Event::Ended { outcome, .. }) if matches!(outcome.status, Status::Cancelled { .. }))
    );
}

#[tokio::test]
async fn detached_background_prompt_continues_until_all_sessions_are_closed() {
    let harness = Harness::new(hangs());
    let (sessions, background) = in_background(&harness).await;
    let open = background.session().clone();
    background.detach();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(open.is_busy());
    within_time(sessions.close_all(BY)).await;
    assert!(!open.is_busy());
    check_laws(&harness.log(open.id()).await);
    assert!(matches!(sessions.open_once(options(&harness), ()), Err(OpenError::Closed)));
    assert!(matches!(open.begin_prompt(), Err(OpenError::Closed)));
}

#[tokio::test]
async fn background_prompt_is_busy_until_its_detached_sessions_end() {
    let script = Script::new()
        .agent(
            "lead",
            [
                call("delegate", json!({ "role": "Later", "task": "go", "background": "detach" })),
                reply("I do not wait"),
            ],
        )
        .agent("Later", [fault(Fault::Hang)]);
    let harness = Harness::with(script, |settings| {
        settings.delegation_styles.delegation.extras =
            [brigade::core::delegation_styles::ExtraParameter::Background].into();
        settings.budget.tokens = brigade::core::Limit::AtMost(100_000);
    });
    let (sessions, mut background) = in_background(&harness).await;
    let open = background.session().clone();
    let result = within_time(background.result()).await.unwrap();
    assert_eq!(result.outcome.text.as_str(), "I do not wait");
    background.detach();
    assert!(open.is_busy());
    within_time(sessions.close_all(BY)).await;
    let child = &result.detached.sessions()[0];
    let last = harness.events(child).await.pop();
    assert!(
        matches!(last, Some(Event::Ended { outcome, .. }) if matches!(outcome.status, Status::Cancelled { .. }))
    );
}

#[tokio::test]
async fn prompt_that_does_not_stop_in_time_is_aborted() {
    let harness = waiting(None);
    let sessions = OpenSessions::<()>::new(OpenLimits { max_open: 1, stop_timeout: Some(Duration::ZERO) });
    let open = sessions.open_new(options(&harness), ()).unwrap();
    let mut run = send(&open, "wait").await;
    wait_for(&mut run, |event| matches!(event, Event::ToolStarted { .. })).await;
    open.stop(BY);
    let error = end(run).await.unwrap_err().to_string();
    assert!(error.contains("did not stop in time"), "{error}");
    within_time(open.idle()).await;
}

#[tokio::test]
async fn session_info_has_the_definition_of_the_last_round() {
    let harness = Harness::new(answers());
    let (_sessions, open) = open(&harness);
    let runtime = harness.runtime();
    assert!(runtime.session_info(open.id()).await.unwrap().is_none(), "it has not started");
    prompt(&open, "first").await;
    let info = runtime.session_info(open.id()).await.unwrap().unwrap();
    assert_eq!(info.agent.as_ref().map(|agent| agent.id.as_str()), Some("lead"));
    assert_eq!((info.mode(), info.model(), info.depth), (Some(Mode::Edit), Some("script"), 0));
    assert_eq!(info.workspace().as_deref(), Some(runtime.settings().workspace.root()));
    assert_eq!(info.delegation.task.as_str(), "first");
    assert!(!info.is_imported && !info.is_passthrough());
    // The folder of an imported session is on another machine.
    let imported = brigade::SessionInfo { is_imported: true, ..info };
    assert_eq!(imported.workspace(), None);
}
