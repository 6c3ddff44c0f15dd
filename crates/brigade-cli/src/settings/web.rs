//! Section `web`.

use std::time::Duration;

use brigade::tool::{SearchEngine, WebSettings};
use serde::Deserialize;
use toml::Value;

use super::{Environment, duration};
use crate::error::CliError;

/// Shortest timeout of a call. With less, no fetch could succeed.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
const MIN_BYTES: u32 = 1024;

/// Raw section.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawWeb {
    allow_loopback: Option<bool>,
    search: Option<String>,
    search_key_env: Option<String>,
    timeout: Option<Value>,
    max_bytes: Option<u32>,
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
        let defaults = WebSettings::default();
        let key = |usual: &str| self.search_key_env.clone().unwrap_or_else(|| usual.to_owned());
        let engine = match self.search.as_deref() {
            None | Some("") => None,
            Some("brave") => Some(Engine::Brave { key: key("BRAVE_API_KEY") }),
            Some("tavily") => Some(Engine::Tavily { key: key("TAVILY_API_KEY") }),
            Some(address) if address.contains("://") => Some(Engine::SearXng { address: address.to_owned() }),
            Some(other) => {
                return Err(CliError::usage(format!(
                    "web.search: unknown search engine '{other}'. Use `brave`, `tavily` or the URL of a SearXNG instance"
                )));
            }
        };
        let timeout = duration(self.timeout.as_ref(), defaults.timeout)?.max(MIN_TIMEOUT);
        let max_bytes = self.max_bytes.map_or(defaults.max_bytes, |most| most.max(MIN_BYTES) as usize);
        let allow_loopback = self.allow_loopback.unwrap_or(defaults.allow_loopback);
        Ok(Web { settings: WebSettings { allow_loopback, timeout, max_bytes, ..defaults }, engine })
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
                     `web.search_key_env`, or remove `web.search`"
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
