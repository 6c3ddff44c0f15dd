//! Spawning of tasks. Apart from the release of a lease, this is the only place that does it.

use tokio::task::JoinHandle;

/// A task that is aborted when this handle is dropped.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "every task of a run is started here")]
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}
