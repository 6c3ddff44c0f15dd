//! Listing the models of a provider.

use std::collections::BTreeMap;

use futures::future::join_all;
use hyper::header::{self, HeaderValue};
use serde_json::Value;

use super::ModelError;
use super::http::{self, Endpoint, FetchError};

/// Maximum size of a model list.
const MAX_LIST_BYTES: usize = 16 << 20;
/// Version of Anthropic's API.
pub(super) const ANTHROPIC_VERSION: &str = "2023-06-01";
/// Longer names are skipped.
const MAX_NAME_BYTES: usize = 256;
/// Keys under which servers report the context window.
const CONTEXT_WINDOW_KEYS: [&str; 5] =
    ["context_length", "context_window", "max_model_len", "max_input_tokens", "inputTokenLimit"];

/// The API used to list a provider's models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's API, which most servers support.
    OpenAi,
    /// Anthropic's API.
    Anthropic,
    /// Gemini's API.
    Gemini,
}

/// A model in a provider's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// The model's name at the provider. It is untrusted text: sanitize it before display.
    pub name: String,
    /// The context window, if the provider reports it.
    pub window: Option<u64>,
}

/// Reasons why a model list is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The server cannot be reached.
    #[error("{0}")]
    Unreachable(ModelError),
    /// The server answered, but not with a model list.
    #[error("{0}")]
    Failed(ModelError),
}

/// Lists a provider's models, sorted by name. The endpoint's timeouts apply.
pub async fn list(endpoint: &Endpoint, api: Api) -> Result<Vec<ListedModel>, ListError> {
    let key = |prefix| endpoint.key_header(prefix);
    let (path, header, key) = match api {
        Api::OpenAi => ("/models", header::AUTHORIZATION.as_str(), key("Bearer ")),
        Api::Anthropic if endpoint.ends_with("/v1") => ("/models?limit=1000", "x-api-key", key("")),
        Api::Anthropic => ("/v1/models?limit=1000", "x-api-key", key("")),
        Api::Gemini if endpoint.has_version() => ("/models?pageSize=1000", "x-goog-api-key", key("")),
        Api::Gemini => ("/v1beta/models?pageSize=1000", "x-goog-api-key", key("")),
    };
    let mut request = endpoint.get(path);
    if api == Api::Anthropic {
        request = request.header("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
    }
    if let Some(key) = key {
        request = request.header(header, key);
    }
    let body = http::fetch(endpoint, request, MAX_LIST_BYTES).await.map_err(|error| match error {
        FetchError::Unreachable(error) => ListError::Unreachable(error),
        FetchError::Failed(error) => ListError::Failed(error),
    })?;
    read(&body).ok_or_else(|| ListError::Failed(http::invalid_reply(endpoint, "it is not a list of models")))
}

/// Lists the models of several providers at once. The results are in the order of `endpoints`.
pub async fn list_all(endpoints: &[(Endpoint, Api)]) -> Vec<Result<Vec<ListedModel>, ListError>> {
    join_all(endpoints.iter().map(|(endpoint, api)| list(endpoint, *api))).await
}

/// Parses a model list of any provider. The result is sorted and has no duplicates.
fn read(body: &[u8]) -> Option<Vec<ListedModel>> {
    let whole: Value = serde_json::from_slice(body).ok()?;
    let entries = match &whole {
        Value::Array(entries) => entries,
        // Ollama returns null if it has no models.
        _ if whole.get("data").is_some_and(Value::is_null) => return Some(Vec::new()),
        _ => whole.get("data").or_else(|| whole.get("models"))?.as_array()?,
    };
    let mut found = BTreeMap::new();
    for entry in entries {
        let name = ["id", "name"].iter().find_map(|key| entry.get(key)?.as_str());
        let name = name.map(|name| name.strip_prefix("models/").unwrap_or(name));
        let Some(name) = name.filter(|name| !name.is_empty() && name.len() <= MAX_NAME_BYTES) else {
            continue;
        };
        let window =
            CONTEXT_WINDOW_KEYS.iter().find_map(|key| entry.get(key)?.as_u64()).filter(|window| *window > 0);
        found.insert(name.to_owned(), window);
    }
    Some(found.into_iter().map(|(name, window)| ListedModel { name, window }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(body: &str) -> Option<Vec<String>> {
        Some(read(body.as_bytes())?.into_iter().map(|listed| listed.name).collect())
    }

    #[test]
    fn model_lists_of_all_apis_are_parsed() {
        assert_eq!(
            names(r#"{"object":"list","data":[{"id":"b"},{"id":"a"},{"id":"b"}]}"#).unwrap(),
            ["a", "b"]
        );
        assert_eq!(
            names(r#"{"data":[{"type":"model","id":"claude-x"}],"has_more":false}"#).unwrap(),
            ["claude-x"]
        );
        assert_eq!(names(r#"{"models":[{"name":"models/gemini-x"}]}"#).unwrap(), ["gemini-x"]);
        assert_eq!(names(r#"[{"id":"together/x"}]"#).unwrap(), ["together/x"]);
        assert_eq!(names(r#"{"object":"list","data":null}"#).unwrap(), [""; 0]);
    }

    #[test]
    fn context_windows_are_parsed_if_present() {
        let body = r#"{"data":[{"id":"a","context_length":4096},{"id":"b","max_model_len":0},{"id":"c","context_length":"x"}]}"#;
        let windows: Vec<_> =
            read(body.as_bytes()).unwrap().into_iter().map(|listed| listed.window).collect();
        assert_eq!(windows, [Some(4096), None, None]);
    }

    #[test]
    fn other_json_is_not_a_model_list() {
        for wrong in ["", "null", "{}", r#"{"data":{}}"#, r#"{"error":"x"}"#, "<html>", r#"{"data":"x"}"#] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
        let long = "x".repeat(300);
        let body =
            format!(r#"{{"data":[1,null,{{}},{{"id":7}},{{"id":""}},{{"id":"{long}"}},{{"id":"a"}}]}}"#);
        assert_eq!(names(&body).unwrap(), ["a"]);
    }
}
