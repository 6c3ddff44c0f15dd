//! Table of the built-in providers, and a type for each.

use super::Provider;
use super::ProviderApi;

/// Defaults of a built-in provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltInProvider {
    /// Name: the part of a model name before the first `/`.
    pub name: &'static str,
    /// API.
    pub api: ProviderApi,
    /// Base URL.
    pub base_url: &'static str,
    /// Environment variable that contains its key by convention, if it needs one. The library does not read it.
    pub key_variable: Option<&'static str>,
}

impl BuiltInProvider {
    const fn new(
        name: &'static str,
        api: ProviderApi,
        base_url: &'static str,
        key_variable: Option<&'static str>,
    ) -> BuiltInProvider {
        BuiltInProvider { name, api, base_url, key_variable }
    }

    /// Returns the provider, without a key.
    pub fn provider(&self) -> Provider {
        Provider::new(self.name, self.api, self.base_url)
    }
}

#[cfg(feature = "openai")]
const OPENAI_URL: &str = "https://api.openai.com/v1";
#[cfg(feature = "openai")]
const OPENAI_KEY: Option<&str> = Some("OPENAI_API_KEY");

#[cfg(feature = "openai")]
pub(super) const OPENAI: BuiltInProvider =
    BuiltInProvider::new("openai", ProviderApi::ChatCompletions, OPENAI_URL, OPENAI_KEY);
#[cfg(feature = "openai")]
const OPENAI_RESPONSES: BuiltInProvider =
    BuiltInProvider::new("openai-responses", ProviderApi::Responses, OPENAI_URL, OPENAI_KEY);
#[cfg(feature = "anthropic")]
const ANTHROPIC: BuiltInProvider = BuiltInProvider::new(
    "anthropic",
    ProviderApi::Messages,
    "https://api.anthropic.com",
    Some("ANTHROPIC_API_KEY"),
);
#[cfg(feature = "gemini")]
const GEMINI: BuiltInProvider = BuiltInProvider::new(
    "gemini",
    ProviderApi::Gemini,
    "https://generativelanguage.googleapis.com/v1beta",
    Some("GEMINI_API_KEY"),
);
#[cfg(feature = "openai")]
const OPENROUTER: BuiltInProvider = BuiltInProvider::new(
    "openrouter",
    ProviderApi::ChatCompletions,
    "https://openrouter.ai/api/v1",
    Some("OPENROUTER_API_KEY"),
);
#[cfg(feature = "openai")]
const DEEPSEEK: BuiltInProvider = BuiltInProvider::new(
    "deepseek",
    ProviderApi::ChatCompletions,
    "https://api.deepseek.com/v1",
    Some("DEEPSEEK_API_KEY"),
);
#[cfg(feature = "openai")]
const GROQ: BuiltInProvider = BuiltInProvider::new(
    "groq",
    ProviderApi::ChatCompletions,
    "https://api.groq.com/openai/v1",
    Some("GROQ_API_KEY"),
);
#[cfg(feature = "openai")]
const OLLAMA: BuiltInProvider =
    BuiltInProvider::new("ollama", ProviderApi::ChatCompletions, "http://127.0.0.1:11434/v1", None);
#[cfg(feature = "openai")]
const LM_STUDIO: BuiltInProvider =
    BuiltInProvider::new("lmstudio", ProviderApi::ChatCompletions, "http://127.0.0.1:1234/v1", None);
#[cfg(feature = "openai")]
const LLAMA_CPP: BuiltInProvider =
    BuiltInProvider::new("llamacpp", ProviderApi::ChatCompletions, "http://127.0.0.1:8080/v1", None);
#[cfg(feature = "openai")]
const VLLM: BuiltInProvider =
    BuiltInProvider::new("vllm", ProviderApi::ChatCompletions, "http://127.0.0.1:8000/v1", None);

/// All built-in providers.
pub const BUILT_IN_PROVIDERS: &[BuiltInProvider] = &[
    #[cfg(feature = "openai")]
    OPENAI,
    #[cfg(feature = "openai")]
    OPENAI_RESPONSES,
    #[cfg(feature = "anthropic")]
    ANTHROPIC,
    #[cfg(feature = "gemini")]
    GEMINI,
    #[cfg(feature = "openai")]
    OPENROUTER,
    #[cfg(feature = "openai")]
    DEEPSEEK,
    #[cfg(feature = "openai")]
    GROQ,
    #[cfg(feature = "openai")]
    OLLAMA,
    #[cfg(feature = "openai")]
    LM_STUDIO,
    #[cfg(feature = "openai")]
    LLAMA_CPP,
    #[cfg(feature = "openai")]
    VLLM,
];

/// Defines a type whose `new` creates a built-in provider, if the feature of its API is on.
macro_rules! built_in_provider {
    ($feature:literal, $(#[$doc:meta])* $type:ident, $built_in:ident, key) => {
        #[cfg(feature = $feature)]
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $type {}

        #[cfg(feature = $feature)]
        impl $type {
            /// Creates the provider with an API key.
            #[expect(clippy::new_ret_no_self, reason = "all providers have the same options")]
            pub fn new(key: impl Into<String>) -> Provider {
                $built_in.provider().key(key)
            }
        }
    };
    ($feature:literal, $(#[$doc:meta])* $type:ident, $built_in:ident) => {
        #[cfg(feature = $feature)]
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $type {}

        #[cfg(feature = $feature)]
        impl $type {
            /// Creates the provider at its default port on this machine.
            #[expect(clippy::new_ret_no_self, reason = "all providers have the same options")]
            pub fn new() -> Provider {
                $built_in.provider()
            }
        }
    };
}

built_in_provider!(
    "anthropic",
    /// Anthropic, over the Messages API.
    Anthropic, ANTHROPIC, key
);
built_in_provider!(
    "openai",
    /// OpenAI, over the Chat Completions API.
    OpenAi, OPENAI, key
);
built_in_provider!(
    "openai",
    /// OpenAI, over the Responses API.
    OpenAiResponses, OPENAI_RESPONSES, key
);
built_in_provider!(
    "gemini",
    /// Google's Gemini API.
    Gemini, GEMINI, key
);
built_in_provider!(
    "openai",
    /// OpenRouter. Its models are named `vendor/model`.
    OpenRouter, OPENROUTER, key
);
built_in_provider!(
    "openai",
    /// DeepSeek.
    DeepSeek, DEEPSEEK, key
);
built_in_provider!(
    "openai",
    /// Groq.
    Groq, GROQ, key
);
built_in_provider!(
    "openai",
    /// Ollama on this machine.
    Ollama, OLLAMA
);
built_in_provider!(
    "openai",
    /// LM Studio on this machine.
    LmStudio, LM_STUDIO
);
built_in_provider!(
    "openai",
    /// The server of llama.cpp on this machine.
    LlamaCpp, LLAMA_CPP
);
built_in_provider!(
    "openai",
    /// vLLM on this machine.
    Vllm, VLLM
);

/// Any other server with the Chat Completions API.
#[cfg(feature = "openai")]
#[derive(Debug, Clone, Copy)]
pub enum OpenAiCompatible {}

#[cfg(feature = "openai")]
impl OpenAiCompatible {
    /// Name of the provider, unless [`Provider::name`] sets another.
    pub const NAME: &'static str = "openai-compatible";

    /// Creates the provider at this base URL, such as `https://host/v1`. [`Provider::key`] sets its key.
    #[expect(clippy::new_ret_no_self, reason = "all providers have the same options")]
    pub fn new(base_url: impl Into<String>) -> Provider {
        Provider::new(OpenAiCompatible::NAME, ProviderApi::ChatCompletions, base_url)
    }
}
