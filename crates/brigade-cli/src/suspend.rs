//! Ctrl-Z: the process stops between two commits of the store, and afterwards draws everything again.

use std::sync::atomic::{AtomicU32, Ordering};

use brigade::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;
use crate::keyboard::RawTerminal;

/// Number of times that the process was stopped and resumed.
static RESUME_COUNT: AtomicU32 = AtomicU32::new(0);

/// Number of times that the process was stopped and resumed. What was drawn before the last one has scrolled away.
pub(crate) fn resume_count() -> u32 {
    RESUME_COUNT.load(Ordering::SeqCst)
}

/// Begins to listen for Ctrl-Z: from now on it does not stop the process by itself.
pub(crate) fn listen() -> Result<Signal, CliError> {
    let kind = SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw());
    signal(kind).map_err(|error| CliError::failed(format!("cannot handle Ctrl-Z: {error}")))
}

/// Asks for what Ctrl-Z asks for, on a terminal that hands it over as a key.
pub(crate) fn request() {
    let pid = rustix::process::getpid();
    // A process may always send signals to itself.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TSTP);
}

/// Stops the process until it is resumed. The terminal is as the shell expects it meanwhile.
pub(crate) fn suspend(store: &dyn Store) {
    RawTerminal::with_terminal_restored(|| store.between_commits(&mut brigade_sandbox::stop_at_terminal));
    RESUME_COUNT.fetch_add(1, Ordering::SeqCst);
}
