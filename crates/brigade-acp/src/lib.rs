//! The Agent Client Protocol, both ways.
//!
//! [`client`] runs external agents as child sessions. [`agent`] serves Brigade sessions to editors and other
//! clients. No other crate uses the protocol.

pub mod agent;
pub mod client;
mod task;

/// Maximum length of a message.
const MAX_LINE_BYTES: usize = 8 << 20;
