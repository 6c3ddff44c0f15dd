//! Time in a provider's queue, across a crash.

use std::sync::Arc;
use std::time::Duration;

use brigade::core::{Cursor, Event, Status};
use brigade::model::script;
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::store::memory::MemoryStore;
use brigade::{Models, ResumeOptions, Runtime, Settings, Task, Workspace};
use brigade_testing::{Script, call, delegate, reply};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::json;

use crate::run::support::{CrashStore, dead_owner, end};

fn script() -> Script {
    Script::new()
        .agent("lead", [delegate("Cook", "dish"), reply("{results}")])
        .agent("Cook", [call("echo", json!({ "text": "half" })).turn(1)])
        .reply("served")
}

const CHILD_TIMEOUT: Duration = Duration::from_millis(1600);
/// Together longer than the child's time limit.
const QUEUE_TIME: Duration = Duration::from_millis(1300);
const WORK_TIME: Duration = Duration::from_millis(700);

/// A model that queues the first request of a child. Its second one takes long.
struct QueueingModel(script::Script);

impl Model for QueueingModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let is_cook = request.role.as_deref() == Some("Cook");
        let (queued, at_work) = match (is_cook, request.turn) {
            (true, 1) => (QUEUE_TIME, Duration::ZERO),
            (true, _) => (Duration::ZERO, WORK_TIME),
            (false, _) => (Duration::ZERO, Duration::ZERO),
        };
        let sent = stream::once(async move {
            tokio::time::sleep(queued).await;
            Ok(Chunk::Sent)
        });
        let reply = self.0.stream(request);
        let reply = stream::once(async move {
            tokio::time::sleep(at_work).await;
            reply
        });
        stream::iter([Ok(Chunk::Queued)]).chain(sent).chain(reply.flatten()).boxed()
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.0.model_info(model)
    }
}

fn runtime(store: &Arc<CrashStore>, folder: &tempfile::TempDir) -> Runtime {
    runtime_of(&script(), store, folder)
}

fn runtime_of(script: &Script, store: &Arc<CrashStore>, folder: &tempfile::TempDir) -> Runtime {
    let mut settings = Settings::new("script", Workspace::open(folder.path()).unwrap());
    settings.limits.child_timeout = CHILD_TIMEOUT;
    settings.delegation_styles.swarm.max_depth = 2;
    let models = Models::default().with("script", QueueingModel(script.model()));
    Runtime::new(store.clone(), settings, models).with_owner(dead_owner())
}

/// Crashes before this append, resumes, and checks that the child still had its full time. Returns whether the
/// crash came between the wait and the end of the child.
async fn crash_before(append: i64) -> bool {
    let store = Arc::new(CrashStore::new(Arc::new(MemoryStore::new())));
    let folder = tempfile::tempdir().unwrap();
    store.crash_after(append);
    let Ok(run) = runtime(&store, &folder).start(Task::new("Cook.")).await else { return false };
    let root = run.session().clone();
    let crashed = end(run).await.is_err();
    store.repair();
    if !crashed {
        return false;
    }
    let log = store.inner.tail(&root, Cursor::START, usize::MAX).await.unwrap();
    let has_waited = log
        .iter()
        .any(|record| matches!(record.event, Event::Replied { waited_ms, .. } if waited_ms >= 1000));
    let result =
        end(runtime(&store, &folder).resume(&root, ResumeOptions::default()).await.unwrap()).await.unwrap();
    assert_eq!(result.outcome.status, Status::Done, "{:?}", result.outcome);
    let log = store.inner.tail(&root, Cursor::START, usize::MAX).await.unwrap();
    let returned = log.iter().find_map(|record| match &record.event {
        Event::Returned { outcome, .. } => Some(outcome.status.clone()),
        _ => None,
    });
    assert_eq!(returned, Some(Status::Done), "a crash before append {append}");
    has_waited
}

#[tokio::test]
async fn queue_time_extends_the_deadline_after_a_resume_too() {
    let hits = futures::future::join_all((3..8).map(crash_before)).await;
    assert!(hits.contains(&true), "{hits:?}");
}

/// A chef that delegates to two cooks, whose requests are queued at the same time.
fn nested() -> Script {
    Script::new()
        .agent("lead", [delegate("Chef", "menu"), reply("{results}")])
        .agent("Chef", [delegate("Cook", "soup").delegate("Cook", "dish").turn(1)])
        .agent("Cook", [call("echo", json!({ "text": "half" })).turn(1)])
        .reply("served")
}

#[tokio::test]
async fn queue_time_of_descendants_extends_the_deadline_of_waiting_parents() {
    let store = Arc::new(CrashStore::new(Arc::new(MemoryStore::new())));
    let folder = tempfile::tempdir().unwrap();
    let run = runtime_of(&nested(), &store, &folder).start(Task::new("Cook.")).await.unwrap();
    let root = run.session().clone();
    assert_eq!(end(run).await.unwrap().outcome.status, Status::Done);
    let log = store.inner.tail(&root, Cursor::START, usize::MAX).await.unwrap();
    let returned = log.iter().filter_map(|record| match &record.event {
        Event::Returned { child, outcome, waited_ms, .. } => {
            let depth = child.as_str().matches('.').count();
            Some((depth, outcome.status.clone(), *waited_ms))
        }
        _ => None,
    });
    let returned: Vec<_> = returned.collect();
    assert_eq!(returned.len(), 3, "{returned:?}");
    assert!(returned.iter().all(|(_, status, _)| *status == Status::Done), "{returned:?}");
    let waited: u64 = returned.iter().filter(|(depth, ..)| *depth == 2).map(|(.., waited)| waited).sum();
    let longest = QUEUE_TIME.as_millis() as u64 * 3 / 2;
    assert!((1000..longest).contains(&waited), "two that wait at once count once: {returned:?}");
}
