//! Two runners on one tree.

use std::time::Duration;

use brigade::core::Status;
use brigade::store::Owner;
use brigade::{ResumeOptions, RunError, StoreError};

use crate::run::support::{Harness, check_laws, end};

const SLOW: &str = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Child", task = "part {n}" }
repeat = 4
[[reply]]
agent = "lead"
text = "{results}"
[[reply]]
agent = "Child"
turn = 1
delay_ms = 100
[[reply.call]]
tool = "echo"
arguments = { text = "e" }
[[reply]]
agent = "Child"
delay_ms = 100
text = "did {task}"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_runner_fences_the_first_without_losing_events() {
    for pause in [20, 120, 180, 260] {
        let harness = Harness::with(SLOW, |settings| settings.delegation_styles.swarm.max_concurrent = 2);
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
    let harness = Harness::new(SLOW);
    let alive = harness.runtime().with_owner(Owner::this_process());
    let run = alive.start(brigade::Task::new("the task")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    let second = harness.runtime().resume(run.session(), ResumeOptions::default()).await;
    assert!(matches!(second, Err(RunError::Store(StoreError::Held { .. }))));
    end(run).await.unwrap();
}
