//! Whole trees on the scripted model: a script, the run, and checks of its log.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by falling over")]

mod approvals;
mod budget;
mod builder;
mod cancel;
mod compact;
mod concurrency;
mod contract;
mod crash;
mod delegate;
mod delegation_styles;
mod edge_cases;
mod environment;
mod examples;
mod fencing;
mod first_request;
mod follow;
mod imported;
mod long_conversations;
mod lost_updates;
mod memory_tool;
mod messages;
mod open_sessions;
mod queue;
mod remote_calls;
mod remote_context;
mod rounds;
mod run_handle;
mod seen_files;
mod support;
mod undo;
mod unreliable_store;
