//! Section `providers`, over the built-in providers.

mod info;
mod variables;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brigade::Model;
use brigade::model::{EndpointOverride, PriceList, RateLimits, Timeouts};
use brigade::provider::{BUILT_IN_PROVIDERS, BuiltInProvider, Provider as LibraryProvider, ProviderApi};
use serde::Deserialize;
use toml::Value;

use super::{Environment, keys};
use crate::error::CliError;

pub(crate) use info::{ApiKey, ProviderInfo};
pub(super) use variables::variables;

/// Values of `kind`.
pub(super) const KINDS: [&str; 4] = ["openai", "responses", "anthropic", "gemini"];

/// Variables that contain the key of Gemini. The first one that is set is used.
const GEMINI_KEYS: [&str; 2] = ["GEMINI_API_KEY", "GOOGLE_API_KEY"];

/// Raw provider entry.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawProvider {
    kind: Option<String>,
    base_url: Option<String>,
    api_key_env: Option<String>,
    concurrency: Option<u32>,
    requests_per_minute: Option<u32>,
    tokens_per_minute: Option<u32>,
    connect_timeout: Option<Value>,
    first_byte_timeout: Option<Value>,
    idle_timeout: Option<Value>,
    total_timeout: Option<Value>,
    longest_wait: Option<Value>,
}

impl RawProvider {
    fn pace(&self) -> RateLimits {
        RateLimits {
            concurrency: self.concurrency.map(|number| number as usize),
            initial_concurrency: None,
            requests_per_minute: self.requests_per_minute,
            tokens_per_minute: self.tokens_per_minute.map(u64::from),
        }
    }

    fn times(&self) -> Result<Timeouts, CliError> {
        let time =
            |value: &Option<Value>| value.as_ref().map(keys::duration).transpose().map_err(CliError::usage);
        Ok(Timeouts {
            connect: time(&self.connect_timeout)?,
            first_byte: time(&self.first_byte_timeout)?,
            idle: time(&self.idle_timeout)?,
            total: time(&self.total_timeout)?,
            longest_wait: time(&self.longest_wait)?,
        })
    }
}

/// Available providers. Their keys are read when one of their models is first used.
#[derive(Debug, Clone)]
pub(crate) struct Providers(BTreeMap<String, Provider>);

#[derive(Debug, Clone)]
struct Provider {
    api: ProviderApi,
    base_url: String,
    /// Variable that contains the key. Empty if no key is needed.
    key: String,
    pace: RateLimits,
    times: Timeouts,
}

/// API of a `kind`. Other values were rejected when the file was checked.
fn api_of_kind(kind: &str) -> ProviderApi {
    match kind {
        "anthropic" => ProviderApi::Messages,
        "gemini" => ProviderApi::Gemini,
        "responses" => ProviderApi::Responses,
        _ => ProviderApi::ChatCompletions,
    }
}

fn built_in() -> BTreeMap<String, Provider> {
    let provider = |built_in: &BuiltInProvider| {
        let provider = Provider {
            api: built_in.api,
            base_url: built_in.base_url.to_owned(),
            key: built_in.key_variable.unwrap_or_default().to_owned(),
            pace: RateLimits::default(),
            times: Timeouts::default(),
        };
        (built_in.name.to_owned(), provider)
    };
    BUILT_IN_PROVIDERS.iter().map(provider).collect()
}

impl Providers {
    /// Built-in providers, changed and extended by the configuration.
    pub(super) fn resolve(raw: BTreeMap<String, RawProvider>) -> Result<Providers, CliError> {
        let mut providers = built_in();
        for (name, raw) in raw {
            let missing = |key: &str, fix: &str| {
                CliError::usage(format!("providers.{name}: `{key}` is missing. {fix}"))
            };
            if name.is_empty() || name.contains(['/', ':']) {
                return Err(CliError::usage(format!(
                    "providers.\"{name}\": invalid provider name. It must not be empty or contain `/` or `:`"
                )));
            }
            let (pace, times) = (raw.pace(), raw.times()?);
            let known = providers.remove(&name);
            let api = raw.kind.as_deref().map(api_of_kind).or_else(|| known.as_ref().map(|known| known.api));
            let api = api.ok_or_else(|| {
                missing("kind", &format!("Set it to the API of the provider: {}", KINDS.join(", ")))
            })?;
            let base_url = raw.base_url.or_else(|| known.as_ref().map(|known| known.base_url.clone()));
            let base_url = base_url.ok_or_else(|| missing("base_url", "Set it to the URL of the API"))?;
            let key = raw.api_key_env.or_else(|| known.map(|known| known.key)).unwrap_or_default();
            providers.insert(name, Provider { api, base_url, key, pace, times });
        }
        Ok(Providers(providers))
    }

    /// Longest silence that the configuration permits a provider.
    pub(super) fn max_silence(&self) -> Duration {
        let times = self.0.values().flat_map(|provider| [provider.times.first_byte, provider.times.idle]);
        times.flatten().max().unwrap_or_default()
    }

    /// Whether a variable contains the key of one of them.
    pub(super) fn has_key_in(&self, variable: &str) -> bool {
        GEMINI_KEYS.contains(&variable) || self.0.values().any(|provider| provider.key == variable)
    }

    /// Names of the providers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Provider of this name, with the agent's own key or the one from the environment. The latter is not sent to an
    /// address that only an agent names.
    pub(crate) fn model(
        &self,
        name: &str,
        override_: &EndpointOverride,
        environment: &Environment,
        prices: &PriceList,
    ) -> Result<Arc<dyn Model>, String> {
        let provider = self.0.get(name).ok_or_else(|| format!("unknown provider '{name}'"))?;
        let library = LibraryProvider::new(name, provider.api, &provider.base_url)
            .rate_limits(provider.pace)
            .timeouts(provider.times)
            .prices(prices.clone())
            .proxies(environment.proxies());
        let library = match provider.key.as_str() {
            "" => library,
            _ if !library.uses_own_key(override_) => library,
            variable => match environment.secret(variable) {
                Some(key) => library.key(key.expose()),
                None => {
                    return Err(format!(
                        "the provider '{name}' needs a key, but {variable} is not set. Set it, or name another \
                         variable in `providers.{name}.api_key_env`"
                    ));
                }
            },
        };
        library.connect(override_).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_silence_is_the_longest_provider_timeout() {
        let of = |text: &str| Providers::resolve(toml::from_str(text).unwrap()).unwrap().max_silence();
        assert_eq!(of(""), Duration::ZERO);
        let text = "[ollama]\nfirst_byte_timeout = '10m'\n[openai]\nidle_timeout = '3m'\n";
        assert_eq!(of(text), Duration::from_secs(600));
    }
}
