//! TLS and proxies of the HTTP clients for providers, MCP servers, search engines and web pages.

mod proxies;
pub mod tls;

pub use proxies::{Proxies, Proxy, is_local};
