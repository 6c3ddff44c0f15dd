//! What is answered where something cannot be done. The words stand in the message, which is what clients show.

use agent_client_protocol::v1::schema::Error;
use brigade::{RunError, StoreError};
use brigade_core::{SessionId, text};
use serde_json::json;

/// How much of an id that is none is shown.
const MAX_ID_BYTES: usize = 80;

/// The message makes no sense now.
pub(super) fn request(message: impl Into<String>) -> Error {
    Error::new(-32600, message)
}

/// There is no such method.
pub(super) fn method(name: &str) -> Error {
    Error::new(-32601, format!("there is no method {name}"))
}

/// The parameters are not as they have to be.
pub(super) fn params(message: impl Into<String>) -> Error {
    Error::new(-32602, message)
}

/// It went wrong on the way.
pub(super) fn failed(message: impl Into<String>) -> Error {
    Error::new(-32603, message)
}

/// There is no such session.
pub(super) fn session(id: &str) -> Error {
    let id = text::truncate_bytes(id, MAX_ID_BYTES);
    Error::new(-32002, format!("there is no session '{id}'")).data(json!({ "sessionId": id }))
}

/// A run could not begin or go on.
pub(super) fn run(error: &RunError) -> Error {
    match error {
        RunError::EmptyTask => params("the prompt is empty; say what is to be done"),
        RunError::Passthrough(_) => request(error.to_string()),
        RunError::Store(StoreError::UnknownSession(id)) => session(id.as_str()),
        RunError::Store(StoreError::Held { .. }) => request(format!(
            "{error}. It hears what you said before its next turn; to follow it, wait for its end and load the session"
        )),
        _ => failed(error.to_string()),
    }
}

/// The id of a session as the client wrote it.
pub(super) fn parse_session_id(id: &str) -> Result<SessionId, Error> {
    id.parse().map_err(|_| session(id))
}
