//! File access outside of the threads that drive sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brigade_core::ToolOutput;

/// Condition that ends a walk early.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal {
    dropped: Arc<AtomicBool>,
    deadline: Instant,
}

impl StopSignal {
    /// Creates a signal that stops after this time, or when the flag is set.
    pub(crate) fn after(limit: Duration, dropped: Arc<AtomicBool>) -> StopSignal {
        StopSignal { dropped, deadline: Instant::now() + limit }
    }

    /// Whether the walk should stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

/// Runs file access on a thread that may block. If the future is dropped, the [`StopSignal`] of the work is set.
pub(crate) async fn blocking(
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
