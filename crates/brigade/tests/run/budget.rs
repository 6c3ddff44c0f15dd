//! Budgets are reserved before they are spent.

use std::time::Duration;

use brigade::core::delegation::LimitKind;
use brigade::core::{Budget, Event, Limit, Resources, Status};
use brigade::{ResumeOptions, Task};
use brigade_testing::{Fault, Purpose, Script, call, delegate, fault, reply};
use serde_json::{Value, json};

use crate::run::support::{Harness, check_laws, end};

fn tokens(tokens: u64) -> Budget {
    Budget { tokens: Limit::AtMost(tokens), usd: Limit::Unlimited, agents: Limit::AtMost(100) }
}

#[tokio::test]
async fn forty_children_on_one_budget_all_get_a_share_or_a_clear_refusal() {
    let script = Script::new()
        .agent("lead", [delegate("Child", "part {n}").repeat(40), reply("{results}")])
        .agent("Child", [reply("did {task}")]);
    for budget in [30_000, 60_000, 120_000, 2_000_000] {
        for cap in [1, 3, 40] {
            let harness =
                Harness::with(&script, move |settings| settings.delegation_styles.swarm.max_concurrent = cap);
            let result = harness.run_task(Task::new("split").budget(tokens(budget))).await;
            let answers = harness.answers(&result.session).await;
            assert_eq!(answers.len(), 40);
            for (n, answer) in answers.iter().enumerate() {
                let served = *answer == format!("[Child]: did part {n}");
                let incomplete = answer.ends_with("(incomplete: tokens)");
                assert!(served || incomplete || answer.starts_with("Not delegated: the budget"), "{answer}");
            }
            if budget == 2_000_000 {
                assert!(answers.iter().all(|answer| answer.starts_with("[Child]: did")));
            }
            assert!(result.spent.amount().tokens <= budget);
            check_laws(&harness.log(&result.session).await);
        }
    }
}

fn endless() -> Script {
    Script::new().reply(reply("achieved: {turn}").purpose(Purpose::Grace)).reply(
        reply("working").call("echo", json!({ "text": "{turn} 0123456789012345678901234567890123456789" })),
    )
}

#[tokio::test]
async fn turn_limit_allows_one_wrap_up_call_without_tools() {
    let harness = Harness::new(endless());
    let result = harness.run_task(Task::new("go").turns(3)).await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Turns });
    assert_eq!(result.outcome.text.as_str(), "achieved: 4");
    assert_eq!(result.spent.turns, 4);
    check_laws(&harness.log(&result.session).await);
    let more = ResumeOptions { turns: Some(2), ..ResumeOptions::default() };
    let run = harness.runtime().resume(&result.session, more).await.unwrap();
    let again = end(run).await.unwrap();
    assert_eq!(again.outcome.text.as_str(), "achieved: 7");
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn token_limit_leaves_a_reserved_wrap_up_call() {
    let harness = Harness::new(endless());
    let result = harness.run_task(Task::new("go").budget(tokens(12_000))).await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Tokens });
    assert!(result.outcome.text.as_str().starts_with("achieved"), "{}", result.outcome.text);
    assert!(result.spent.amount().tokens <= 12_000);
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn budget_below_one_call_makes_no_call() {
    let harness = Harness::new(endless());
    let result = harness.run_task(Task::new("go").budget(tokens(10))).await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Tokens });
    assert_eq!(harness.replies.count(), 0);
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn dollar_limit_ends_the_round() {
    let harness = Harness::new(endless().price(3.0, 15.0));
    let budget = Budget { usd: Limit::AtMost(200_000_000), ..tokens(10_000_000) };
    let result = harness.run_task(Task::new("go").budget(budget).turns(10_000)).await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Usd });
    assert!(result.spent.usd > 50_000_000, "{}", result.spent.usd);
    assert!(result.spent.usd <= 200_000_000);
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn agents_are_counted_over_the_tree() {
    let script = Script::new()
        .agent("lead", [delegate("Child", "part {n}").repeat(5), reply("{results}")])
        .reply("ok");
    let harness = Harness::new(script);
    let budget = Budget { agents: Limit::AtMost(3), ..tokens(1_000_000) };
    let result = harness.run_task(Task::new("split").budget(budget)).await;
    let answers = harness.answers(&result.session).await;
    assert_eq!(answers.iter().filter(|answer| *answer == "[Child]: ok").count(), 3);
    assert_eq!(
        answers
            .iter()
            .filter(|answer| answer.contains("the remaining budget (agents) does not cover another agent"))
            .count(),
        2
    );
    assert_eq!(result.spent.agents, 3);
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn usage_above_the_reserve_continues_while_the_grant_covers_it() {
    for budget in [tokens(400_000), Budget { tokens: Limit::Unlimited, ..tokens(0) }] {
        let harness = Harness::new(greedy());
        let result = harness.run_task(Task::new("go").budget(budget)).await;
        assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
        assert_eq!(harness.answers(&result.session).await, ["ran"]);
        assert_eq!(result.spent.overrun, Resources::default());
        assert!(result.spent.excess > 10_000, "{:?}", result.spent);
        let told = |warning: &&String| warning.contains("more tokens than were reserved");
        assert_eq!(result.outcome.warnings.iter().filter(told).count(), 1, "{:?}", result.outcome.warnings);
        check_laws(&harness.log(&result.session).await);
    }
}

#[tokio::test]
async fn usage_that_the_grant_does_not_cover_ends_the_session() {
    let harness = Harness::new(greedy());
    let result = harness.run_task(Task::new("go").budget(tokens(50_000))).await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Tokens });
    assert_eq!(result.spent.overrun.tokens, 6_000);
    let log = harness.log(&result.session).await;
    assert!(!log.iter().any(|record| matches!(record.event, Event::ToolStarted { .. })));
    check_laws(&log);
}

