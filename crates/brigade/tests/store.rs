//! Stores: one set of laws for all of them, and the failure modes of each.

#![expect(clippy::unwrap_used, reason = "a test says so by falling over")]

#[path = "store/conformance.rs"]
mod conformance;
#[path = "store/damage.rs"]
mod damage;
#[path = "store/decay.rs"]
mod decay;
#[path = "store/export.rs"]
mod export;
#[path = "store/failed_commits.rs"]
mod failed_commits;
#[path = "store/leases.rs"]
mod leases;
#[path = "store/processes.rs"]
mod processes;
#[path = "store/sqlite.rs"]
mod sqlite;
#[path = "store/stopped.rs"]
mod stopped;
#[path = "store/support.rs"]
mod support;
#[path = "store/third_backend.rs"]
mod third_backend;
