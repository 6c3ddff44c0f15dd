//! Calls that hand work on to another Brigade: what they are lent, and what becomes of the loan.

use std::sync::{Arc, Mutex};

use brigade::Settings;
use brigade::core::account::Account;
use brigade::core::event::Effect;
use brigade::core::message::Category;
use brigade::core::permission::{Action, Kind, Mode, Subject};
use brigade::core::{Budget, Event, Hop, Limit, Spent, Status, ToolOutput, ToolSpec};
use brigade::tool::{AnyTool, EditPlan, Files, ToolContext};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::crash::{resume, run_until_crash};
use crate::support::{Stage, check_laws};

/// Two calls at once, then the end.
const TWO_CALLS: &str = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'far'\narguments = {}\n\
                         [[reply.call]]\ntool = 'far'\narguments = {}\n[[reply]]\ntext = 'heard {results}'\n";
const ONE_CALL: &str = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'far'\narguments = {}\n\
                        [[reply]]\ntext = 'heard {results}'\n";

/// What a far side does with a call.
#[derive(Clone, Copy)]
enum Conduct {
    /// It says what it used.
    Says(Account),
    /// It never answers.
    Fails,
    /// It does not take the work up.
    Refuses,
    /// The tool itself falls over.
    Panics,
}

struct Far {
    spec: ToolSpec,
    conduct: Conduct,
    is_brigade: bool,
    heard: Arc<Mutex<Vec<Hop>>>,
}

impl AnyTool for Far {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> Effect {
        Effect::Opaque
    }

    fn hands_on(&self) -> bool {
        self.is_brigade
    }

