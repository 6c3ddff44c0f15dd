//! Spawning of tasks. Apart from the release of a lease, this is the only place that does it.

use tokio::task::JoinHandle;

/// A task that is aborted when this handle is dropped.
pub struct AbortOnDrop<T>(pub JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task.
#[expect(clippy::disallowed_methods, reason = "every task of a run is started here")]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}
