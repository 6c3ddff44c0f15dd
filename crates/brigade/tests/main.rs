//! Integration tests of the library, in one binary.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails where something is not as it should be"
)]

mod agents;
mod effort;
mod mcp;
mod memory;
mod models;
#[expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "is told by the environment what to run, and prints the log of a tree that fails"
)]
mod random_trees;
mod run;
mod skills;
// Uses the store kit as another crate would. `cargo test --all-features` runs it.
#[cfg(all(feature = "store-kit", feature = "store-testing"))]
mod store;
mod tools;
mod web;
