//! `web_fetch` and `web_search`: reading what is on the network.
//!
//! A model chooses what is fetched, and pages tell models what to choose, so an address is trusted in nothing. It is
//! resolved here, judged by the addresses that it leads to, and connected to exactly those; every redirect is judged
//! anew. What comes back is bounded in size, depth, number and time. See `docs/adr/0004-web-fetch.md`.

mod address;
mod address_class;
mod body;
mod connect;
mod error;
mod fetch;
mod html;
mod search;

use std::time::Duration;

use super::Toolbox;
use crate::model::Proxies;

pub use fetch::WebFetch;
pub use search::{SearchEngine, SearchError, WebSearch};

/// What servers are told about who asks.
const USER_AGENT: &str = concat!("brigade/", env!("CARGO_PKG_VERSION"));

/// How the network is read.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// Where `web_search` looks; without it the tool is not offered.
    pub search: Option<SearchEngine>,
    /// Whether servers on this machine may be fetched from, at any port. Other private networks never are.
    pub allow_loopback: bool,
    /// How long one call may take, from the first look-up to the last byte.
    pub timeout: Duration,
    /// How much of a page is read, counted after decompression, and how long its Markdown may be.
    pub max_bytes: usize,
    /// Proxy that `web_search` goes through. `web_fetch` uses none, because it checks every address that it connects to.
    pub proxies: Proxies,
}

impl Default for WebSettings {
    fn default() -> WebSettings {
        WebSettings {
            search: None,
            allow_loopback: false,
            timeout: Duration::from_secs(30),
            max_bytes: 2 << 20,
            proxies: Proxies::default(),
        }
    }
}

impl Toolbox {
    /// Adds `web_fetch`, and `web_search` where the settings say where to look.
    pub fn with_web(self, settings: WebSettings) -> Toolbox {
        let toolbox = match settings.search.clone() {
            Some(search) => self.with(WebSearch::new(search, &settings)),
            None => self,
        };
        toolbox.with(WebFetch::new(settings))
    }
}
