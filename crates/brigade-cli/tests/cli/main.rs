//! The command as people use it: real processes, each test with a home of its own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests start processes, and fail where something is not as it should be"
)]

mod agents;
mod completions;
mod config;
mod context;
mod control;
mod docs;
mod doctor;
mod exits;
mod faces;
mod formats;
mod init;
mod mistakes;
mod models;
mod prices;
mod schema;
mod sessions;
mod stories;
mod support;
mod trust;
