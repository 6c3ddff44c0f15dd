//! Tests of the command on a pseudo-terminal, whose output is parsed as a terminal does and compared as a screen.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests start processes, and fail where something is not as it should be"
)]

mod chat;
mod chat_keys;
mod demo;
mod drawing;
mod ends;
mod eval;
#[path = "../cli/support.rs"]
#[expect(dead_code, reason = "the tests without a terminal use the rest")]
mod home;
mod init;
mod picture;
mod questions;
mod recording;
mod retries;
mod support;
mod suspend;
mod tree;
