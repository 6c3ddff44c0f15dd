//! Time in the queue of a provider, over a crash.

use std::sync::Arc;
use std::time::Duration;

use brigade::core::{Event, Status};
use brigade::model::script::Script;
use brigade::model::{About, Chunk, Model, ModelError, Request};
use brigade::store::memory::MemoryStore;
use brigade::{Models, More, Runtime, Settings, Task, Workspace};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::support::{CrashStore, dead_holder, end};

const SCRIPT: &str = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Cook", task = "dish" }
[[reply]]
agent = "lead"
text = "{results}"
[[reply]]
agent = "Cook"
turn = 1
[[reply.call]]
tool = "echo"
arguments = { text = "half" }
[[reply]]
text = "served"
"#;

const CHILD_TIMEOUT: Duration = Duration::from_millis(1600);
/// Together longer than the child may take.
const IN_QUEUE: Duration = Duration::from_millis(1300);
const AT_WORK: Duration = Duration::from_millis(700);

/// A model before which the first request of a child waits. Its second one takes long.
struct Queue(Script);

impl Model for Queue {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let (queued, at_work) = match (request.role.is_some(), request.turn) {
            (true, 1) => (IN_QUEUE, Duration::ZERO),
            (true, _) => (Duration::ZERO, AT_WORK),
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

    fn about(&self, model: &str) -> About {
        self.0.about(model)
    }
}

fn runtime(store: &Arc<CrashStore>, folder: &tempfile::TempDir) -> Runtime {
    let mut settings = Settings::new("script", Workspace::open(folder.path()).unwrap());
    settings.limits.child_timeout = CHILD_TIMEOUT;
    let models = Models::default().with("script", Queue(Script::parse(SCRIPT).unwrap()));
    Runtime::new(store.clone(), settings, models).held_by(dead_holder())
}

/// Crashes before this append, resumes, and checks that the child still had its time. Whether the crash came between the
/// wait and the end of the child.
async fn crash_before(append: i64) -> bool {
    let store = Arc::new(CrashStore::new(Arc::new(MemoryStore::new())));
    let folder = tempfile::tempdir().unwrap();
    store.crash_after(append);
    let Ok(run) = runtime(&store, &folder).start(Task::new("Cook.")).await else { return false };
    let root = run.session().clone();
    let crashed = end(run).await.is_err();
    store.mend();
    if !crashed {
        return false;
    }
    let log = store.inner.tail(&root, 0, usize::MAX).await.unwrap();
    let has_waited = log
        .iter()
        .any(|record| matches!(record.event, Event::Replied { waited_ms, .. } if waited_ms >= 1000));
    let ending = end(runtime(&store, &folder).resume(&root, More::default()).await.unwrap()).await.unwrap();
    assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
    let log = store.inner.tail(&root, 0, usize::MAX).await.unwrap();
    let returned = log.iter().find_map(|record| match &record.event {
        Event::Returned { outcome, .. } => Some(outcome.status.clone()),
        _ => None,
    });
    assert_eq!(returned, Some(Status::Done), "a crash before append {append}");
    has_waited
}

#[tokio::test]
async fn time_in_the_queue_extends_the_deadline_after_a_resume_too() {
    let hits = futures::future::join_all((3..8).map(crash_before)).await;
    assert!(hits.contains(&true), "{hits:?}");
}
