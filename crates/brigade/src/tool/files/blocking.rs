//! File work away from the threads that drive sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade_core::ToolOutput;

use super::Stop;

/// Does file work on a thread that may wait. When the future is dropped, the work sees its [`Stop`] reached.
pub(in crate::tool) async fn blocking(
    limit: Duration,
    work: impl FnOnce(&Stop) -> ToolOutput + Send + 'static,
) -> ToolOutput {
    let dropped = Arc::new(AtomicBool::new(false));
    let _guard = OnDrop(Arc::clone(&dropped));
    let stop = Stop::after(limit, dropped);
    match tokio::task::spawn_blocking(move || work(&stop)).await {
        Ok(output) => output,
        Err(cause) => ToolOutput::error(format!("The tool broke down ({cause}); nothing was changed")),
    }
}

struct OnDrop(Arc<AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