fn greedy() -> Script {
    Script::new()
        .turns([reply("greedy").call("echo", json!({ "text": "ran" })).tokens(6000, 50_000), reply("done")])
}

/// Each child is lent a share, and one of them uses more than that.
fn greedy_child(used: u64) -> Script {
    Script::new()
        .agent("lead", [delegate("Greedy", "x").delegate("Modest", "x"), reply("got {results}")])
        .agent("Greedy", [reply("mine").tokens(used, 5)])
        .reply("fine")
}

#[tokio::test]
async fn overrun_of_a_child_is_booked_by_its_parent() {
    let harness = Harness::new(greedy_child(60_000));
    let result = harness.run_task(Task::new("go").budget(tokens(100_000))).await;
    let answers = harness.answers(&result.session).await;
    assert_eq!(answers, ["[Greedy]: mine\n(incomplete: tokens)", "[Modest]: fine"]);
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    assert_eq!(result.spent.overrun, Resources::default());
    assert!((60_000..100_000).contains(&result.spent.amount().tokens), "{:?}", result.spent);
    check_laws(&harness.log(&result.session).await);
    let harness = Harness::new(greedy_child(150_000));
    let result = harness.run_task(Task::new("go").budget(tokens(100_000))).await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Tokens });
    assert!(result.spent.overrun.tokens > 50_000, "{:?}", result.spent);
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn limit_before_any_work_makes_no_wrap_up_call() {
    let harness = Harness::new(endless());
    let result = harness.run_task(Task::new("go").budget(tokens(1_000))).await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Tokens });
    assert_eq!((harness.replies.count(), result.spent.amount()), (0, Resources::default()));
    let needed = harness.events(&result.session).await.into_iter().find_map(|event| match event {
        Event::LimitReached { which: LimitKind::Tokens, needed } => Some(needed.tokens),
        _ => None,
    });
    // The amount that the refusal names is enough for a first turn.
    let needed = needed.unwrap();
    assert!(needed > 1_000);
    let more = ResumeOptions { budget: Some(tokens(needed)), ..ResumeOptions::default() };
    let run = harness.runtime().resume(&result.session, more).await.unwrap();
    end(run).await.unwrap();
    assert!(harness.replies.count_for(&result.session, 1) == 1, "{needed}");
}

#[tokio::test]
async fn reply_may_be_as_long_as_the_model_and_the_limits_allow() {
    let asked = |max_tokens: Option<u64>, most: u64| async move {
        let harness = Harness::with(Script::new().reply("ok"), move |settings| {
            settings.lead.max_tokens = max_tokens;
            settings.limits.max_tokens = most;
        });
        let result = harness.run_task(Task::new("go")).await;
        harness.events(&result.session).await.into_iter().find_map(|event| match event {
            Event::Called { reserved, input, .. } => Some(reserved.tokens - input),
            _ => None,
        })
    };
    assert_eq!(brigade::Limits::default().max_tokens, 32_000);
    assert_eq!(asked(None, 32_000).await, Some(32_000));
    assert_eq!(asked(None, 9_000).await, Some(9_000));
    assert_eq!(asked(Some(100), 32_000).await, Some(100));
}

