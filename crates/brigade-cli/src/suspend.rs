//! Ctrl-Z: stops the process between two commits of the store, and redraws everything afterwards.

use std::sync::atomic::{AtomicU32, Ordering};

use brigade::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;
use crate::keyboard::RawTerminal;

/// Number of times that the process was stopped and resumed.
static RESUME_COUNT: AtomicU32 = AtomicU32::new(0);

/// Number of times that the process was stopped and resumed. Output from before the last time may have scrolled away.
pub(crate) fn resume_count() -> u32 {
    RESUME_COUNT.load(Ordering::SeqCst)
}

/// Installs the handler for Ctrl-Z, which no longer stops the process by itself.
pub(crate) fn listen() -> Result<Signal, CliError> {
    let kind = SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw());
    signal(kind).map_err(|error| CliError::failed(format!("cannot handle Ctrl-Z: {error}")))
}

/// Requests a stop, for terminals that deliver Ctrl-Z as a key.
pub(crate) fn request() {
    let pid = rustix::process::getpid();
    // A process may always send signals to itself.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TSTP);
}

/// Stops the process until it is resumed. The terminal is restored for the shell in the meantime.
pub(crate) fn suspend(store: &dyn Store) {
    RawTerminal::with_terminal_restored(|| store.between_commits(&mut brigade_sandbox::stop_at_terminal));
    RESUME_COUNT.fetch_add(1, Ordering::SeqCst);
}
