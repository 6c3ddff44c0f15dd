//! Calls that delegate work to another Brigade process: their loans, and how the loans are settled.

use std::sync::{Arc, Mutex};

use brigade::Settings;
use brigade::core::event::Effect;
use brigade::core::message::Category;
use brigade::core::permission::{Action, ActionKind, Mode, Subject};
use brigade::core::usage_report::UsageReport;
use brigade::core::{Budget, Event, Limit, RemoteContext, Spent, Status, ToolOutput, ToolSpec};
use brigade::tool::{AnyTool, EditPlan, Files, ToolContext};
use brigade_testing::{Script, call, delegate, reply};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::run::crash::{resume, run_until_crash};
use crate::run::support::{Harness, check_laws};

/// Two calls at once, then the end.
fn two_calls() -> Script {
    Script::new().turns([call("far", json!({})).call("far", json!({})), reply("heard {results}")])
}

fn one_call() -> Script {
    Script::new().turns([call("far", json!({})), reply("heard {results}")])
}

/// Behaviour of the remote side.
#[derive(Clone, Copy)]
enum RemoteBehavior {
    /// It reports its usage.
    Reports(UsageReport),
    /// It never answers.
    Fails,
    /// It refuses the work.
    Refuses,
    /// The tool itself panics.
    Panics,
}

struct RemoteTool {
    spec: ToolSpec,
    behavior: RemoteBehavior,
    is_brigade: bool,
    heard: Arc<Mutex<Vec<RemoteContext>>>,
}

impl AnyTool for RemoteTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Opaque
    }

    fn delegates_remotely(&self) -> bool {
        self.is_brigade
    }

    fn check(&self, _arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        judge(&Action { tool: "far", kind: ActionKind::Other, subject: Subject::Nothing });
        Ok(())
    }

    fn run<'a>(&'a self, _arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        self.heard.lock().unwrap().push(context.remote_context.clone());
        Box::pin(async move {
            if matches!(self.behavior, RemoteBehavior::Refuses) {
                return ToolOutput::error("not now");
            }
            context.loan.mark_sent();
            match self.behavior {
                RemoteBehavior::Reports(account) => context.loan.settle(Some(&account)),
                RemoteBehavior::Fails | RemoteBehavior::Refuses => {}
                RemoteBehavior::Panics => unreachable!("it falls over"),
            }
            ToolOutput::ok("far away")
        })
    }

    fn plan(&self, _arguments: Value, _files: &Files) -> Result<EditPlan, ToolOutput> {
        Err(ToolOutput::error("no file"))
    }
}

const TOKENS: u64 = 600_000;

fn harness(
    script: impl std::fmt::Display,
    behavior: RemoteBehavior,
    is_brigade: bool,
) -> (Harness, Arc<Mutex<Vec<RemoteContext>>>) {
    harness_with(script, behavior, is_brigade, |_| {})
}

fn harness_with(
    script: impl std::fmt::Display,
    behavior: RemoteBehavior,
    is_brigade: bool,
    tweak: impl Fn(&mut Settings) + 'static,
) -> (Harness, Arc<Mutex<Vec<RemoteContext>>>) {
    let heard: Arc<Mutex<Vec<RemoteContext>>> = Arc::default();
    let recorded = heard.clone();
    let harness = Harness::with(script, move |settings| {
        settings.permissions.mode = Mode::Auto;
        settings.budget =
            Budget { tokens: Limit::AtMost(TOKENS), usd: Limit::Unlimited, agents: Limit::AtMost(30) };
        let spec = ToolSpec {
            name: "far".to_owned(),
            description: "Elsewhere.".to_owned(),
            schema: json!({ "type": "object" }),
            category: Category::Other,
        };
        let far = RemoteTool { spec, behavior, is_brigade, heard: recorded.clone() };
        settings.tools = settings.tools.clone().with_any(Arc::new(far));
        tweak(settings);
    });
    (harness, heard)
}

fn account() -> UsageReport {
    UsageReport { input_tokens: 1000, output_tokens: 500, agents: 2, turns: 3, ..UsageReport::default() }
}

/// Loans and usage of the calls in a log.
fn loans(events: &[Event]) -> Vec<(u64, Spent)> {
    let lent = events.iter().filter_map(|event| match event {
        Event::ToolStarted { lent, .. } => Some(lent.tokens),
        _ => None,
    });
    let spent = events.iter().filter_map(|event| match event {
        Event::ToolEnded { spent, .. } => Some(*spent),
        _ => None,
    });
    lent.zip(spent).collect()
}

