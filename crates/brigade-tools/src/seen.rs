//! File that a call shows to its agent.

use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::SeenFile;

/// Receives the file that a call shows to its agent. It is recorded with the result of the call.
#[derive(Debug, Clone, Default)]
pub struct SeenSlot(Arc<Mutex<Option<SeenFile>>>);

impl SeenSlot {
    /// Sets the file that the output of the call shows.
    pub fn put(&self, file: SeenFile) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    }

    /// Takes the file that was shown, if any.
    pub fn take(&self) -> Option<SeenFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
