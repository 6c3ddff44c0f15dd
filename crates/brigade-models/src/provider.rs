//! Providers of models with their addresses: the built-in ones, and any server with a compatible API.
//!
//! [`Anthropic`], [`OpenAi`] and the other types create a [`Provider`] with its address. The library does not
//! read environment variables, so the caller passes the key:
//!
//! ```
//! # #[cfg(all(feature = "anthropic", feature = "openai"))] {
//! use brigade_models::provider::{Anthropic, Ollama, OpenAiCompatible};
//!
//! let key = "sk-…";
//! let claude = Anthropic::new(key).model("claude-sonnet-4-5").concurrency(8);
//! let local = Ollama::new().model("qwen3");
//! let gateway = OpenAiCompatible::new("https://llm.example.com/v1").key(key).model("large");
//! # }
//! ```

mod built_in;

use std::sync::Arc;

use brigade_base::Secret;
use brigade_base::model::{EndpointOverride, Model};
use brigade_http_client::Proxies;

#[cfg(feature = "anthropic")]
use crate::anthropic::Anthropic as AnthropicModel;
#[cfg(feature = "gemini")]
use crate::gemini::Gemini as GeminiModel;
#[cfg(feature = "openai")]
use crate::openai::OpenAi as OpenAiModel;
#[cfg(feature = "openai")]
use crate::responses::Responses as ResponsesModel;
use crate::{Api, Endpoint, EndpointError, PriceList, RateLimits, Timeouts};

#[cfg(feature = "anthropic")]
pub use built_in::Anthropic;
#[cfg(feature = "gemini")]
pub use built_in::Gemini;
pub use built_in::{BUILT_IN_PROVIDERS, BuiltInProvider};
#[cfg(feature = "openai")]
pub use built_in::{
    DeepSeek, Groq, LlamaCpp, LmStudio, Ollama, OpenAi, OpenAiCompatible, OpenAiResponses, OpenRouter, Vllm,
};

/// API of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderApi {
    /// OpenAI's Chat Completions API, which most servers support.
    #[cfg(feature = "openai")]
    ChatCompletions,
    /// OpenAI's Responses API.
    #[cfg(feature = "openai")]
    Responses,
    /// Anthropic's Messages API.
    #[cfg(feature = "anthropic")]
    Messages,
    /// Google's Gemini API.
    #[cfg(feature = "gemini")]
    Gemini,
}

impl ProviderApi {
    /// Returns the common name of the API.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "openai")]
            ProviderApi::ChatCompletions => "Chat Completions",
            #[cfg(feature = "openai")]
            ProviderApi::Responses => "Responses",
            #[cfg(feature = "anthropic")]
            ProviderApi::Messages => "Messages",
            #[cfg(feature = "gemini")]
            ProviderApi::Gemini => "Gemini",
        }
    }

    /// Returns the API that lists the models of such a provider.
    pub fn listing(self) -> Api {
        match self {
            #[cfg(feature = "openai")]
            ProviderApi::ChatCompletions | ProviderApi::Responses => Api::OpenAi,
            #[cfg(feature = "anthropic")]
            ProviderApi::Messages => Api::Anthropic,
            #[cfg(feature = "gemini")]
            ProviderApi::Gemini => Api::Gemini,
        }
    }
}

/// A provider of models: its API, address, key and limits.
#[derive(Debug, Clone)]
#[must_use = "a provider is not used until it is given to a builder"]
pub struct Provider {
    name: String,
    api: ProviderApi,
    base_url: String,
    key: Option<Secret>,
    model: Option<String>,
    rate_limits: RateLimits,
    timeouts: Timeouts,
    prices: PriceList,
    proxies: Proxies,
}

impl Provider {
    /// Creates a provider. Models are named after it: `name/model`.
    pub fn new(name: impl Into<String>, api: ProviderApi, base_url: impl Into<String>) -> Provider {
        Provider {
            name: name.into(),
            api,
            base_url: base_url.into(),
            key: None,
            model: None,
            rate_limits: RateLimits::default(),
            timeouts: Timeouts::default(),
            prices: PriceList::built_in(),
            proxies: Proxies::default(),
        }
    }

    /// Creates the built-in provider of this name, such as `groq`. Returns `None` if there is none.
    pub fn built_in(name: &str) -> Option<Provider> {
        BUILT_IN_PROVIDERS.iter().find(|provider| provider.name == name).map(BuiltInProvider::provider)
    }

    /// Sets the name. Names must be unique within a runtime.
    pub fn name(self, name: impl Into<String>) -> Provider {
        Provider { name: name.into(), ..self }
    }

    /// Sets the API key.
    pub fn key(self, key: impl Into<String>) -> Provider {
        Provider { key: Some(Secret::new(key)), ..self }
    }

    /// Sets the model, by its name at the provider.
    pub fn model(self, model: impl Into<String>) -> Provider {
        Provider { model: Some(model.into()), ..self }
    }

    /// Sets the base URL. Built-in prices apply only to the URLs that they were collected for.
    pub fn base_url(self, base_url: impl Into<String>) -> Provider {
        Provider { base_url: base_url.into(), ..self }
    }

    /// Sets the timeouts of requests.
    pub fn timeouts(self, timeouts: Timeouts) -> Provider {
        Provider { timeouts, ..self }
    }

