//! Both sides of the protocol: the agent from a client's point of view, and external agents as children.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail where something is not as it should be, and may write down what was said"
)]

mod agent;
mod client;
