//! Adapter for the OpenAI Chat Completions API and the many compatible servers.

mod calls;
mod event_template;
pub(super) mod reply;
mod request;
mod thought;

use futures::stream::BoxStream;
use hyper::header;

use super::http::{self, Endpoint, RequestBuilder};
use super::quirks::Dialect;
use super::tool_cache::ToolCache;
use super::{Chunk, Model, ModelError, ModelInfo, Request};

/// A provider with the Chat Completions API.
///
/// ```
/// use brigade_models::Endpoint;
/// use brigade_models::openai::OpenAi;
///
/// # fn main() -> Result<(), brigade_models::EndpointError> {
/// let local = OpenAi::compatible(Endpoint::new("ollama", "http://127.0.0.1:11434/v1", None)?);
/// let models = brigade_base::model::Models::default().with("ollama", local);
/// assert!(models.choose("ollama/qwen3").is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct OpenAi {
    endpoint: Endpoint,
    dialect: Dialect,
    tool_cache: ToolCache,
}

impl OpenAi {
    /// Creates a client for OpenAI, or for a gateway that forwards to it.
    pub fn new(endpoint: Endpoint) -> OpenAi {
        OpenAi { endpoint, dialect: Dialect::OpenAi, tool_cache: ToolCache::default() }
    }

    /// Creates a client for a compatible server such as Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek or
    /// Groq.
    pub fn compatible(endpoint: Endpoint) -> OpenAi {
        OpenAi { endpoint, dialect: Dialect::Compatible, tool_cache: ToolCache::default() }
    }

    /// Builds the HTTP request and the decoder of its reply.
    pub(super) fn write(&self, request: &Request) -> serde_json::Result<(RequestBuilder, reply::Decoder)> {
        let body = request::body(request, self.dialect, self.endpoint.name(), &self.tool_cache)?;
        let decoder = reply::Decoder::new(self.endpoint.clone(), body.len(), request::has_calls(request));
        let post = self.endpoint.post("/chat/completions", body);
        Ok((post.header(header::AUTHORIZATION, self.endpoint.key_header("Bearer ")), decoder))
    }
}

impl Model for OpenAi {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let (model, bytes) = (self.clone(), self.tool_cache.bytes(&request));
        http::stream_reply(&self.endpoint, bytes, move || model.write(&request))
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.endpoint.model_info(model)
    }
}
