//! The built command against aimock, an independent server for the languages of the providers.
//!
//! aimock reads each request in its own way and keeps what it understood, in the shape of Chat Completions, in its
//! journal. Its Gemini replies end tool calls with the finish reason `FUNCTION_CALL`; the real service says `STOP`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod answers;
mod chaos;
mod kill;
mod secrets;

use std::path::{Path, PathBuf};

use brigade_outer_tests::{Format, TestEnv};
use serde_json::Value;

/// A file of fixtures beside these tests.
fn fixtures(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// A place whose model is `it/small`, a provider of this format at this address.
fn test_env(format: &Format, address: &str) -> TestEnv {
    TestEnv::new(&format!("model = 'it/small'\n{}", format.provider("it", address)))
}

/// The messages of a request in the shape of Chat Completions.
fn messages(request: &Value) -> Vec<&Value> {
    request["messages"].as_array().into_iter().flatten().collect()
}

/// The text of a message, whether it stands alone or in parts.
fn text(message: &Value) -> String {
    match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}
