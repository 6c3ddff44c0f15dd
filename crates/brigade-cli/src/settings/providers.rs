//! Section `providers`, over the built-in providers.

mod info;
mod variables;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use brigade::Model;
use brigade::model::{EndpointError, EndpointOverride, PriceList, RateLimits, Timeouts};
use brigade::provider::{BUILT_IN_PROVIDERS, BuiltInProvider, Provider as LibraryProvider, ProviderApi};
use schemars::JsonSchema;
use serde::Deserialize;

use super::values::Time;
use super::{Environment, keys};
use crate::error::CliError;

pub(crate) use info::{ApiKey, ProviderInfo};
pub(super) use variables::variables;

/// Variables that contain the key of Gemini. The first one that is set is used.
const GEMINI_KEYS: [&str; 2] = ["GEMINI_API_KEY", "GOOGLE_API_KEY"];

/// Entry of a provider.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawProvider {
    /// API of the provider; openai is Chat Completions.
    kind: Option<ApiKind>,
    /// Base URL of the API.
    base_url: Option<String>,
    /// Environment variable that contains the key, never the key itself; empty if no key is needed.
    api_key_env: Option<String>,
    /// Maximum concurrent requests.
    concurrency: Option<NonZeroU32>,
    /// Maximum requests per minute.
    requests_per_minute: Option<NonZeroU32>,
    /// Maximum tokens per minute.
    tokens_per_minute: Option<NonZeroU32>,
    /// Timeout for connecting; by default 10s.
    connect_timeout: Option<Time>,
    /// Timeout for the first byte of a reply; by default 4m.
    first_byte_timeout: Option<Time>,
    /// Timeout for a pause within a reply; by default 2m.
    idle_timeout: Option<Time>,
    /// Timeout for a whole reply; by default 30m.
    total_timeout: Option<Time>,
    /// Maximum wait before a retry that the provider requests; by default 2m.
    longest_wait: Option<Time>,
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

/// Values of `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ApiKind {
    OpenAi,
    Responses,
    Anthropic,
    Gemini,
}

impl From<ApiKind> for ProviderApi {
    fn from(kind: ApiKind) -> ProviderApi {
        match kind {
            ApiKind::OpenAi => ProviderApi::ChatCompletions,
            ApiKind::Responses => ProviderApi::Responses,
            ApiKind::Anthropic => ProviderApi::Messages,
            ApiKind::Gemini => ProviderApi::Gemini,
        }
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
                    "providers.\"{name}\": invalid provider name. It must not be empty or contain `/` or `:`."
                )));
            }
            let RawProvider {
                kind,
                base_url,
                api_key_env,
                concurrency,
                requests_per_minute,
                tokens_per_minute,
                connect_timeout,
                first_byte_timeout,
                idle_timeout,
                total_timeout,
                longest_wait,
            } = raw;
            let pace = RateLimits {
                concurrency: concurrency.map(|most| most.get() as usize),
                initial_concurrency: None,
                requests_per_minute: requests_per_minute.map(NonZeroU32::get),
                tokens_per_minute: tokens_per_minute.map(|most| most.get().into()),
            };
            let time = |time: Option<Time>| time.map(|Time(time)| time);
            let times = Timeouts {
                connect: time(connect_timeout),
                first_byte: time(first_byte_timeout),
                idle: time(idle_timeout),
                total: time(total_timeout),
                longest_wait: time(longest_wait),
            };
            let known = providers.remove(&name);
            let api = kind
                .map(ProviderApi::from)
                .or_else(|| known.as_ref().map(|known| known.api))
                .ok_or_else(|| {
                    let kinds =
                        keys::find(&["providers", &name, "kind"]).map(keys::words).unwrap_or_default();
                    missing("kind", &format!("Set it to the API of the provider: {}", kinds.join(", ")))
                })?;
            let base_url = base_url.or_else(|| known.as_ref().map(|known| known.base_url.clone()));
            let base_url = base_url.ok_or_else(|| missing("base_url", "Set it to the URL of the API"))?;
            let key = api_key_env.or_else(|| known.map(|known| known.key)).unwrap_or_default();
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
    ) -> Result<Arc<dyn Model>, ProviderUnavailable> {
        let provider = self.0.get(name).ok_or_else(|| ProviderUnavailable::Unknown(name.to_owned()))?;
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
                    let (name, variable) = (name.to_owned(), variable.to_owned());
                    return Err(ProviderUnavailable::NoKey { name, variable });
                }
            },
        };
        Ok(library.connect(override_)?)
    }
}

/// A provider that cannot serve a model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderUnavailable {
    /// No provider has this name.
    #[error("unknown provider '{0}'")]
    Unknown(String),
    /// The variable with its key is not set.
    #[error(
        "the provider '{name}' needs a key, but {variable} is not set. Set it, or name another variable in \
         `providers.{name}.api_key_env`."
    )]
    NoKey { name: String, variable: String },
    /// Its address or proxy is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
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
