//! A crash before every append with an external agent under way: it is never asked twice.

use std::sync::atomic::Ordering;

use brigade::More;
use brigade::core::{SessionId, Status};

use super::support::{Stage, check_laws, end};
use super::world::{all_gone, count, stage};

fn at_work() -> Stage {
    let stage = stage(&["!say a\n!read a.txt\n!write b.txt new\n!say b", "!say second"], |_, _| {});
    std::fs::write(stage.path().join("a.txt"), "fine").unwrap();
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_runner_died_is_not_asked_again_and_its_parent_goes_on() {
    crash_everywhere("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_is_one_that_was_told_something_meanwhile() {
    crash_everywhere("and be quick").await;
}

/// Crashes before every append, says something to the agents that are under way, and goes on.
async fn crash_everywhere(words: &str) {
    let whole = at_work();
    assert_eq!(whole.run().await.outcome.text.as_str(), "[Ext]: second");
    let appends = whole.store.appends.load(Ordering::SeqCst);
    assert!(appends > 8);
    let mut unknown = 0;
    for crash in 1..appends {
        let stage = at_work();
        stage.store.crash_after(crash);
        let runtime = stage.runtime();
        let Ok(run) = runtime.start(brigade::Task::new("the task")).await else {
            stage.store.mend();
            continue;
        };
        let root = run.session().clone();
        let ended = end(run).await.ok();
        drop(runtime);
        stage.store.mend();
        let resumed = match ended {
            Some(ended) => ended,
            None => {
                let runtime = stage.runtime();
                for child in ["1-0", "2-0"] {
                    let child: SessionId = format!("{root}.{child}").parse().unwrap();
                    if !words.is_empty() && !stage.events(&child).await.is_empty() {
                        runtime.tell(&child, words).await.unwrap();
                    }
                }
                end(runtime.resume(&root, More::default()).await.unwrap()).await.unwrap()
            }
        };
        assert_eq!(resumed.outcome.status, Status::Done, "crash {crash}: {}", resumed.outcome.text);
        let answers = stage.answers(&root).await;
        assert_eq!(answers.len(), 2, "crash {crash}: {answers:?}");
        for (answer, right) in answers.iter().zip(["b", "second"]) {
            let is_unknown = answer.contains("outcome unknown");
            unknown += usize::from(is_unknown);
            assert!(is_unknown || answer.ends_with(right), "crash {crash}: {answers:?}");
        }
        assert!(count(&stage, "prompt") <= 2, "crash {crash}: an agent was asked twice");
        check_laws(&stage.log(&root).await);
        all_gone(&stage).await;
    }
    assert!(unknown > 0, "no crash came in between");
}
