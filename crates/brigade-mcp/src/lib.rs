//! The Model Context Protocol (MCP), both ways: [`client`] offers the tools of MCP servers to agents, and [`server`]
//! offers the delegation styles as tools to other programs.

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "server")]
pub mod server;

#[cfg(feature = "server")]
pub use server::{AGENT, Server, SetupError, http, stdio};
