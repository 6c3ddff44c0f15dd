//! Work from another process stays within the limits of that process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brigade::core::permission::Mode;
use brigade::core::{Event, Limit, RemoteContext, Status};
use brigade::{RunError, Task};
use brigade_testing::{Script, delegate, reply};

use crate::run::support::{Harness, check_laws};

fn delegates() -> Script {
    Script::new().agent("lead", [delegate("Child", "x"), reply("{result:0}")]).reply("done")
}

#[expect(clippy::disallowed_methods, reason = "a caller in another process has a clock of its own")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

#[tokio::test]
async fn remote_depth_continues_from_the_caller() {
    let harness = Harness::with(delegates(), |settings| settings.delegation_styles.swarm.max_depth = 9);
    let remote_context = RemoteContext {
        depth: 3,
        max_depth: Some(4),
        lineage: vec!["far".to_owned()],
        ..RemoteContext::default()
    };
    let result = harness.run_task(Task::new("x").remote_context(Some(remote_context.clone()))).await;
    assert_eq!(result.outcome.text.as_str(), "[Child]: done");
    let log = harness.log(&result.session).await;
    let depths: Vec<u32> = log
        .iter()
        .filter_map(|record| match &record.event {
            Event::Started { depth, .. } => Some(*depth),
            _ => None,
        })
        .collect();
    assert_eq!(depths, [3, 4]);
    check_laws(&log);
    // One level deeper there is room for the session itself, but not for a child.
    let result = harness
        .run_task(Task::new("x").remote_context(Some(RemoteContext { depth: 4, ..remote_context.clone() })))
        .await;
    assert!(!result.outcome.text.as_str().contains("done"), "{}", result.outcome.text);
    // Another level deeper there is room for none.
    let refused = harness
        .runtime()
        .start(Task::new("x").remote_context(Some(RemoteContext { depth: 5, ..remote_context })))
        .await;
    assert!(
        matches!(refused.err(), Some(RunError::Config(cause)) if cause.contains("the maximum depth (4)"))
    );
}

#[tokio::test]
async fn settings_limit_a_caller_without_limits() {
    let harness = Harness::with(delegates(), |settings| settings.limits.max_depth = 3);
    let refused = harness
        .runtime()
        .start(Task::new("x").remote_context(Some(RemoteContext { depth: 4, ..RemoteContext::default() })))
        .await;
    assert!(
        matches!(refused.err(), Some(RunError::Config(cause)) if cause.contains("the maximum depth (3)"))
    );
}

#[tokio::test]
async fn remote_run_takes_the_narrower_budget_mode_and_deadline() {
    let harness = Harness::with(delegates(), |settings| settings.permissions.mode = Mode::Auto);
    let remote_context = RemoteContext {
        tokens: Some(50_000),
        agents: Some(0),
        mode: Some(Mode::Plan),
        deadline: Some(now() + 60_000),
        ..RemoteContext::default()
    };
    let result = harness.run_task(Task::new("x").remote_context(Some(remote_context))).await;
    assert!(!result.outcome.text.as_str().contains("[Child]: done"), "{}", result.outcome.text);
    let events = harness.events(&result.session).await;
    let Event::Started { grant, .. } = &events[0] else { panic!("{events:?}") };
    assert_eq!((grant.budget.tokens, grant.budget.agents), (Limit::AtMost(50_000), Limit::AtMost(0)));
    assert!(grant.deadline.number() <= now() + 60_000, "{grant:?}");
}

#[tokio::test]
async fn expired_remote_deadline_ends_the_run() {
    let script = Script::new().turns([reply("late").delay_ms(5000), reply("what there is")]);
    let harness = Harness::new(script);
    let since = std::time::Instant::now();
    let remote_context = RemoteContext { deadline: Some(now() + 200), ..RemoteContext::default() };
    let result = harness.run_task(Task::new("x").remote_context(Some(remote_context))).await;
    assert!(matches!(result.outcome.status, Status::Incomplete { .. }), "{:?}", result.outcome);
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
}
