//! Starting tasks: here and nowhere else in this crate.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A task that ends with who holds this.
pub(crate) struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task that ends with who holds the answer.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
    AbortOnDrop(start(future))
}

/// Starts a task that ends by itself, where there is a runtime to run it.
pub(crate) fn detach(future: impl Future<Output = ()> + Send + 'static) {
    if Handle::try_current().is_ok() {
        drop(start(future));
    }
}

#[expect(clippy::disallowed_methods, reason = "every task of this crate is started here")]
fn start(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(future)
}
