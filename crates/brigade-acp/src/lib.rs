//! The Agent Client Protocol, both ways.
//!
//! [`client`] runs an external agent as a child session. [`agent`] serves our sessions to editors and other clients.
//! No other crate touches the protocol.

pub mod agent;
pub mod client;
mod line;
mod task;
