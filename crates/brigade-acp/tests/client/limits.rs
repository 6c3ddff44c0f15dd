//! Limits of an external agent, its reported usage, and what stops it.

use std::time::Duration;

use brigade::core::delegation::LimitKind;
use brigade::core::{Agent, Backend, Event, Limit, RemoteContext, Resources, Status};
use brigade::{Settings, Task};
use brigade_acp::client::AgentServer;
use brigade_testing::Script;

use super::setup::{
    child_end, count, first_child, harness, harness_with_script, notes, wait_until, wait_until_gone,
};
use super::support::end;

#[tokio::test(flavor = "multi_thread")]
async fn reported_usage_is_shown_and_not_charged() {
    let harness = harness(&["!spend 500\n!say done"], |_, _| {});
    let ending = harness.run().await;
    let (_, spent) = child_end(&harness, &ending).await;
    let reported = Resources { tokens: 510, usd: 250_000_000, agents: 0 };
    assert_eq!((spent.reported, spent.usage.total(), spent.usd), (reported, 0, 0));
    assert_eq!(ending.spent.reported, reported);
    assert!(ending.spent.usd == 0 && ending.spent.amount().tokens < 510);
    let events = harness.events(&ending.session).await;
    let lent = events.iter().find_map(|event| match event {
        Event::Delegated { grant, .. } => Some(grant.budget),
        _ => None,
    });
    assert_eq!(lent.map(|budget| (budget.tokens.number(), budget.usd.number())), Some((0, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn lent_tokens_are_charged_and_exceeding_them_stops_the_agent() {
    let with = async |tokens: u64| {
        let harness = harness(&["!spend 500\n!say done"], move |_, server| server.terms.tokens = tokens);
        let ending = harness.run().await;
        let (outcome, spent) = child_end(&harness, &ending).await;
        (outcome.status, spent.usage.total(), spent.overrun.tokens)
    };
    assert_eq!(with(1000).await, (Status::Done, 510, 0));
    let (status, _, over) = with(100).await;
    assert_eq!((status, over), (Status::Incomplete { limit: LimitKind::Tokens }, 410));
}

/// The unconfirmed usage, the reported tokens and the overrun of the child when it has ended.
async fn usage_after(
    commands: &str,
    tweak: impl Fn(&mut Settings, &mut AgentServer) + 'static,
) -> (Resources, u64, Resources) {
    let harness = harness(&[commands], move |settings, server| {
        settings.budget.tokens = Limit::AtMost(1_000_000);
        tweak(settings, server);
    });
    let ending = harness.run().await;
    let (_, spent) = child_end(&harness, &ending).await;
    (spent.unconfirmed, spent.usage.total(), spent.overrun)
}

#[tokio::test(flavor = "multi_thread")]
async fn unreported_usage_is_unconfirmed() {
    let lent = |_: &mut Settings, server: &mut AgentServer| server.terms.tokens = 1000;
    let (tokens, agents) =
        (Resources { tokens: 1000, ..Resources::default() }, Resources { agents: 4, ..Resources::default() });
    let nothing = Resources::default();
    // It failed without a report, exited, or did not report its usage.
    assert_eq!(usage_after("!fail disk full", lent).await, (tokens, 0, nothing));
    assert_eq!(usage_after("!die", lent).await, (tokens, 0, nothing));
    assert_eq!(usage_after("!say nothing of it", lent).await, (tokens, 0, nothing));
    // It reports its tokens, but not the number of agents.
    let both = |_: &mut Settings, server: &mut AgentServer| {
        server.terms.tokens = 1000;
        server.terms.agents = 4;
    };
    assert_eq!(usage_after("!spend 500\n!say done", both).await, (agents, 510, nothing));
    // After the timeout it reports its usage with the wrap-up, and that is counted once.
    let short = |_: &mut Settings, server: &mut AgentServer| {
        server.terms.tokens = 1000;
        server.terms.timeout = Some(3000);
    };
    assert_eq!(usage_after("!spend 500\n!say half\n!wait", short).await, (nothing, 510, nothing));
    // Amounts that were reserved during a request are not returned either.
    let asks = |_: &mut Settings, server: &mut AgentServer| {
        server.terms.tokens = 1000;
        server.terms.timeout = Some(3000);
    };
    assert_eq!(usage_after("!read a.txt\n!hang", asks).await, (tokens, 0, nothing));
}

#[tokio::test(flavor = "multi_thread")]
async fn turn_limit_ends_the_agent_with_its_partial_text() {
    let commands = "!say first\n!read a.txt\n!read a.txt\n!read a.txt\n!hang";
    let harness = harness(&[commands], |_, server| server.terms.turns = Some(2));
    let ending = harness.run().await;
    let (outcome, spent) = child_end(&harness, &ending).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: LimitKind::Turns }, "{}", outcome.text);
    assert!(outcome.text.as_str().starts_with("first"), "{}", outcome.text);
    assert_eq!(spent.turns, 3, "two turns and the wrap-up call");
    assert_eq!(count(&harness, "cancel s1"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_ends_the_agent_with_its_partial_text() {
    let harness = harness(&["!spend 500\n!say half\n!wait"], |_, server| server.terms.timeout = Some(5000));
    let ending = harness.run().await;
    let (outcome, spent) = child_end(&harness, &ending).await;
    let reported = Resources { tokens: 510, usd: 250_000_000, agents: 0 };
    assert_eq!(spent.reported, reported, "usage reported at the wrap-up counts, too");
    assert_eq!(outcome.status, Status::Incomplete { limit: LimitKind::Time });
    assert_eq!(outcome.text.as_str(), "half");
    assert_eq!(count(&harness, "cancel s1"), 1);
    assert_eq!(ending.outcome.status, Status::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn root_external_agent_has_the_same_limits() {
    let asked = async |commands: &str, tweak: fn(&mut Settings, &mut AgentServer)| {
        let harness = harness_with_script(Script::new().reply("x"), tweak);
        let backend = Backend::Acp("fix".to_owned());
        let agent = Agent { id: "ext".to_owned(), backend, ..Agent::default() };
        let ending = harness.run_task(Task::new(commands).agent(agent)).await;
        let events = harness.events(&ending.session).await;
        let Event::Started { grant, .. } = &events[0] else { panic!("{events:?}") };
        (ending.outcome, grant.budget)
    };
    let (outcome, budget) = asked("!say half\n!wait", |_, server| server.terms.timeout = Some(1000)).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: LimitKind::Time });
    assert_eq!(outcome.text.as_str(), "half");
    assert_eq!((budget.tokens, budget.usd), (Limit::AtMost(0), Limit::AtMost(0)));
    assert_eq!(budget.agents, Limit::AtMost(0));
    // Without a limit it has as much time as any child.
    let second = |settings: &mut Settings, _: &mut AgentServer| {
        settings.limits.child_timeout = Duration::from_secs(1);
    };
    assert_eq!(asked("!wait", second).await.0.status, Status::Incomplete { limit: LimitKind::Time });
    let turns = |_: &mut Settings, server: &mut AgentServer| server.terms.turns = Some(1);
    let (outcome, _) = asked("!say first\n!read a.txt\n!read a.txt\n!hang", turns).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: LimitKind::Turns });
    let lent = |_: &mut Settings, server: &mut AgentServer| server.terms.tokens = 100;
    let (outcome, _) = asked("!spend 500\n!say done", lent).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: LimitKind::Tokens });
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_reaches_the_agent_and_leaves_nothing() {
    for commands in ["!say half\n!wait", "!say half\n!hang"] {
        let harness = harness(&[commands], |_, _| {});
        let runtime = harness.runtime();
        let run = runtime.start(brigade::Task::new("the task")).await.unwrap();
        wait_until("it is prompted", || notes(&harness).contains("prompt")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        runtime.cancel(&run.session().clone(), "the test").await.unwrap();
        let ending = end(run).await.unwrap();
        assert!(matches!(ending.outcome.status, Status::Cancelled { .. }), "{:?}", ending.outcome);
        wait_until("it is cancelled", || notes(&harness).contains("cancel s1")).await;
        if commands.contains("hang") {
            // A process that does not stop is not kept, even while the runtime keeps running.
            wait_until_gone(&harness).await;
        }
        drop(runtime);
        wait_until_gone(&harness).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_kept_when_the_user_cancels() {
    // It reports its usage in the response to the cancel, or before and then not again.
    for (commands, tokens) in [("!spend 500\n!say half\n!wait", 510), ("!spend 500\n!say half\n!hang", 0)] {
        let harness = harness(&[commands], |_, _| {});
        let runtime = harness.runtime();
        let run = runtime.start(brigade::Task::new("the task")).await.unwrap();
        wait_until("it is prompted", || notes(&harness).contains("prompt")).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        runtime.cancel(&run.session().clone(), "the user").await.unwrap();
        let ending = end(run).await.unwrap();
        assert!(matches!(ending.outcome.status, Status::Cancelled { .. }), "{:?}", ending.outcome);
        let reported = Resources { tokens, usd: 250_000_000, agents: 0 };
        assert_eq!(
            (child_end(&harness, &ending).await.1.reported, ending.spent.reported),
            (reported, reported)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_kept_when_the_agent_dies() {
    let harness = harness(&["!spend 500\n!say half\n!die"], |_, _| {});
    let ending = harness.run().await;
    let reported = Resources { tokens: 0, usd: 250_000_000, agents: 0 };
    assert_eq!(child_end(&harness, &ending).await.1.reported, reported);
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_meta_carries_depth_and_budget() {
    let remote_limits = async |tokens: u64, agents: u64| {
        let harness = harness(&["!meta"], move |settings, server| {
            settings.budget.agents = Limit::AtMost(7);
            server.terms.tokens = tokens;
            server.terms.agents = agents;
        });
        let ending = harness.run().await;
        let (outcome, _) = child_end(&harness, &ending).await;
        let meta: serde_json::Value = serde_json::from_str(outcome.text.as_str()).unwrap();
        let remote_context: RemoteContext = serde_json::from_value(meta["brigade/hop"].clone()).unwrap();
        assert_eq!(
            (remote_context.depth, remote_context.lineage.last().unwrap().as_str()),
            (1, first_child(&ending).as_str())
        );
        (remote_context.tokens, remote_context.usd, remote_context.agents)
    };
    // An agent that is lent no tokens pays for them itself. A limit of zero would make it unusable. Agents are
    // counted by the tree.
    assert_eq!(remote_limits(0, 0).await, (None, None, Some(0)));
    assert_eq!(remote_limits(9000, 4).await, (Some(9000), None, Some(4)));
    // Never more than the tree has left. The agent itself is one of the seven.
    assert_eq!(remote_limits(0, 50).await, (None, None, Some(6)));
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_reasons_map_to_reply_outcomes() {
    let ended = async |commands: &str| {
        let harness = harness(&[commands], |_, _| {});
        let ending = harness.run().await;
        child_end(&harness, &ending).await.0
    };
    let cut = ended("!say a\n!stop max_tokens").await;
    assert!(cut.status == Status::Done && cut.warnings[0].contains("cut off"), "{cut:?}");
    let refused = ended("!say a\n!stop refusal").await;
    assert!(refused.warnings[0].contains("was a refusal"), "{refused:?}");
    let limited = ended("!say a\n!stop max_turn_requests").await;
    assert!(limited.text.as_str().contains("its own request limit"), "{limited:?}");
    for (commands, words) in [
        ("!stop cancelled", "the agent reported that it was cancelled"),
        ("!stop because", "invalid response to `session/prompt`"),
        ("!fail disk full", "Internal error: disk full"),
    ] {
        let Status::Failed { cause } = ended(commands).await.status else {
            panic!("{commands} did not fail")
        };
        assert!(cause.contains(words) && cause.contains("'fix'"), "{cause}");
    }
    let silent = ended("!think about it\n!call Look around").await;
    assert!(silent.text.as_str().contains("without a reply"), "{silent:?}");
}
