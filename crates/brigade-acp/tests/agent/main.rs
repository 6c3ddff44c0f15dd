//! The agent as a client sees it: lines of JSON over a pipe, a scripted model, a store in memory.
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
