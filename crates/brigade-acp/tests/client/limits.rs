//! What an agent is lent, what it reports, and what stops it.

use std::time::Duration;

use brigade::core::delegation::Which;
use brigade::core::{Agent, Amount, Event, Hop, Limit, Place, Status};
use brigade::{Settings, Task};
use brigade_acp::client::Server;

use super::support::end;
use super::world::{all_gone, child_end, count, first_child, notes, scripted, stage, until};

#[tokio::test(flavor = "multi_thread")]
async fn what_it_reports_is_shown_apart_and_charged_to_nobody() {
    let stage = stage(&["!spend 500\n!say done"], |_, _| {});
    let ending = stage.run().await;
    let (_, spent) = child_end(&stage, &ending).await;
    let reported = Amount { tokens: 510, usd: 250_000_000, agents: 0 };
    assert_eq!((spent.reported, spent.usage.total(), spent.usd), (reported, 0, 0));
    assert_eq!(ending.spent.reported, reported);
    assert!(ending.spent.usd == 0 && ending.spent.amount().tokens < 510);
    let events = stage.events(&ending.session).await;
    let lent = events.iter().find_map(|event| match event {
        Event::Delegated { grant, .. } => Some(grant.budget),
        _ => None,
    });
    assert_eq!(lent.map(|budget| (budget.tokens.number(), budget.usd.number())), Some((0, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_it_is_lent_count_and_more_than_that_stops_it() {
    let with = async |tokens: u64| {
        let stage = stage(&["!spend 500\n!say done"], move |_, server| server.terms.tokens = tokens);
        let ending = stage.run().await;
        let (outcome, spent) = child_end(&stage, &ending).await;
        (outcome.status, spent.usage.total(), spent.overrun.tokens)
    };
    assert_eq!(with(1000).await, (Status::Done, 510, 0));
    let (status, _, over) = with(100).await;
    assert_eq!((status, over), (Status::Incomplete { limit: Which::Tokens }, 410));
}

/// What is left of the loan in doubt at the end of the child, and what is known.
async fn booked(orders: &str, tweak: impl Fn(&mut Settings, &mut Server) + 'static) -> (Amount, u64, Amount) {
    let stage = stage(&[orders], move |settings, server| {
        settings.budget.tokens = Limit::AtMost(1_000_000);
        tweak(settings, server);
    });
    let ending = stage.run().await;
    let (_, spent) = child_end(&stage, &ending).await;
    (spent.in_doubt, spent.usage.total(), spent.overrun)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_does_not_account_for_is_in_doubt() {
    let lent = |_: &mut Settings, server: &mut Server| server.terms.tokens = 1000;
    let (tokens, agents) =
        (Amount { tokens: 1000, ..Amount::default() }, Amount { agents: 4, ..Amount::default() });
    let nothing = Amount::default();
    // Failed without a word, gone, or silent about it.
    assert_eq!(booked("!fail disk full", lent).await, (tokens, 0, nothing));
    assert_eq!(booked("!die", lent).await, (tokens, 0, nothing));
    assert_eq!(booked("!say nothing of it", lent).await, (tokens, 0, nothing));
    // It says what tokens it used, and cannot say how many agents.
    let both = |_: &mut Settings, server: &mut Server| {
        server.terms.tokens = 1000;
        server.terms.agents = 4;
    };
    assert_eq!(booked("!spend 500\n!say done", both).await, (agents, 510, nothing));
    // Out of time, it says so with its last word, and that counts once.
    let short = |_: &mut Settings, server: &mut Server| {
        server.terms.tokens = 1000;
        server.terms.timeout = Some(3000);
    };
    assert_eq!(booked("!spend 500\n!say half\n!wait", short).await, (nothing, 510, nothing));
    // Nor is anything given back that was set aside while it asked something.
    let asks = |_: &mut Settings, server: &mut Server| {
        server.terms.tokens = 1000;
        server.terms.timeout = Some(3000);
    };
    assert_eq!(booked("!read a.txt\n!hang", asks).await, (tokens, 0, nothing));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_turn_limit_ends_it_with_what_it_has_said() {
    let orders = "!say first\n!read a.txt\n!read a.txt\n!read a.txt\n!hang";
    let stage = stage(&[orders], |_, server| server.terms.turns = Some(2));
    let ending = stage.run().await;
    let (outcome, spent) = child_end(&stage, &ending).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: Which::Turns }, "{}", outcome.text);
    assert!(outcome.text.as_str().starts_with("first"), "{}", outcome.text);
    assert_eq!(spent.turns, 3, "two turns and the last word");
    assert_eq!(count(&stage, "cancel s1"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_it_with_what_it_has_said() {
    let stage = stage(&["!spend 500\n!say half\n!wait"], |_, server| server.terms.timeout = Some(5000));
    let ending = stage.run().await;
    let (outcome, spent) = child_end(&stage, &ending).await;
    let reported = Amount { tokens: 510, usd: 250_000_000, agents: 0 };
    assert_eq!(spent.reported, reported, "what it reports with its last word counts too");
    assert_eq!(outcome.status, Status::Incomplete { limit: Which::Time });
    assert_eq!(outcome.text.as_str(), "half");
    assert_eq!(count(&stage, "cancel s1"), 1);
    assert_eq!(ending.outcome.status, Status::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_top_it_has_the_same_ends() {
    let asked = async |orders: &str, tweak: fn(&mut Settings, &mut Server)| {
        let stage = scripted("[[reply]]\ntext = 'x'", tweak);
        let place = Place::Acp("fix".to_owned());
        let agent = Agent { id: "ext".to_owned(), place, ..Agent::default() };
        let ending = stage.run_task(Task::new(orders).agent(agent)).await;
        let events = stage.events(&ending.session).await;
        let Event::Started { grant, .. } = &events[0] else { panic!("{events:?}") };
        (ending.outcome, grant.budget)
    };
    let (outcome, budget) = asked("!say half\n!wait", |_, server| server.terms.timeout = Some(1000)).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: Which::Time });
    assert_eq!(outcome.text.as_str(), "half");
    assert_eq!((budget.tokens, budget.usd), (Limit::AtMost(0), Limit::AtMost(0)));
    assert_eq!(budget.agents, Limit::AtMost(0));
    // Where nobody says, it may take as long as a child.
    let second = |settings: &mut Settings, _: &mut Server| {
        settings.limits.child_timeout = Duration::from_secs(1);
    };
    assert_eq!(asked("!wait", second).await.0.status, Status::Incomplete { limit: Which::Time });
    let turns = |_: &mut Settings, server: &mut Server| server.terms.turns = Some(1);
    let (outcome, _) = asked("!say first\n!read a.txt\n!read a.txt\n!hang", turns).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: Which::Turns });
    let lent = |_: &mut Settings, server: &mut Server| server.terms.tokens = 100;
    let (outcome, _) = asked("!spend 500\n!say done", lent).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: Which::Tokens });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_reaches_it_and_leaves_nothing() {
    for orders in ["!say half\n!wait", "!say half\n!hang"] {
        let stage = stage(&[orders], |_, _| {});
        let runtime = stage.runtime();
        let run = runtime.start(brigade::Task::new("the task")).await.unwrap();
        until("it is asked", || notes(&stage).contains("prompt")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        runtime.cancel(&run.session().clone(), "the test").await.unwrap();
        let ending = end(run).await.unwrap();
        assert!(matches!(ending.outcome.status, Status::Cancelled { .. }), "{:?}", ending.outcome);
        until("it is told", || notes(&stage).contains("cancel s1")).await;
        if orders.contains("hang") {
            // A process that does not stop is not kept, even while the runtime goes on.
            all_gone(&stage).await;
        }
        drop(runtime);
        all_gone(&stage).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_used_is_kept_when_the_user_cancels() {
    // It says what it used in its answer to the cancel, or before it and then not at all.
    for (orders, tokens) in [("!spend 500\n!say half\n!wait", 510), ("!spend 500\n!say half\n!hang", 0)] {
        let stage = stage(&[orders], |_, _| {});
        let runtime = stage.runtime();
        let run = runtime.start(brigade::Task::new("the task")).await.unwrap();
        until("it is asked", || notes(&stage).contains("prompt")).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        runtime.cancel(&run.session().clone(), "the user").await.unwrap();
        let ending = end(run).await.unwrap();
        assert!(matches!(ending.outcome.status, Status::Cancelled { .. }), "{:?}", ending.outcome);
        let reported = Amount { tokens, usd: 250_000_000, agents: 0 };
        assert_eq!(
            (child_end(&stage, &ending).await.1.reported, ending.spent.reported),
            (reported, reported)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_used_is_kept_when_it_dies() {
    let stage = stage(&["!spend 500\n!say half\n!die"], |_, _| {});
    let ending = stage.run().await;
    let reported = Amount { tokens: 0, usd: 250_000_000, agents: 0 };
    assert_eq!(child_end(&stage, &ending).await.1.reported, reported);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_told_where_it_stands() {
    let told = async |tokens: u64, agents: u64| {
        let stage = stage(&["!meta"], move |settings, server| {
            settings.budget.agents = Limit::AtMost(7);
            server.terms.tokens = tokens;
            server.terms.agents = agents;
        });
        let ending = stage.run().await;
        let (outcome, _) = child_end(&stage, &ending).await;
        let meta: serde_json::Value = serde_json::from_str(outcome.text.as_str()).unwrap();
        let hop: Hop = serde_json::from_value(meta["brigade/hop"].clone()).unwrap();
        assert_eq!((hop.depth, hop.lineage.last().unwrap().as_str()), (1, first_child(&ending).as_str()));
        (hop.tokens, hop.usd, hop.agents)
    };
    // Tokens that it is not lent it pays for itself: a limit of none would be no way to work. Agents are the tree's.
    assert_eq!(told(0, 0).await, (None, None, Some(0)));
    assert_eq!(told(9000, 4).await, (Some(9000), None, Some(4)));
    // Never more than there are: it is one of the seven itself.
    assert_eq!(told(0, 50).await, (None, None, Some(6)));
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_of_a_prompt_are_ends_of_a_reply() {
    let ended = async |orders: &str| {
        let stage = stage(&[orders], |_, _| {});
        let ending = stage.run().await;
        child_end(&stage, &ending).await.0
    };
    let cut = ended("!say a\n!stop max_tokens").await;
    assert!(cut.status == Status::Done && cut.warnings[0].contains("cut off"), "{cut:?}");
    let refused = ended("!say a\n!stop refusal").await;
    assert!(refused.warnings[0].contains("refused"), "{refused:?}");
    let limited = ended("!say a\n!stop max_turn_requests").await;
    assert!(limited.text.as_str().contains("its own limit"), "{limited:?}");
    for (orders, words) in [
        ("!stop cancelled", "it says that it was cancelled"),
        ("!stop because", "cannot be read"),
        ("!fail disk full", "Internal error: disk full"),
    ] {
        let Status::Failed { cause } = ended(orders).await.status else { panic!("{orders} did not fail") };
        assert!(cause.contains(words) && cause.contains("'fix'"), "{cause}");
    }
    let silent = ended("!think about it\n!call Look around").await;
    assert!(silent.text.as_str().contains("without a word"), "{silent:?}");
}
