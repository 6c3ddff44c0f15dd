//! Ctrl-Z: the process stops between two commits of the store, and afterwards draws everything again.

use std::sync::atomic::{AtomicU32, Ordering};

use brigade::Store;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;
use crate::keyboard::RawTerminal;

/// Number of times that the process was stopped and resumed.
static RESUMES: AtomicU32 = AtomicU32::new(0);

/// Number of times that the process was stopped and resumed. What was drawn before the last one has scrolled away.
pub(crate) fn resumes() -> u32 {
    RESUMES.load(Ordering::SeqCst)
}

/// Begins to listen for Ctrl-Z: from now on it does not stop the process by itself.
pub(crate) fn listen() -> Result<Signal, Failure> {
    let kind = SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw());
    signal(kind).map_err(|error| Failure::failed(format!("cannot handle Ctrl-Z: {error}")))
}

/// Asks for what Ctrl-Z asks for, on a terminal that hands it over as a key.
pub(crate) fn ask() {
    let own = rustix::process::getpid();
    // A process may always send signals to itself.
    let _ = rustix::process::kill_process(own, rustix::process::Signal::TSTP);
}

/// Stops the process until it is resumed. The terminal is as the shell expects it meanwhile.
pub(crate) fn suspend(store: &dyn Store) {
    RawTerminal::give_back_while(|| store.between_commits(&mut brigade_sandbox::stop_at_terminal));
    RESUMES.fetch_add(1, Ordering::SeqCst);
}
