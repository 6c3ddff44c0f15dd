//! Real processes under a real guard.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests start processes and may fail loudly"
)]

mod cleanup;
mod exits;
mod fuzz;
mod layers;
mod limits;
mod planted;
mod probe;
mod sandbox;
mod served;
mod soak;
mod stale;
mod support;
