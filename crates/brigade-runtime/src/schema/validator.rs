//! Validation by the crate `jsonschema`.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::{Retrieve, Uri};
use serde_json::Value;

use super::SchemaError;

/// Maximum length of a validation error that the agent reads.
const MAX_CAUSE_CHARS: usize = 400;

/// A schema that is ready for use.
pub(super) struct Validator(jsonschema::Validator);

impl Validator {
    pub(super) fn new(schema: &Value) -> Result<Validator, SchemaError> {
        let retriever = NoRetriever::default();
        let wanted = retriever.wanted.clone();
        let built = jsonschema::options().with_retriever(retriever).build(schema).map_err(|error| {
            let remote = wanted.lock().unwrap_or_else(PoisonError::into_inner).take();
            remote.map_or_else(|| SchemaError::Invalid(error.to_string()), SchemaError::Remote)
        });
        built.map(Validator)
    }

    /// Returns the first difference from the schema.
    pub(super) fn error(&self, value: &Value) -> Option<String> {
        let error = self.0.iter_errors(value).next()?;
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { "the top level".to_owned() } else { place };
        let shown: String = error.to_string().chars().take(MAX_CAUSE_CHARS).collect();
        Some(format!("{shown} (at {place})"))
    }
}

/// Retriever that fetches nothing and records the requested document.
#[derive(Default)]
struct NoRetriever {
    wanted: Arc<Mutex<Option<String>>>,
}

impl Retrieve for NoRetriever {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(uri.as_str().to_owned());
        Err("references to other documents are not followed".into())
    }
}