    fn check(&self, _arguments: &Value, judge: &mut dyn FnMut(&Action<'_>)) -> Result<(), ToolOutput> {
        judge(&Action { tool: "far", kind: Kind::Other, subject: Subject::Nothing });
        Ok(())
    }

    fn run<'a>(&'a self, _arguments: Value, context: &'a ToolContext) -> BoxFuture<'a, ToolOutput> {
        self.heard.lock().unwrap().push(context.hop.clone());
        Box::pin(async move {
            if matches!(self.conduct, Conduct::Refuses) {
                return ToolOutput::error("not now");
            }
            context.purse.hand_on();
            match self.conduct {
                Conduct::Says(account) => context.purse.settle(Some(&account)),
                Conduct::Fails | Conduct::Refuses => {}
                Conduct::Panics => unreachable!("it falls over"),
            }
            ToolOutput::ok("far away")
        })
    }

    fn plan(&self, _arguments: Value, _files: &Files) -> Result<EditPlan, ToolOutput> {
        Err(ToolOutput::error("no file"))
    }
}

const TOKENS: u64 = 600_000;

fn stage(script: &str, conduct: Conduct, is_brigade: bool) -> (Stage, Arc<Mutex<Vec<Hop>>>) {
    stage_with(script, conduct, is_brigade, |_| {})
}

fn stage_with(
    script: &str,
    conduct: Conduct,
    is_brigade: bool,
    tweak: impl Fn(&mut Settings) + 'static,
) -> (Stage, Arc<Mutex<Vec<Hop>>>) {
    let heard: Arc<Mutex<Vec<Hop>>> = Arc::default();
    let there = heard.clone();
    let stage = Stage::with(script, move |settings| {
        settings.permissions.mode = Mode::Auto;
        settings.budget =
            Budget { tokens: Limit::AtMost(TOKENS), usd: Limit::Unlimited, agents: Limit::AtMost(30) };
        let spec = ToolSpec {
            name: "far".to_owned(),
            description: "Elsewhere.".to_owned(),
            schema: json!({ "type": "object" }),
            category: Category::Other,
        };
        let far = Far { spec, conduct, is_brigade, heard: there.clone() };
        settings.tools = settings.tools.clone().with_any(Arc::new(far));
        tweak(settings);
    });
    (stage, heard)
}

fn account() -> Account {
    Account { input_tokens: 1000, output_tokens: 500, agents: 2, turns: 3, ..Account::default() }
}

/// What the calls of a log were lent and have used.
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
async fn calls_at_once_share_what_is_free_and_what_they_use_is_booked() {
    let (stage, heard) = stage(TWO_CALLS, Conduct::Says(account()), true);
    let ending = stage.run().await;
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
    let events = stage.events(&ending.session).await;
    let loans = loans(&events);
    let told: Vec<u64> = heard.lock().unwrap().iter().map(|hop| hop.tokens.unwrap()).collect();
    assert_eq!(told, loans.iter().map(|(lent, _)| *lent).collect::<Vec<_>>());
    // A third for each of them, and one that is kept.
    assert!(told.iter().all(|tokens| (TOKENS / 4..=TOKENS / 3).contains(tokens)), "{told:?}");
    assert_eq!(told[0].abs_diff(told[1]) / 10, 0, "{told:?}");
    assert!(heard.lock().unwrap().iter().all(|hop| hop.agents == Some(10) && hop.usd.is_none()));
    let own = |event: &Event| match event {
        Event::Replied { spent, .. } => spent.amount().tokens,
        _ => 0,
    };
    let own: u64 = events.iter().map(own).sum();
    assert_eq!(ending.spent.amount().tokens, own + 2 * 1500);
    assert_eq!((ending.spent.agents, ending.spent.turns), (4, 2 * 3 + 2));
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn nobody_can_charge_more_than_the_loan() {
    let greedy = Account { output_tokens: u64::MAX, agents: 5000, ..Account::default() };
    let (stage, _) = stage(ONE_CALL, Conduct::Says(greedy), true);
    let ending = stage.run().await;
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
    let loans = loans(&stage.events(&ending.session).await);
    assert!((TOKENS / 3..=TOKENS / 2).contains(&loans[0].0), "{loans:?}");
    assert_eq!(loans[0].1.amount().tokens, loans[0].0);
    assert_eq!(loans[0].1.amount().agents, 15);
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn a_child_waits_for_what_a_call_gives_back() {
    let script = "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
                  arguments = { role = 'Child', task = 'x' }\n[[reply.call]]\ntool = 'far'\narguments = {}\n\
                  [[reply]]\nagent = 'lead'\ntext = '{results}'\n[[reply]]\ntext = 'done'\n";
    let idle = Conduct::Says(Account::default());
    // There is one agent, which the call that is seen to first gets.
    let (stage, heard) = stage_with(script, idle, true, |settings| settings.budget.agents = Limit::AtMost(1));
    let ending = stage.run().await;
    assert_eq!(heard.lock().unwrap()[0].agents, Some(1));
    assert_eq!(ending.outcome.text.as_str(), "[Child]: done\nfar away");
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test]
async fn only_calls_that_take_a_loan_get_a_part() {
    let echo = "[[reply.call]]\ntool = 'echo'\narguments = { text = 'x' }\n".repeat(10);
    let script = ONE_CALL.replace("[[reply]]\ntext", &format!("{echo}[[reply]]\ntext"));
    let (stage, heard) = stage(&script, Conduct::Says(account()), true);
    let ending = stage.run().await;
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
    let told = heard.lock().unwrap()[0].tokens.unwrap();
    assert!((TOKENS / 3..=TOKENS / 2).contains(&told), "{told}");
}

#[tokio::test]
async fn work_that_left_and_did_not_come_back_is_in_doubt() {
    for conduct in [Conduct::Fails, Conduct::Panics] {
        let (stage, _) = stage(ONE_CALL, conduct, true);
        let ending = stage.run().await;
        assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
        let loans = loans(&stage.events(&ending.session).await);
        assert_eq!(loans[0].1.in_doubt.tokens, loans[0].0);
        assert_eq!(ending.spent.in_doubt.tokens, loans[0].0);
        check_laws(&stage.log(&ending.session).await);
    }
}

#[tokio::test]
async fn work_that_never_left_costs_nothing() {
    let (stage, _) = stage(ONE_CALL, Conduct::Refuses, true);
    let ending = stage.run().await;
    assert_eq!(loans(&stage.events(&ending.session).await)[0].1, Spent::default());
    assert_eq!(ending.spent.in_doubt.tokens, 0);
}

#[tokio::test]
async fn what_is_no_brigade_is_lent_nothing_and_charges_nothing() {
    let (stage, heard) = stage(ONE_CALL, Conduct::Says(account()), false);
    let ending = stage.run().await;
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
    assert_eq!(loans(&stage.events(&ending.session).await), [(0, Spent::default())]);
    let hop = heard.lock().unwrap()[0].clone();
    assert_eq!((hop.tokens, hop.usd, hop.agents), (Some(0), None, Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_the_loan_in_doubt_and_nothing_is_handed_on_twice() {
    let mut doubts = 0;
    for appends in 1..8 {
        let (stage, heard) = stage(ONE_CALL, Conduct::Says(account()), true);
        let (ended, root) = run_until_crash(&stage, None, appends).await;
        let Some(root) = root.filter(|_| ended.is_none()) else { continue };
        let ending = resume(&stage, &root).await;
        assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
        assert!(heard.lock().unwrap().len() <= 1, "handed on twice");
        let loans = loans(&stage.events(&root).await);
        let (lent, spent) = loans[0];
        assert!(spent.in_doubt.tokens == lent || spent.amount().tokens == 1500, "{loans:?}");
        doubts += u32::from(spent.in_doubt.tokens > 0);
        check_laws(&stage.log(&root).await);
    }
    assert!(doubts > 0, "no crash hit the call");
}