#[tokio::test]
async fn repeating_agent_is_warned_and_then_stopped() {
    let script = Script::new()
        .reply(reply("stuck").purpose(Purpose::Grace))
        .reply(reply("again").call("echo", json!({ "text": "the same" })));
    let harness = Harness::new(&script);
    let result = harness.run().await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Loop });
    assert_eq!((result.outcome.text.as_str(), result.spent.turns), ("stuck", 7));
    let events = harness.events(&result.session).await;
    let told = |event: &&Event| matches!(event, Event::Heard { text, .. } if text.as_str().contains("3 times in a row"));
    assert_eq!(events.iter().filter(told).count(), 1);
    check_laws(&harness.log(&result.session).await);
    let harness = Harness::with(&script, |settings| {
        (settings.limits.loop_warning, settings.limits.loop_limit) = (0, 0)
    });
    let result = harness.run_task(Task::new("go").turns(20)).await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Turns });
}

#[tokio::test]
async fn c77_a_timeout_ends_the_tree_with_partial_results() {
    let script = Script::new()
        .agent("lead", [reply("splitting").delegate("Stuck", "x").delegate("Quick", "x").turn(1)])
        .agent("Quick", [reply("quick")])
        .agent("Stuck", [reply("nothing yet").purpose(Purpose::Grace)])
        .agent("Stuck", [call("echo", json!({ "text": "first" })), fault(Fault::Hang)])
        .agent("lead", [reply("got {results}")]);
    let harness = Harness::new(script);
    let result = harness.run_task(Task::new("go").timeout(Duration::from_millis(600))).await;
    let answers = harness.answers(&result.session).await;
    assert_eq!(answers, ["[Stuck]: nothing yet\n(incomplete: time)", "[Quick]: quick"]);
    assert_eq!(result.outcome.status, Status::Done, "the children end early enough for the lead to go on");
    check_laws(&harness.log(&result.session).await);
}

#[tokio::test]
async fn c77_hanging_session_gets_a_wrap_up_call() {
    let script = Script::new()
        .reply(reply("I was stuck").purpose(Purpose::Grace))
        .turns([call("echo", json!({ "text": "first" })), fault(Fault::Hang)]);
    let harness = Harness::new(script);
    let result = harness.run_task(Task::new("go").timeout(Duration::from_millis(200))).await;
    assert_eq!(result.outcome.status, Status::Incomplete { limit: LimitKind::Time });
    assert_eq!(result.outcome.text.as_str(), "I was stuck");
    assert!(result.spent.unconfirmed.tokens > 0, "the call that was given up may have cost its reserve");
    check_laws(&harness.log(&result.session).await);
}

/// A model with an unknown price.
struct UnpricedModel(brigade::model::script::Script);

impl brigade::Model for UnpricedModel {
    fn stream(
        &self,
        request: brigade::model::Request,
    ) -> futures::stream::BoxStream<'static, Result<brigade::model::Chunk, brigade::model::ModelError>> {
        self.0.stream(request)
    }

    fn model_info(&self, _model: &str) -> brigade::model::ModelInfo {
        brigade::model::ModelInfo::default()
    }
}

#[tokio::test]
async fn budget_in_dollars_is_refused_where_the_price_is_not_known() {
    let script = Script::new().agent("lead", [delegate("Child", "go").turn(1)]).reply("end {results}");
    let folder = tempfile::tempdir().unwrap();
    let start = async |lead: &str, usd: brigade::core::Limit| {
        let workspace = brigade::Workspace::open(folder.path()).unwrap();
        let mut settings = brigade::Settings::new(lead, workspace);
        settings.delegation_styles.swarm.model = Some("unpriced".to_owned());
        settings.budget.usd = usd;
        let models = brigade::Models::default()
            .with("unpriced", UnpricedModel(script.model()))
            .with("priced", script.model());
        let runtime = brigade::Runtime::in_memory(settings, models);
        match runtime.start(brigade::Task::new("go")).await {
            Ok(run) => Ok(run.result().await.unwrap().outcome.text.to_string()),
            Err(error) => Err(error.to_string()),
        }
    };
    let refusal = start("unpriced", brigade::core::Limit::AtMost(1_000)).await.unwrap_err();
    let child = start("priced", brigade::core::Limit::AtMost(1_000_000_000)).await.unwrap();
    insta::assert_snapshot!(format!("lead: {refusal}\nchild: {child}"));
    assert_eq!(start("unpriced", brigade::core::Limit::Unlimited).await.unwrap(), "end [Child]: end ");
}

