//! Adapter for the Google Gemini API.

pub(super) mod reply;
mod request;

use futures::stream::BoxStream;

use super::http::{self, Endpoint, RequestBuilder};
use super::tool_cache::ToolCache;
use super::{Chunk, Model, ModelError, ModelInfo, Request};

/// Model collections. A name without one refers to a base model.
const COLLECTIONS: [&str; 2] = ["models", "tunedModels"];

/// A provider with the Gemini API.
///
/// ```
/// use brigade_models::Endpoint;
/// use brigade_models::gemini::Gemini;
///
/// # fn main() -> Result<(), brigade_models::EndpointError> {
/// let local = Gemini::new(Endpoint::new("mine", "http://127.0.0.1:8080/v1beta", None)?);
/// let models = brigade_base::model::Models::default().with("mine", local);
/// assert!(models.choose("mine/small").is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Gemini {
    endpoint: Endpoint,
    tool_cache: ToolCache,
}

impl Gemini {
    /// Creates a client for Gemini or a compatible server. If the base URL has no version, `/v1beta` is used.
    pub fn new(endpoint: Endpoint) -> Gemini {
        Gemini { endpoint, tool_cache: ToolCache::default() }
    }

    /// Builds the HTTP request and the decoder of its reply.
    pub(super) fn write(&self, request: &Request) -> serde_json::Result<(RequestBuilder, reply::Decoder)> {
        let body = request::body(request, self.endpoint.name(), &self.tool_cache)?;
        let version = if self.endpoint.has_version() { "" } else { "/v1beta" };
        let path = format!("{version}{}", path(&request.model));
        let decoder = reply::Decoder::new(self.endpoint.clone(), request.model.clone(), body.len());
        let post = self.endpoint.post(&path, body);
        Ok((post.header("x-goog-api-key", self.endpoint.key_header("")), decoder))
    }
}

impl Model for Gemini {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let (model, bytes) = (self.clone(), self.tool_cache.bytes(&request));
        http::stream_reply(&self.endpoint, bytes, move || model.write(&request))
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.endpoint.model_info(model)
    }
}

/// Returns the path of a model's endpoint. A model name cannot escape its collection.
fn path(model: &str) -> String {
    let (collection, name) = split_collection(model);
    format!("/{collection}/{}:streamGenerateContent?alt=sse", percent_encode(name))
}

/// Splits a model name into its collection and its name there.
fn split_collection(model: &str) -> (&str, &str) {
    let named = model.split_once('/').filter(|(collection, _)| COLLECTIONS.contains(collection));
    named.unwrap_or(("models", model))
}

fn percent_encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'~' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_names_are_escaped_in_the_path() {
        let at = |model: &str| path(model).replace(":streamGenerateContent?alt=sse", "");
        assert_eq!(at("gemini-2.5-flash"), "/models/gemini-2.5-flash");
        assert_eq!(at("models/gemini-2.5-flash"), "/models/gemini-2.5-flash");
        assert_eq!(at("tunedModels/mine-7"), "/tunedModels/mine-7");
        assert_eq!(at("tunedModels/a/b"), "/tunedModels/a%2Fb");
        assert_eq!(at("../../v1/x?key=1#\u{fc} y"), "/models/..%2F..%2Fv1%2Fx%3Fkey%3D1%23%C3%BC%20y");
    }
}
