//! The built command with real processes, signals and terminals, and with servers and clients of other projects.

mod acp_agent;
mod acp_child;
mod acp_schema;
mod agentdojo;
mod aimock;
mod busy;
mod conformance_client;
mod conformance_server;
mod day;
mod kill;
mod local_model;
mod mcp;
mod mcp_server;
mod package;
mod power;
mod real_work;
mod soak;
mod wal;