#[tokio::test]
async fn parallel_remote_calls_share_the_budget_and_charge_usage() {
    let (harness, heard) = harness(two_calls(), RemoteBehavior::Reports(account()), true);
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    let events = harness.events(&result.session).await;
    let loans = loans(&events);
    let told: Vec<u64> =
        heard.lock().unwrap().iter().map(|remote_context| remote_context.tokens.unwrap()).collect();
    assert_eq!(told, loans.iter().map(|(lent, _)| *lent).collect::<Vec<_>>());
    // A third for each of them, and one share that is kept.
    assert!(told.iter().all(|tokens| (TOKENS / 4..=TOKENS / 3).contains(tokens)), "{told:?}");
    assert_eq!(told[0].abs_diff(told[1]) / 10, 0, "{told:?}");
    assert!(
        heard
            .lock()
            .unwrap()
            .iter()
            .all(|remote_context| remote_context.agents == Some(10) && remote_context.usd.is_none())
    );
    let own = |event: &Event| match event {
        Event::Replied { spent, .. } => spent.amount().tokens,
        _ => 0,
    };
    let own: u64 = events.iter().map(own).sum();
    assert_eq!(result.spent.amount().tokens, own + 2 * 1500);
    assert_eq!((result.spent.agents, result.spent.turns), (4, 2 * 3 + 2));
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn remote_call_cannot_charge_more_than_its_loan() {
    let greedy = UsageReport { output_tokens: u64::MAX, agents: 5000, ..UsageReport::default() };
    let (harness, _) = harness(one_call(), RemoteBehavior::Reports(greedy), true);
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    let loans = loans(&harness.events(&result.session).await);
    assert!((TOKENS / 3..=TOKENS / 2).contains(&loans[0].0), "{loans:?}");
    assert_eq!(loans[0].1.amount().tokens, loans[0].0);
    assert_eq!(loans[0].1.amount().agents, 15);
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn child_waits_for_the_refund_of_a_remote_call() {
    let script = Script::new()
        .agent("lead", [delegate("Child", "x").call("far", json!({})), reply("{results}")])
        .reply("done");
    let idle = RemoteBehavior::Reports(UsageReport::default());
    // There is one agent, which the first call gets.
    let (harness, heard) =
        harness_with(script, idle, true, |settings| settings.budget.agents = Limit::AtMost(1));
    let result = harness.run().await;
    assert_eq!(heard.lock().unwrap()[0].agents, Some(1));
    assert_eq!(result.outcome.text.as_str(), "[Child]: done\nfar away");
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn only_remote_calls_get_a_share() {
    let calls = call("far", json!({})).call("echo", json!({ "text": "x" })).repeat(10);
    let script = Script::new().turns([calls, reply("heard {results}")]);
    let (harness, heard) = harness(script, RemoteBehavior::Reports(account()), true);
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    let told = heard.lock().unwrap()[0].tokens.unwrap();
    assert!((TOKENS / 3..=TOKENS / 2).contains(&told), "{told}");
}

#[tokio::test]
async fn unanswered_remote_work_is_unconfirmed() {
    for behavior in [RemoteBehavior::Fails, RemoteBehavior::Panics] {
        let (harness, _) = harness(one_call(), behavior, true);
        let result = harness.run().await;
        assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
        let loans = loans(&harness.events(&result.session).await);
        assert_eq!(loans[0].1.unconfirmed.tokens, loans[0].0);
        assert_eq!(result.spent.unconfirmed.tokens, loans[0].0);
        check_laws(&harness.log(&result.session).await);
    }
}

#[tokio::test]
async fn unsent_remote_work_costs_nothing() {
    let (harness, _) = harness(one_call(), RemoteBehavior::Refuses, true);
    let result = harness.run().await;
    assert_eq!(loans(&harness.events(&result.session).await)[0].1, Spent::default());
    assert_eq!(result.spent.unconfirmed.tokens, 0);
}

#[tokio::test]
async fn tool_that_does_not_delegate_gets_no_loan() {
    let (harness, heard) = harness(one_call(), RemoteBehavior::Reports(account()), false);
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    assert_eq!(loans(&harness.events(&result.session).await), [(0, Spent::default())]);
    let remote_context = heard.lock().unwrap()[0].clone();
    assert_eq!((remote_context.tokens, remote_context.usd, remote_context.agents), (Some(0), None, Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_leaves_the_loan_unconfirmed_and_sends_nothing_twice() {
    let mut doubts = 0;
    for appends in 1..8 {
        let (harness, heard) = harness(one_call(), RemoteBehavior::Reports(account()), true);
        let (ended, root) = run_until_crash(&harness, None, appends).await;
        let Some(root) = root.filter(|_| ended.is_none()) else { continue };
        let result = resume(&harness, &root).await;
        assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
        assert!(heard.lock().unwrap().len() <= 1, "handed on twice");
        let loans = loans(&harness.events(&root).await);
        let (lent, spent) = loans[0];
        assert!(spent.unconfirmed.tokens == lent || spent.amount().tokens == 1500, "{loans:?}");
        doubts += u32::from(spent.unconfirmed.tokens > 0);
        check_laws(&harness.log(&root).await);
    }
    assert!(doubts > 0, "no crash hit the call");
}
