//! Real processes under a real guard.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests start processes and may fail loudly"
)]

mod cleanup;
mod exits;
mod layers;
mod probe;
mod sandbox;
mod served;
mod stale;
mod support;
