//! The server from a client's point of view: in process over a pipe, and over real HTTP.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests start tasks, and fail where something is not as it should be"
)]

mod approvals;
mod calls;
mod hostile;
mod http;
mod lines;
mod sessions;
mod support;
mod tasks;
