//! The same work with the runtime, on a store that is synced.

use std::sync::Arc;

use brigade::core::{Budget, Status};
use brigade::model::openai::OpenAi;
use brigade::model::{Endpoint, RateLimits, Timeouts};
use brigade::store::sqlite::SqliteStore;
use brigade::{Models, Runtime, Settings, Task, Workspace};
use tempfile::TempDir;

use crate::Work;

/// Does the work, and gives the folder that the store is in: to remove it is no part of the work.
pub(crate) fn run(base: &str, work: Work) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("sessions.db")).unwrap());
    let mut settings = Settings::new("mock/m", Workspace::open(folder.path()).unwrap());
    settings.delegation_styles.swarm.max_concurrent = u32::MAX;
    settings.limits.concurrency = usize::MAX;
    settings.budget = Budget::UNLIMITED;
    // Where nothing is said the gate lets 64 through at once, as the bare client does.
    let concurrency = if let Work::Wide(children) = work { Some(children) } else { None };
    let pace = RateLimits { concurrency, ..RateLimits::default() };
    let endpoint =
        Endpoint::with_limits("mock", &format!("{base}/v1"), None, pace, Timeouts::default()).unwrap();
    let models = Models::default().with("mock", OpenAi::compatible(endpoint));
    let runtime = Runtime::new(store, settings, models);
    let task = match work {
        Work::Fan(children) | Work::Wide(children) => format!("FANOUT {children}"),
        Work::Stream(tokens) => format!("STREAM {tokens}"),
        Work::Prompt => "say it".to_owned(),
    };
    crate::threads().block_on(async move {
        let mut run = runtime.start(Task::new(task)).await.unwrap();
        // A reply that is streamed is watched.
        let watcher = matches!(work, Work::Stream(_)).then(|| {
            let mut watch = run.take_events();
            tokio::spawn(async move { while watch.next().await.is_some() {} })
        });
        let ending = run.result().await.unwrap();
        if let Some(watcher) = watcher {
            watcher.await.unwrap();
        }
        assert_eq!(ending.outcome.status, Status::Done, "{:?}", ending.outcome);
        if let Work::Fan(children) | Work::Wide(children) = work {
            assert_eq!(ending.spent.agents, children as u64);
        }
    });
    folder
}
