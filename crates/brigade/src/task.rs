//! Starting tasks: here, and in a driver's own set, and nowhere else.

use tokio::task::JoinHandle;

/// A task that ends with who holds this.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "every task of a run is started here or in a driver's own set")]
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}
