//! Table of the built-in providers, and a type for each.

use super::Provider;
use super::ProviderApi::{self, ChatCompletions, Responses};

/// Defaults of a built-in provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltInProvider {
    /// Name, the first part of the names of its models.
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

const OPENAI_URL: &str = "https://api.openai.com/v1";
const OPENAI_KEY: Option<&str> = Some("OPENAI_API_KEY");

pub(super) const OPENAI: BuiltInProvider =
    BuiltInProvider::new("openai", ChatCompletions, OPENAI_URL, OPENAI_KEY);
const OPENAI_RESPONSES: BuiltInProvider =
    BuiltInProvider::new("openai-responses", Responses, OPENAI_URL, OPENAI_KEY);
const ANTHROPIC: BuiltInProvider = BuiltInProvider::new(
    "anthropic",
    ProviderApi::Messages,
    "https://api.anthropic.com",
    Some("ANTHROPIC_API_KEY"),
);
const GEMINI: BuiltInProvider = BuiltInProvider::new(
    "gemini",
    ProviderApi::Gemini,
    "https://generativelanguage.googleapis.com/v1beta",
    Some("GEMINI_API_KEY"),
);
const OPENROUTER: BuiltInProvider = BuiltInProvider::new(
    "openrouter",
    ChatCompletions,
    "https://openrouter.ai/api/v1",
    Some("OPENROUTER_API_KEY"),
);
const DEEPSEEK: BuiltInProvider = BuiltInProvider::new(
    "deepseek",
    ChatCompletions,
    "https://api.deepseek.com/v1",
    Some("DEEPSEEK_API_KEY"),
);
const GROQ: BuiltInProvider =
    BuiltInProvider::new("groq", ChatCompletions, "https://api.groq.com/openai/v1", Some("GROQ_API_KEY"));
const OLLAMA: BuiltInProvider =
    BuiltInProvider::new("ollama", ChatCompletions, "http://127.0.0.1:11434/v1", None);
const LM_STUDIO: BuiltInProvider =
    BuiltInProvider::new("lmstudio", ChatCompletions, "http://127.0.0.1:1234/v1", None);
const LLAMA_CPP: BuiltInProvider =
    BuiltInProvider::new("llamacpp", ChatCompletions, "http://127.0.0.1:8080/v1", None);
const VLLM: BuiltInProvider = BuiltInProvider::new("vllm", ChatCompletions, "http://127.0.0.1:8000/v1", None);

/// All built-in providers.
pub const BUILT_IN_PROVIDERS: [BuiltInProvider; 11] = [
    OPENAI,
    OPENAI_RESPONSES,
    ANTHROPIC,
    GEMINI,
    OPENROUTER,
    DEEPSEEK,
    GROQ,
    OLLAMA,
    LM_STUDIO,
    LLAMA_CPP,
    VLLM,
];

/// Defines a type whose `new` creates a built-in provider.
macro_rules! built_in_provider {
    ($(#[$doc:meta])* $type:ident, $built_in:ident, key) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $type {}

        impl $type {
            /// Creates the provider with an API key.
            #[expect(clippy::new_ret_no_self, reason = "all providers have the same options")]
            pub fn new(key: impl Into<String>) -> Provider {
                $built_in.provider().key(key)
            }
        }
    };
    ($(#[$doc:meta])* $type:ident, $built_in:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $type {}

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
    /// Anthropic, over the Messages API.
    Anthropic, ANTHROPIC, key
);
built_in_provider!(
    /// OpenAI, over the Chat Completions API.
    OpenAi, OPENAI, key
);
built_in_provider!(
    /// OpenAI, over the Responses API.
    OpenAiResponses, OPENAI_RESPONSES, key
);
built_in_provider!(
    /// Google's Gemini API.
    Gemini, GEMINI, key
);
built_in_provider!(
    /// OpenRouter. Its models are named `vendor/model`.
    OpenRouter, OPENROUTER, key
);
built_in_provider!(
    /// DeepSeek.
    DeepSeek, DEEPSEEK, key
);
built_in_provider!(
    /// Groq.
    Groq, GROQ, key
);
built_in_provider!(
    /// Ollama on this machine.
    Ollama, OLLAMA
);
built_in_provider!(
    /// LM Studio on this machine.
    LmStudio, LM_STUDIO
);
built_in_provider!(
    /// The server of llama.cpp on this machine.
    LlamaCpp, LLAMA_CPP
);
built_in_provider!(
    /// vLLM on this machine.
    Vllm, VLLM
);

/// Any other server with the Chat Completions API.
#[derive(Debug, Clone, Copy)]
pub enum OpenAiCompatible {}

impl OpenAiCompatible {
    /// Name of the provider, unless [`Provider::name`] sets another.
    pub const NAME: &'static str = "openai-compatible";

    /// Creates the provider at this base URL, such as `https://host/v1`. [`Provider::key`] sets its key.
    #[expect(clippy::new_ret_no_self, reason = "all providers have the same options")]
    pub fn new(base_url: impl Into<String>) -> Provider {
        Provider::new(OpenAiCompatible::NAME, ChatCompletions, base_url)
    }
}
