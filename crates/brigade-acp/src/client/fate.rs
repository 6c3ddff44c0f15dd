//! Why a process ended, or is to end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// How long the end of a process may take to be known after the end of its output.
const PATIENCE: Duration = Duration::from_secs(2);

/// The first reason that is given. Whoever uses a process, reads from it or watches it shares this.
#[derive(Clone)]
pub(super) struct Fate {
    reason: Arc<watch::Sender<Option<String>>>,
}

impl Fate {
    pub(super) fn open() -> Fate {
        Fate { reason: Arc::new(watch::Sender::new(None)) }
    }

    /// Says why it ended, or is to end.
    pub(super) fn seal(&self, reason: impl Into<String>) {
        self.reason.send_if_modified(|known| match known {
            Some(_) => false,
            None => {
                *known = Some(reason.into());
                true
            }
        });
    }

    /// Whether there is a reason.
    pub(super) fn is_sealed(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// Waits for a reason.
    pub(super) async fn sealed(&self) {
        // The sender lives as long as this.
        let _ = self.reason.subscribe().wait_for(Option::is_some).await;
    }

    /// The reason; for a connection that is closed already, it is waited for a moment.
    pub(super) async fn last_words(&self) -> String {
        let _ = tokio::time::timeout(PATIENCE, self.sealed()).await;
        self.reason.borrow().clone().unwrap_or_else(|| "it closed the connection".to_owned())
    }
}
