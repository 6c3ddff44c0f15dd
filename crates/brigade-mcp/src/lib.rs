//! Brigade as a Model Context Protocol (MCP) server.
//!
//! [`Server`] offers the delegation styles as tools. Each call is a root session: it is recorded, has a
//! budget and a depth, and can be resumed. [`stdio`] and [`http`] are the transports. [`http`] works with any
//! other handler, too. The library never prints, and it reads neither the environment nor the home directory.

mod approvals;
pub mod http;
mod progress;
mod results;
mod server;
mod sessions;
pub mod stdio;
mod task;
mod text;
mod timestamp;
mod visibility;

pub use server::{AGENT, Server, SetupError};
