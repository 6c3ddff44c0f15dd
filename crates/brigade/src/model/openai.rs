//! OpenAI Chat Completions, and the many servers that speak them in their own way.

mod calls;
mod frame;
pub(super) mod reply;
mod request;
mod thought;

use futures::stream::BoxStream;
use reqwest::header;

use super::http::{self, Draft, Endpoint};
use super::written::Written;
use super::{About, Chunk, Model, ModelError, Request};

/// A provider that speaks Chat Completions.
///
/// ```
/// use brigade::model::Endpoint;
/// use brigade::model::openai::OpenAi;
///
/// # fn main() -> Result<(), brigade::model::EndpointError> {
/// let local = OpenAi::compatible(Endpoint::new("ollama", "http://127.0.0.1:11434/v1", None)?);
/// let models = brigade::Models::default().with("ollama", local);
/// assert!(models.choose("ollama/qwen3").is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct OpenAi {
    endpoint: Endpoint,
    dialect: Dialect,
    written: Written,
}

/// Which of the small differences count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// OpenAI itself: newer names of keys.
    Own,
    /// Everybody else: the names that all of them know.
    Compatible,
}

impl OpenAi {
    /// OpenAI itself, or a gateway that passes requests on to it.
    pub fn new(endpoint: Endpoint) -> OpenAi {
        OpenAi { endpoint, dialect: Dialect::Own, written: Written::default() }
    }

    /// Another server that speaks Chat Completions, such as Ollama, vLLM, llama.cpp, OpenRouter, DeepSeek or Groq.
    pub fn compatible(endpoint: Endpoint) -> OpenAi {
        OpenAi { endpoint, dialect: Dialect::Compatible, written: Written::default() }
    }

    /// A request as it is sent, and who reads its reply.
    pub(super) fn write(&self, request: &Request) -> serde_json::Result<(Draft, reply::Decoder)> {
        let body = request::body(request, self.dialect, self.endpoint.name(), &self.written)?;
        let decoder = reply::Decoder::new(self.endpoint.clone(), body.len(), request::has_calls(request));
        let mut post = self.endpoint.post("/chat/completions", body);
        if let Some(key) = self.endpoint.key_header("Bearer ") {
            post = post.header(header::AUTHORIZATION, key);
        }
        Ok((post, decoder))
    }
}

impl Model for OpenAi {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let (model, bytes) = (self.clone(), self.written.bytes(&request));
        http::converse(&self.endpoint, bytes, move || model.write(&request))
    }

    fn about(&self, model: &str) -> About {
        self.endpoint.about(model)
    }
}
