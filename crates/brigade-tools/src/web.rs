//! `web_fetch` and `web_search`: access to the web.
//!
//! A model chooses what to fetch, and pages influence that choice, so no URL is trusted. Its host is resolved here,
//! every resulting address is checked, and the connection uses exactly those addresses; each redirect is checked
//! again. Responses are bounded in size, depth, number and time. See `docs/adr/0004-web-fetch.md`.

mod address;
mod body;
mod connect;
mod error;
mod fetch;
mod html;
mod search;

use std::time::Duration;

use brigade_http_client::Proxies;

use super::Toolbox;

pub use fetch::WebFetch;
pub use search::{SearchEngine, SearchError, WebSearch};

/// User agent that is sent to servers.
const USER_AGENT: &str = concat!("brigade/", env!("CARGO_PKG_VERSION"));

/// Settings of the web tools.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// Search engine of `web_search`; without one the tool is not offered.
    pub search: Option<SearchEngine>,
    /// Whether `web_fetch` may access servers on this machine, at any port. Other private networks are never
    /// permitted.
    pub allow_loopback: bool,
    /// Maximum duration of a call, from the first DNS lookup to the last byte.
    pub timeout: Duration,
    /// Maximum size of a page after decompression, and of its Markdown.
    pub max_bytes: usize,
    /// Proxies of `web_search`. `web_fetch` uses none, because it checks every address that it connects to.
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
    /// Adds `web_fetch`, and `web_search` if the settings have a search engine.
    pub fn with_web(self, settings: WebSettings) -> Toolbox {
        let toolbox = match settings.search.clone() {
            Some(search) => self.with(WebSearch::new(search, &settings)),
            None => self,
        };
        toolbox.with(WebFetch::new(settings))
    }
}
