//! The agent from a client's point of view: JSON lines over a pipe, a scripted model and an in-memory store.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests fail where something is not as it should be, and may write down what was said"
)]

mod children;
mod input;
mod permission_requests;
mod prompts;
mod remote_context;
mod sessions;
mod support;
