//! Section `web`.

use std::time::Duration;

use brigade::tool::{SearchEngine, WebSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Environment;
use super::raw::saturating;
use super::values::Time;
use crate::error::CliError;

/// Shortest timeout of a call. With less, no fetch could succeed.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
const MIN_BYTES: u32 = 1024;

/// Section `web`.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawWeb {
    /// Whether `web_fetch` may access this machine.
    allow_loopback: bool,
    /// Search engine of `web_search`: brave, tavily, or the URL of a SearXNG instance.
    search: Option<String>,
    /// Environment variable that contains the key of the search engine, never the key itself; by default BRAVE_API_KEY or
    /// TAVILY_API_KEY.
    search_key_env: Option<String>,
    /// Timeout of a fetch.
    timeout: Time,
    /// Maximum bytes read from a page.
    max_bytes: u32,
}

impl Default for RawWeb {
    fn default() -> RawWeb {
        let WebSettings { allow_loopback, timeout, max_bytes, .. } = WebSettings::default();
        let (timeout, max_bytes) = (Time(timeout), saturating(max_bytes));
        RawWeb { allow_loopback, search: None, search_key_env: None, timeout, max_bytes }
    }
}

/// Settings for web access. The key of the search engine is read only when the tools are created.
#[derive(Debug)]
pub(crate) struct Web {
    settings: WebSettings,
    engine: Option<Engine>,
}

#[derive(Debug)]
enum Engine {
    Brave { key: String },
    Tavily { key: String },
    SearXng { address: String },
}

impl RawWeb {
    pub(super) fn resolve(self) -> Result<Web, CliError> {
        let RawWeb { allow_loopback, search, search_key_env, timeout: Time(timeout), max_bytes } = self;
        let key = |usual: &str| search_key_env.clone().unwrap_or_else(|| usual.to_owned());
        let engine = match search.as_deref() {
            None | Some("") => None,
            Some("brave") => Some(Engine::Brave { key: key("BRAVE_API_KEY") }),
            Some("tavily") => Some(Engine::Tavily { key: key("TAVILY_API_KEY") }),
            Some(address) if address.contains("://") => Some(Engine::SearXng { address: address.to_owned() }),
            Some(other) => {
                return Err(CliError::usage(format!(
                    "web.search: unknown search engine '{other}'. Use `brave`, `tavily` or the URL of a SearXNG instance."
                )));
            }
        };
        let (timeout, max_bytes) = (timeout.max(MIN_TIMEOUT), max_bytes.max(MIN_BYTES) as usize);
        let settings = WebSettings { allow_loopback, timeout, max_bytes, ..WebSettings::default() };
        Ok(Web { settings, engine })
    }
}

impl Web {
    /// Whether a variable contains the key of the search engine.
    pub(super) fn has_key_in(&self, variable: &str) -> bool {
        match &self.engine {
            Some(Engine::Brave { key } | Engine::Tavily { key }) => key == variable,
            Some(Engine::SearXng { .. }) | None => false,
        }
    }

    /// Settings for the library, with the key from the environment.
    pub(crate) fn to_web_settings(&self, environment: &Environment) -> Result<WebSettings, CliError> {
        let secret = |name: &str| {
            environment.secret(name).ok_or_else(|| {
                CliError::usage(format!(
                    "`web.search` needs a key, but {name} is not set. Set it, name another variable in \
                     `web.search_key_env`, or remove `web.search`."
                ))
            })
        };
        let search = match &self.engine {
            None => None,
            Some(Engine::Brave { key }) => Some(SearchEngine::brave(secret(key)?)),
            Some(Engine::Tavily { key }) => Some(SearchEngine::tavily(secret(key)?)),
            Some(Engine::SearXng { address }) => Some(SearchEngine::searxng(address)),
        };
        let search = search.transpose().map_err(|error| CliError::usage(format!("web.search: {error}")))?;
        Ok(WebSettings { search, proxies: environment.proxies(), ..self.settings.clone() })
    }
}
