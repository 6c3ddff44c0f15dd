//! Two runners on one tree.

use std::time::Duration;

use brigade::core::Status;
use brigade::store::Owner;
use brigade::{ResumeOptions, RunError, StoreError};
use brigade_testing::{Script, call, delegate, reply};
use serde_json::json;

use crate::run::support::{Harness, check_laws, end};

fn slow() -> Script {
    Script::new().agent("lead", [delegate("Child", "part {n}").repeat(4), reply("{results}")]).agent(
        "Child",
        [call("echo", json!({ "text": "e" })).delay_ms(100), reply("did {task}").delay_ms(100)],
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_runner_fences_the_first_without_losing_events() {
    for pause in [20, 120, 180, 260] {
        let harness = Harness::with(slow(), |settings| settings.delegation_styles.swarm.max_concurrent = 2);
        let run = harness.start().await;
        let root = run.session().clone();
        tokio::time::sleep(Duration::from_millis(pause)).await;
        // The first runner counts as dead but keeps running.
        let second = harness.runtime().resume(&root, ResumeOptions::default()).await.unwrap();
        let (first, second) = tokio::join!(end(run), end(second));
        assert!(matches!(first, Err(RunError::Store(StoreError::Fenced { .. }))), "{first:?}");
        let result = second.unwrap();
        assert_eq!(result.outcome.status, Status::Done);
        let wanted: Vec<String> = (0..4).map(|n| format!("[Child]: did part {n}")).collect();
        assert_eq!(result.outcome.text.as_str(), wanted.join("\n"));
        check_laws(&harness.log(&root).await);
    }
}

#[tokio::test]
async fn tree_with_a_living_runner_is_not_taken_over() {
    let harness = Harness::new(slow());
    let alive = harness.runtime().with_owner(Owner::this_process());
    let run = alive.start(brigade::Task::new("the task")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    let second = harness.runtime().resume(run.session(), ResumeOptions::default()).await;
    assert!(matches!(second, Err(RunError::Store(StoreError::Held { .. }))));
    end(run).await.unwrap();
}
