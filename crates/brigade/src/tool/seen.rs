//! The file that a call shows to its agent.

use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::SeenFile;

/// Takes the file that a call shows to its agent. It is recorded with the end of the call.
#[derive(Debug, Clone, Default)]
pub struct SeenSlot(Arc<Mutex<Option<SeenFile>>>);

impl SeenSlot {
    /// Says which file the output of the call shows.
    pub fn put(&self, file: SeenFile) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
    }

    /// The file that was shown, if one was.
    pub fn take(&self) -> Option<SeenFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
