//! OpenAI Responses, and the servers that speak them too.

mod items;
pub(super) mod reply;
mod request;

use futures::stream::BoxStream;
use reqwest::header;

use super::http::{self, Endpoint, RequestBuilder};
use super::tool_cache::ToolCache;
use super::{Chunk, Model, ModelError, ModelInfo, Request};

/// A provider that speaks Responses. Nothing is stored there: every request says everything.
///
/// ```
/// use brigade::model::Endpoint;
/// use brigade::model::responses::Responses;
///
/// # fn main() -> Result<(), brigade::model::EndpointError> {
/// let local = Responses::compatible(Endpoint::new("local", "http://127.0.0.1:8080/v1", None)?);
/// let models = brigade::Models::default().with("local", local);
/// assert!(models.choose("local/small").is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Responses {
    endpoint: Endpoint,
    dialect: Dialect,
    tool_cache: ToolCache,
}

/// Which of the small differences count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// OpenAI itself: sealed reasoning, and a key for its cache.
    OpenAi,
    /// Everybody else: what all of them know.
    Compatible,
}

impl Responses {
    /// OpenAI itself, or a gateway that passes requests on to it.
    pub fn new(endpoint: Endpoint) -> Responses {
        Responses { endpoint, dialect: Dialect::OpenAi, tool_cache: ToolCache::default() }
    }

    /// Another server that speaks Responses, such as vLLM, llama.cpp or LM Studio.
    pub fn compatible(endpoint: Endpoint) -> Responses {
        Responses { endpoint, dialect: Dialect::Compatible, tool_cache: ToolCache::default() }
    }

    /// A request as it is sent, and who reads its reply.
    pub(super) fn write(&self, request: &Request) -> serde_json::Result<(RequestBuilder, reply::Decoder)> {
        let body = request::body(request, self.dialect, self.endpoint.name(), &self.tool_cache)?;
        let decoder = reply::Decoder::new(self.endpoint.clone(), request.model.clone(), body.len());
        let mut post = self.endpoint.post("/responses", body);
        if let Some(key) = self.endpoint.key_header("Bearer ") {
            post = post.header(header::AUTHORIZATION, key);
        }
        Ok((post, decoder))
    }
}

impl Model for Responses {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let (model, bytes) = (self.clone(), self.tool_cache.bytes(&request));
        http::stream_reply(&self.endpoint, bytes, move || model.write(&request))
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.endpoint.model_info(model)
    }
}
