//! Adapter for the Anthropic Messages API.

pub(super) mod reply;
mod request;

use futures::stream::BoxStream;
use hyper::header::HeaderValue;

use super::http::{self, Endpoint, RequestBuilder};
use super::list::ANTHROPIC_VERSION;
use super::tool_cache::ToolCache;
use super::{Chunk, Model, ModelError, ModelInfo, Request};

/// A provider with the Anthropic Messages API.
///
/// ```
/// use brigade_models::Endpoint;
/// use brigade_models::anthropic::Anthropic;
///
/// # fn main() -> Result<(), brigade_models::EndpointError> {
/// let local = Anthropic::new(Endpoint::new("mine", "http://127.0.0.1:8080", None)?);
/// let models = brigade_base::model::Models::default().with("mine", local);
/// assert!(models.choose("mine/small").is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Anthropic {
    endpoint: Endpoint,
    tool_cache: ToolCache,
}

impl Anthropic {
    /// Creates a client for Anthropic or a compatible server. The base URL may end with `/v1` or not.
    pub fn new(endpoint: Endpoint) -> Anthropic {
        Anthropic { endpoint, tool_cache: ToolCache::default() }
    }

    /// Builds the HTTP request and the decoder of its reply.
    pub(super) fn write(&self, request: &Request) -> serde_json::Result<(RequestBuilder, reply::Decoder)> {
        let body = request::body(request, self.endpoint.name(), &self.tool_cache)?;
        let decoder = reply::Decoder::new(self.endpoint.clone(), body.len());
        let path = if self.endpoint.ends_with("/v1") { "/messages" } else { "/v1/messages" };
        let mut post = self
            .endpoint
            .post(path, body)
            .header("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
        if let Some(key) = self.endpoint.key_header("") {
            post = post.header("x-api-key", key);
        }
        Ok((post, decoder))
    }
}

impl Model for Anthropic {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let (model, bytes) = (self.clone(), self.tool_cache.bytes(&request));
        http::stream_reply(&self.endpoint, bytes, move || model.write(&request))
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.endpoint.model_info(model)
    }
}
