//! The command as people use it: real processes, each test with a home of its own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests start processes, and fail where something is not as it should be"
)]

mod acp;
mod acp_agent;
mod agents;
mod approvals;
mod changes;
mod chat;
mod completions;
mod config;
mod context;
mod control;
mod docs;
mod doctor;
mod exits;
mod export;
mod faces;
mod formats;
mod golden;
mod habits;
mod init;
mod keys;
mod loops;
mod mcp;
mod mcp_server;
mod mistakes;
mod models;
mod named;
mod notify;
mod prices;
mod proxy;
mod read_only;
mod resume;
mod retries;
mod rounds;
mod schema;
mod sessions;
mod stopped;
mod stories;
mod structured;
mod support;
mod surroundings;
mod transcript;
mod trust;
