//! The command as users run it, and on a pseudo-terminal. Every test has its own home and real processes.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests start processes, and fail where something is not as it should be"
)]

mod cli;
mod hostile;
mod screen;
