//! The built command against aimock, an independent mock of the provider APIs.
//!
//! aimock parses each request itself and keeps the result in its journal, in Chat Completions format. Its
//! Gemini replies end tool calls with the finish reason `FUNCTION_CALL`. The real service sends `STOP`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod answers;
mod chaos;
mod kill;
mod secrets;

use std::path::{Path, PathBuf};

use brigade_outer_tests::{Format, TestEnv};
use serde_json::Value;

/// A fixture file next to these tests.
fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// An environment whose model is `it/small`, from a provider with this format at this address.
fn test_env(format: &Format, address: &str) -> TestEnv {
    TestEnv::new(&format!("model = 'it/small'\n{}", format.provider("it", address)))
}

/// The messages of a request in Chat Completions format.
fn messages(request: &Value) -> Vec<&Value> {
    request["messages"].as_array().into_iter().flatten().collect()
}

/// The text of a message, whether it is a string or a list of parts.
fn text(message: &Value) -> String {
    match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}
