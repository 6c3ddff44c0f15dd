//! Work that comes from another process stays within what was left there.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brigade::core::permission::Mode;
use brigade::core::{Event, Hop, Limit, Status};
use brigade::{RunError, Task};

use crate::support::{Stage, check_laws};

const DELEGATES: &str = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Child", task = "x" }
[[reply]]
agent = "lead"
text = "{result:0}"
[[reply]]
text = "done"
"#;

#[expect(clippy::disallowed_methods, reason = "a caller in another process has a clock of its own")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

#[tokio::test]
async fn depth_goes_on_where_the_caller_stands() {
    let stage = Stage::with(DELEGATES, |settings| settings.faces.swarm.max_depth = 9);
    let hop = Hop { depth: 3, deepest: Some(4), lineage: vec!["far".to_owned()], ..Hop::default() };
    let ending = stage.run_task(Task::new("x").hop(Some(hop.clone()))).await;
    assert_eq!(ending.outcome.text.as_str(), "[Child]: done");
    let log = stage.log(&ending.session).await;
    let depths: Vec<u32> = log
        .iter()
        .filter_map(|record| match &record.event {
            Event::Started { depth, .. } => Some(*depth),
            _ => None,
        })
        .collect();
    assert_eq!(depths, [3, 4]);
    check_laws(&log);
    // One hop further there is room for the session itself, and not for a child of it.
    let ending = stage.run_task(Task::new("x").hop(Some(Hop { depth: 4, ..hop.clone() }))).await;
    assert!(!ending.outcome.text.as_str().contains("done"), "{}", ending.outcome.text);
    // And then for nobody.
    let refused = stage.runtime().start(Task::new("x").hop(Some(Hop { depth: 5, ..hop }))).await;
    assert!(matches!(refused.err(), Some(RunError::Setup(cause)) if cause.contains("depth 4")));
}

#[tokio::test]
async fn the_limits_of_the_settings_bind_a_caller_that_names_none() {
    let stage = Stage::with(DELEGATES, |settings| settings.limits.max_depth = 3);
    let refused = stage.runtime().start(Task::new("x").hop(Some(Hop { depth: 4, ..Hop::default() }))).await;
    assert!(matches!(refused.err(), Some(RunError::Setup(cause)) if cause.contains("depth 3")));
}

#[tokio::test]
async fn budget_mode_and_time_are_the_narrower_ones() {
    let stage = Stage::with(DELEGATES, |settings| settings.permissions.mode = Mode::Auto);
    let hop = Hop {
        tokens: Some(50_000),
        agents: Some(0),
        mode: Some(Mode::Plan),
        deadline: Some(now() + 60_000),
        ..Hop::default()
    };
    let ending = stage.run_task(Task::new("x").hop(Some(hop))).await;
    assert!(!ending.outcome.text.as_str().contains("[Child]: done"), "{}", ending.outcome.text);
    let events = stage.events(&ending.session).await;
    let Event::Started { grant, .. } = &events[0] else { panic!("{events:?}") };
    assert_eq!((grant.budget.tokens, grant.budget.agents), (Limit::AtMost(50_000), Limit::AtMost(0)));
    assert!(grant.deadline.number() <= now() + 60_000, "{grant:?}");
}

#[tokio::test]
async fn a_time_that_is_over_ends_the_work() {
    let script = "[[reply]]\nturn = 1\ndelay_ms = 5000\ntext = 'late'\n[[reply]]\ntext = 'what there is'";
    let stage = Stage::new(script);
    let since = std::time::Instant::now();
    let hop = Hop { deadline: Some(now() + 200), ..Hop::default() };
    let ending = stage.run_task(Task::new("x").hop(Some(hop))).await;
    assert!(matches!(ending.outcome.status, Status::Incomplete { .. }), "{:?}", ending.outcome);
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
}
