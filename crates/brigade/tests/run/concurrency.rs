//! Number of agents that are active at once.

use brigade::core::{Event, Record, Status};
use brigade_testing::{Script, delegate, reply};

use crate::run::support::{Harness, check_laws};

fn fan() -> Script {
    Script::new()
        .agent("lead", [delegate("Child", "part {n}").repeat(12), reply("done")])
        .reply(reply("ok").delay_ms(15))
}

/// Maximum number of descendant sessions that were replying at the same time.
fn most_active(log: &[Record]) -> usize {
    let mut active = std::collections::BTreeSet::new();
    let mut most = 0;
    for record in log {
        match record.event {
            Event::Called { .. } if record.session.parent().is_some() => {
                active.insert(record.session.clone());
            }
            Event::Replied { .. } => {
                active.remove(&record.session);
            }
            _ => {}
        }
        most = most.max(active.len());
    }
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c18_never_more_than_max_concurrent_are_active() {
    for cap in [1, 2, 3, 5] {
        let harness =
            Harness::with(fan(), move |settings| settings.delegation_styles.swarm.max_concurrent = cap);
        let result = harness.run().await;
        assert_eq!(result.outcome.status, Status::Done);
        let log = harness.log(&result.session).await;
        assert_eq!(most_active(&log), cap as usize);
        check_laws(&log);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c19_zero_counts_as_one() {
    let harness = Harness::with(fan(), |settings| settings.delegation_styles.swarm.max_concurrent = 0);
    let result = harness.run().await;
    let log = harness.log(&result.session).await;
    assert_eq!(most_active(&log), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_concurrency_limit_applies_too() {
    let harness = Harness::with(fan(), |settings| {
        settings.delegation_styles.swarm.max_concurrent = 100;
        settings.limits.concurrency = 4;
    });
    let result = harness.run().await;
    assert_eq!(most_active(&harness.log(&result.session).await), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_deeper_than_the_limit_finishes() {
    let script = Script::new()
        .agent("Level", [reply("bottom").task("7")])
        .agent("lead", [delegate("Level", "1").delegate("Level", "1").turn(1)])
        .agent("Level", [delegate("Level", "{task}+1").delegate("Leaf", "leaf").turn(1)])
        .reply("up");
    // The task grows by "+1" at each level. The seventh level has no reply of its own, and the depth cap stops
    // it.
    for cap in [1, 2] {
        let harness = Harness::with(&script, move |settings| {
            settings.delegation_styles.swarm.max_depth = 6;
            settings.delegation_styles.swarm.max_concurrent = cap;
            settings.limits.concurrency = 2;
        });
        let result = harness.run().await;
        assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
        let log = harness.log(&result.session).await;
        assert!(log.iter().any(|record| record.session.as_str().matches('.').count() == 6));
        assert!(most_active(&log) <= cap as usize);
        check_laws(&log);
    }
}
