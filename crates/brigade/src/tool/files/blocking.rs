//! File access outside of the threads that drive sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade_core::ToolOutput;

use super::StopSignal;

/// Runs file access on a thread that may block. If the future is dropped, the [`StopSignal`] of the work is set.
pub(in crate::tool) async fn blocking(
    limit: Duration,
    work: impl FnOnce(&StopSignal) -> ToolOutput + Send + 'static,
) -> ToolOutput {
    let dropped = Arc::new(AtomicBool::new(false));
    let _guard = SetOnDrop(Arc::clone(&dropped));
    let stop = StopSignal::after(limit, dropped);
    match tokio::task::spawn_blocking(move || work(&stop)).await {
        Ok(output) => output,
        Err(cause) => {
            ToolOutput::error(format!("The tool failed unexpectedly ({cause}). Nothing was changed."))
        }
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
