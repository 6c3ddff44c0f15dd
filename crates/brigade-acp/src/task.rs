//! The only place in this crate that spawns tasks.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A task that is aborted when this is dropped.
pub(crate) struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Spawns a task that is aborted when the returned guard is dropped.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
    AbortOnDrop(start(future))
}

/// Spawns a detached task, if there is a runtime.
pub(crate) fn detach(future: impl Future<Output = ()> + Send + 'static) {
    if Handle::try_current().is_ok() {
        drop(start(future));
    }
}

#[expect(clippy::disallowed_methods, reason = "every task of this crate is started here")]
fn start(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(future)
}