    /// Sets all rate limits.
    pub fn rate_limits(self, rate_limits: RateLimits) -> Provider {
        Provider { rate_limits, ..self }
    }

    /// Sets the maximum number of concurrent requests.
    pub fn concurrency(mut self, requests: usize) -> Provider {
        self.rate_limits.concurrency = Some(requests);
        self
    }

    /// Sets the maximum number of requests per minute.
    pub fn requests_per_minute(mut self, requests: u32) -> Provider {
        self.rate_limits.requests_per_minute = Some(requests);
        self
    }

    /// Sets the maximum number of tokens per minute, for requests and replies together.
    pub fn tokens_per_minute(mut self, tokens: u64) -> Provider {
        self.rate_limits.tokens_per_minute = Some(tokens);
        self
    }

    /// Sets the price list. The default is the built-in one.
    pub fn prices(self, prices: PriceList) -> Provider {
        Provider { prices, ..self }
    }

    /// Sets the proxies. The default is none.
    pub fn proxies(self, proxies: Proxies) -> Provider {
        Provider { proxies, ..self }
    }

    /// Returns the name of the provider.
    pub fn provider_name(&self) -> &str {
        &self.name
    }

    /// Returns the full name of its model, `provider/model`, if it has one.
    pub fn model_name(&self) -> Option<String> {
        let model = self.model.as_deref().filter(|model| !model.trim().is_empty())?;
        Some(format!("{}/{model}", self.name))
    }

    /// Returns the API key.
    pub fn own_key(&self) -> Option<&Secret> {
        self.key.as_ref()
    }

    /// Whether requests with these overrides carry the provider's own key. The key is not sent to an address that
    /// only an agent names.
    pub fn uses_own_key(&self, overrides: &EndpointOverride) -> bool {
        overrides.key.is_none() && !self.is_elsewhere(overrides)
    }

    fn is_elsewhere(&self, overrides: &EndpointOverride) -> bool {
        overrides.base_url.as_deref().is_some_and(|other| !is_same_url(other, &self.base_url))
    }

    /// Creates a client, with the overrides of an agent. This loads the system's certificates, so create it once and
    /// keep it. Nothing is sent.
    pub fn connect(&self, overrides: &EndpointOverride) -> Result<Arc<dyn Model>, EndpointError> {
        let base_url = overrides.base_url.as_deref().unwrap_or(&self.base_url);
        let key = if self.uses_own_key(overrides) { &self.key } else { &overrides.key };
        let endpoint =
            Endpoint::with_limits(&self.name, base_url, key.clone(), self.rate_limits, self.timeouts)?;
        let endpoint = endpoint.with_proxies(&self.proxies)?.with_prices(self.prices.clone());
        #[cfg(feature = "openai")]
        let is_openai = is_same_url(base_url, built_in::OPENAI.base_url);
        Ok(match self.api {
            #[cfg(feature = "anthropic")]
            ProviderApi::Messages => Arc::new(AnthropicModel::new(endpoint)),
            #[cfg(feature = "gemini")]
            ProviderApi::Gemini => Arc::new(GeminiModel::new(endpoint)),
            #[cfg(feature = "openai")]
            ProviderApi::ChatCompletions if is_openai => Arc::new(OpenAiModel::new(endpoint)),
            #[cfg(feature = "openai")]
            ProviderApi::ChatCompletions => Arc::new(OpenAiModel::compatible(endpoint)),
            #[cfg(feature = "openai")]
            ProviderApi::Responses if is_openai => Arc::new(ResponsesModel::new(endpoint)),
            #[cfg(feature = "openai")]
            ProviderApi::Responses => Arc::new(ResponsesModel::compatible(endpoint)),
        })
    }
}

fn is_same_url(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

#[cfg(all(test, feature = "anthropic", feature = "gemini", feature = "openai"))]
mod tests {
    use super::*;

    fn to(base_url: Option<&str>, key: Option<&str>) -> EndpointOverride {
        EndpointOverride { base_url: base_url.map(str::to_owned), key: key.map(Secret::new) }
    }

    #[test]
    fn own_key_is_not_used_at_an_address_of_an_agent() {
        let provider = Anthropic::new("sk-1");
        assert!(provider.uses_own_key(&to(None, None)));
        assert!(provider.uses_own_key(&to(Some("https://api.anthropic.com/"), None)));
        assert!(!provider.uses_own_key(&to(Some("https://elsewhere.example"), None)));
        assert!(!provider.uses_own_key(&to(None, Some("sk-2"))));
    }

    #[test]
    fn every_built_in_provider_can_be_created_and_has_a_price_or_none() {
        for built_in in BUILT_IN_PROVIDERS {
            let provider = Provider::built_in(built_in.name).unwrap();
            assert_eq!(provider.base_url, built_in.base_url);
            assert!(provider.key("sk-1").connect(&EndpointOverride::default()).is_ok(), "{}", built_in.name);
        }
        assert!(Provider::built_in("nobody").is_none());
        let claude = Anthropic::new("sk-1").connect(&EndpointOverride::default()).unwrap();
        assert!(claude.model_info("claude-sonnet-4-5").price.is_some());
    }

    #[test]
    fn key_is_not_printed() {
        let shown = format!("{:?}", Anthropic::new("sk-planted-key").model("m"));
        assert!(!shown.contains("planted"), "{shown}");
    }
}
