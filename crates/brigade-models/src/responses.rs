//! Adapter for the OpenAI Responses API and compatible servers.

mod items;
pub(super) mod reply;
mod request;

use futures::stream::BoxStream;
use hyper::header;

use super::http::{self, Endpoint, RequestBuilder};
use super::quirks::Dialect;
use super::tool_cache::ToolCache;
use super::{Chunk, Model, ModelError, ModelInfo, Request};

/// A provider with the Responses API. Nothing is stored there: every request contains the whole conversation.
///
/// ```
/// use brigade_models::Endpoint;
/// use brigade_models::responses::Responses;
///
/// # fn main() -> Result<(), brigade_models::EndpointError> {
/// let local = Responses::compatible(Endpoint::new("local", "http://127.0.0.1:8080/v1", None)?);
/// let models = brigade_base::model::Models::default().with("local", local);
/// assert!(models.choose("local/small").is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Responses {
    endpoint: Endpoint,
    dialect: Dialect,
    tool_cache: ToolCache,
}

impl Responses {
    /// Creates a client for OpenAI, or for a gateway that forwards to it.
    pub fn new(endpoint: Endpoint) -> Responses {
        Responses { endpoint, dialect: Dialect::OpenAi, tool_cache: ToolCache::default() }
    }

    /// Creates a client for a compatible server such as vLLM, llama.cpp or LM Studio.
    pub fn compatible(endpoint: Endpoint) -> Responses {
        Responses { endpoint, dialect: Dialect::Compatible, tool_cache: ToolCache::default() }
    }

    /// Builds the HTTP request and the decoder of its reply.
    pub(super) fn write(&self, request: &Request) -> serde_json::Result<(RequestBuilder, reply::Decoder)> {
        let body = request::body(request, self.dialect, self.endpoint.name(), &self.tool_cache)?;
        let decoder = reply::Decoder::new(self.endpoint.clone(), request.model.clone(), body.len());
        let post = self.endpoint.post("/responses", body);
        Ok((post.header(header::AUTHORIZATION, self.endpoint.key_header("Bearer ")), decoder))
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
