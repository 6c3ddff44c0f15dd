//! Stores: one set of laws for all of them, and the failure modes of each.

mod conformance;
mod damage;
mod decay;
mod export;
mod failed_commits;
mod leases;
mod processes;
mod sqlite;
mod stopped;
mod support;
mod third_backend;
