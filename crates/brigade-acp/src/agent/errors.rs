//! JSON-RPC errors. The cause is in `message`, because that is the field that clients show.

use agent_client_protocol_schema::v1::Error;
use brigade::{RunError, StoreError};
use brigade_core::{SessionId, text};
use serde_json::json;

/// Maximum length of an invalid id in a message.
const MAX_ID_BYTES: usize = 80;

/// Invalid request: the message is malformed or not allowed in the current state.
pub(super) fn request(message: impl Into<String>) -> Error {
    Error::new(-32600, message)
}

/// Unknown method.
pub(super) fn method(name: &str) -> Error {
    Error::new(-32601, format!("unknown method {name}"))
}

/// Invalid parameters.
pub(super) fn params(message: impl Into<String>) -> Error {
    Error::new(-32602, message)
}

/// Internal error: the operation failed.
pub(super) fn failed(message: impl Into<String>) -> Error {
    Error::new(-32603, message)
}

/// Unknown session.
pub(super) fn session(id: &str) -> Error {
    let id = text::truncate_bytes(id, MAX_ID_BYTES);
    Error::new(-32002, format!("unknown session '{id}'")).data(json!({ "sessionId": id }))
}

/// Error of a run that could not start or resume.
pub(super) fn run(error: &RunError) -> Error {
    match error {
        RunError::EmptyTask => params("the prompt is empty"),
        RunError::Passthrough(_) => request(error.to_string()),
        RunError::Store(StoreError::UnknownSession(id)) => session(id.as_str()),
        RunError::Store(StoreError::Held { .. }) => request(format!("{error}. Cancel it first.")),
        _ => failed(error.to_string()),
    }
}

/// Parses the session id that a client sent.
pub(super) fn parse_session_id(id: &str) -> Result<SessionId, Error> {
    id.parse().map_err(|_| session(id))
}