fn pair() -> Script {
    Script::new()
        .agent(
            "lead",
            [
                delegate("First", "a task that is longer than the other one, by far").delegate("Second", "x"),
                reply("{results}"),
            ],
        )
        .reply("fine")
}

#[tokio::test]
async fn tight_budget_starts_children_one_after_the_other() {
    // From a budget that covers neither child to one that covers both at once.
    let mut served = Vec::new();
    for budget in (2_000..16_000).step_by(200) {
        let harness = Harness::new(pair());
        let result = harness.run_task(Task::new("go").budget(tokens(budget))).await;
        let answers = harness.answers(&result.session).await;
        let refused = |at: usize| answers.get(at).is_none_or(|answer| answer.starts_with("Not delegated"));
        assert!(
            !refused(0) || refused(1),
            "with {budget} the first is refused and the second is not: {answers:?}"
        );
        served.push(2 - usize::from(refused(0)) - usize::from(refused(1)));
        check_laws(&harness.log(&result.session).await);
    }
    assert!(served.is_sorted() && served.first() == Some(&0) && served.last() == Some(&2), "{served:?}");
}

async fn lent(
    tweak: impl Fn(&mut brigade::Settings) + 'static,
    mut arguments: Value,
) -> (Vec<Budget>, Vec<String>) {
    arguments["role"] = "Coder".into();
    arguments["task"] = "x".into();
    let script = Script::new().agent("lead", [call("delegate", arguments), reply("end")]).reply("fine");
    let harness = Harness::with(script, tweak);
    let result = harness.run_task(Task::new("go").budget(tokens(500_000))).await;
    let events = harness.events(&result.session).await;
    let lent = events.iter().filter_map(|event| match event {
        Event::Delegated { grant, .. } => Some(grant.budget),
        _ => None,
    });
    check_laws(&harness.log(&result.session).await);
    (lent.collect(), harness.answers(&result.session).await)
}

#[tokio::test]
async fn role_an_agent_file_and_a_call_can_set_a_budget() {
    use brigade::core::Agent;
    use brigade::core::delegation_styles::{ExtraParameter, delegate::SwarmRole};
    let role = |tokens: u64| {
        move |settings: &mut brigade::Settings| {
            let role = SwarmRole { tokens: Some(tokens), usd: Some(7_000_000_000), ..SwarmRole::default() };
            settings.delegation_styles.swarm.roles.insert("coder".to_owned(), role);
            settings.delegation_styles.delegation.extras =
                [ExtraParameter::Tokens, ExtraParameter::Usd].into();
        }
    };
    let of = |tokens, usd| vec![(Limit::AtMost(tokens), usd)];
    let both = |budgets: Vec<Budget>| budgets.iter().map(|b| (b.tokens, b.usd)).collect::<Vec<_>>();
    assert_eq!(both(lent(role(30_000), json!({})).await.0), of(30_000, Limit::AtMost(7_000_000_000)));
    assert_eq!(
        both(lent(role(30_000), json!({ "tokens": 20_000, "usd": 0.5 })).await.0),
        of(20_000, Limit::AtMost(500_000_000))
    );
    assert_eq!(
        both(lent(role(30_000), json!({ "tokens": 90_000 })).await.0),
        of(30_000, Limit::AtMost(7_000_000_000))
    );
    let (granted, _) = lent(role(9_000_000), json!({})).await;
    assert!(granted[0].tokens.number() < 500_000, "never more than the parent has");
    let file = |settings: &mut brigade::Settings| {
        let budget = Budget::of(Some(25_000), None);
        let coder = Agent {
            id: "coder".into(),
            name: "Coder".into(),
            description: "codes".into(),
            budget,
            ..Agent::default()
        };
        settings.agents = brigade::agents::AgentCatalog::new().with(coder);
    };
    assert_eq!(both(lent(file, json!({})).await.0), of(25_000, Limit::Unlimited));
    let (granted, answers) = lent(role(100), json!({})).await;
    assert!(granted.is_empty() && answers[0].contains("Its first call needs at least"), "{answers:?}");
    let (granted, answers) = lent(role(30_000), json!({ "tokens": -5 })).await;
    assert!(granted.is_empty() && answers[0].contains("Invalid 'tokens' argument"), "{answers:?}");
    // Without the extra, the parameter does not exist.
    let (granted, _) = lent(|_| {}, json!({ "tokens": 20_000 })).await;
    assert!(granted[0].tokens.number() > 20_000);
}
