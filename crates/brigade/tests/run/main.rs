//! Whole trees on the scripted model: a script, the run, and what its log says.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by falling over")]

mod budget;
mod cancel;
mod compact;
mod concurrency;
mod contract;
mod crash;
mod delegate;
mod edges;
mod environment;
mod examples;
mod faces;
mod far;
mod fence;
mod hops;
mod imported;
mod long;
mod lost_updates;
mod questions;
mod queue;
mod remember;
mod rounds;
mod seen;
mod support;
mod tell;
mod undo;
