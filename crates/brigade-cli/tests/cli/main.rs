//! The command as users run it: real processes, each test with its own home.
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
mod cli_conventions;
mod completions;
mod config;
mod console;
mod context;
mod control;
mod demo;
mod diagnostics;
mod docs;
mod doctor;
mod environment_context;
mod eval;
mod exit_codes;
mod export;
mod faces;
mod golden;
mod init;
mod keys;
mod locked_store;
mod loops;
mod mcp;
mod mcp_server;
mod models;
mod notify;
mod output_formats;
mod prices;
mod proxy;
mod read_only;
mod redaction;
mod resume;
mod retries;
mod rounds;
mod schema;
mod session_ref;
mod sessions;
mod stories;
mod structured;
mod support;
mod tidy;
mod transcript;
mod trust;
mod typed_errors;
mod usage_errors;
