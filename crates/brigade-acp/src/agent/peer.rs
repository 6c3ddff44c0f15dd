//! JSON-RPC messages from and to the client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_client_protocol_schema::v1 as acp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::errors;

/// Maximum number of lines queued for a slow client. Further senders wait.
const MAX_QUEUED_LINES: usize = 256;

/// A message from the client.
pub(super) enum Incoming {
    /// A request, which expects a response.
    Request { id: acp::RequestId, method: String, params: Value },
    /// A notification, which expects none.
    Notification { method: String, params: Value },
    /// The response to one of our requests.
    Response { id: acp::RequestId, result: Result<Value, acp::Error> },
}

/// An invalid message: the id to respond to and the error.
pub(super) type InvalidMessage = Box<(acp::RequestId, acp::Error)>;

/// Parses a line.
pub(super) fn parse(line: &[u8]) -> Result<Incoming, InvalidMessage> {
    let no_id = acp::RequestId::Null;
    let value: Value = serde_json::from_slice(line).map_err(|error| {
        Box::new((no_id.clone(), acp::Error::new(-32700, format!("invalid JSON: {error}"))))
    })?;
    let Value::Object(mut message) = value else {
        return Err(Box::new((no_id, errors::request("a message must be a JSON object"))));
    };
    let id = match message.remove("id").map(serde_json::from_value::<acp::RequestId>) {
        None => None,
        Some(Ok(id)) => Some(id),
        Some(Err(_)) => {
            let message_text = "the `id` of a message must be a string or an integer";
            return Err(Box::new((no_id, errors::request(message_text))));
        }
    };
    let invalid = |message_text: &str| {
        Box::new((id.clone().unwrap_or(acp::RequestId::Null), errors::request(message_text)))
    };
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid("a message must contain `\"jsonrpc\": \"2.0\"`"));
    }
    let params = message.remove("params").unwrap_or_else(|| json!({}));
    match (message.remove("method"), id.clone()) {
        (Some(Value::String(method)), Some(id)) => Ok(Incoming::Request { id, method, params }),
        (Some(Value::String(method)), None) => Ok(Incoming::Notification { method, params }),
        (None, Some(id)) if message.contains_key("result") || message.contains_key("error") => {
            let result = match message.remove("error") {
                Some(error) => Err(serde_json::from_value(error)
                    .unwrap_or_else(|_| acp::Error::new(-32603, "malformed error object"))),
                None => Ok(message.remove("result").unwrap_or_default()),
            };
            Ok(Incoming::Response { id, result })
        }
        _ => Err(invalid("a message must have `method`, `result` or `error`")),
    }
}

/// Parses the parameters of a method.
pub(super) fn params<P: DeserializeOwned>(params: Value) -> Result<P, acp::Error> {
    serde_json::from_value(params).map_err(|error| errors::params(format!("invalid parameters: {error}")))
}

/// The sending side of the connection to the client.
#[derive(Clone)]
pub(super) struct Peer {
    lines: mpsc::Sender<String>,
    pending: Arc<Mutex<HashMap<i64, ResponseSender>>>,
    last_id: Arc<AtomicI64>,
    /// The time until which senders wait for the client to read. Unset until shutdown starts.
    send_deadline: watch::Sender<Option<Instant>>,
}

type ResponseSender = oneshot::Sender<Result<Value, acp::Error>>;

impl Peer {
    /// Creates a peer and the receiver of the lines to write to the client.
    pub(super) fn new() -> (Peer, mpsc::Receiver<String>) {
        let (lines, receiver) = mpsc::channel(MAX_QUEUED_LINES);
        let (pending, last_id, send_deadline) = (Arc::default(), Arc::default(), watch::Sender::new(None));
        (Peer { lines, pending, last_id, send_deadline }, receiver)
    }

    /// Limits the time that senders wait for a client that does not read. Messages left after that are
    /// dropped.
    pub(super) fn set_send_deadline(&self, time: Duration) {
        self.send_deadline.send_replace(Some(Instant::now() + time));
    }

    async fn send_deadline_passed(&self) {
        let mut send_deadline = self.send_deadline.subscribe();
        // This peer owns the sender, so the channel stays open.
        let until = send_deadline.wait_for(Option::is_some).await.ok().and_then(|until| *until);
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    /// Responds to a request.
    pub(super) async fn respond<R: Serialize>(&self, id: &acp::RequestId, result: Result<R, acp::Error>) {
        self.send(&response_message(id, result)).await;
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, method: &str, params: &impl Serialize) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// Sends a session update.
    pub(super) async fn update(&self, update: &acp::SessionNotification) {
        self.notify("session/update", update).await;
    }

    /// Sends a request to the client. Dropping the pending request cancels it.
    pub(super) async fn request(&self, method: &str, params: &impl Serialize) -> PendingRequest {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let pending_request = PendingRequest { peer: self.clone(), id, answer };
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        pending_request
    }

    /// Handles the response to one of our requests. The response to a cancelled request is ignored.
    pub(super) fn handle_response(&self, id: &acp::RequestId, result: Result<Value, acp::Error>) {
        let acp::RequestId::Number(id) = id else { return };
        let sender = self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(sender) = sender {
            let _ = sender.send(result);
        }
    }

    /// Sends a message. A failure means that the client has disconnected, which the reading side detects.
    async fn send(&self, message: &Value) {
        tokio::select! {
            biased;
            _ = self.lines.send(message.to_string()) => {}
            () = self.send_deadline_passed() => {}
        }
    }
}

fn response_message<R: Serialize>(id: &acp::RequestId, result: Result<R, acp::Error>) -> Value {
    let outgoing = result.and_then(|result| {
        serde_json::to_value(result).map_err(|error| acp::Error::new(-32603, error.to_string()))
    });
    match outgoing {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    }
}

/// A request that the client has not answered yet.
pub(super) struct PendingRequest {
    peer: Peer,
    id: i64,
    answer: oneshot::Receiver<Result<Value, acp::Error>>,
}

impl PendingRequest {
    pub(super) async fn answer(mut self) -> Result<Value, acp::Error> {
        match (&mut self.answer).await {
            Ok(result) => result,
            Err(_) => Err(errors::failed("the client has disconnected")),
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let waited = self.peer.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        if waited.is_some() {
            let withdrawn = acp::CancelRequestNotification::new(self.id);
            let method = acp::PROTOCOL_LEVEL_METHOD_NAMES.cancel_request;
            let message = json!({ "jsonrpc": "2.0", "method": method, "params": withdrawn });
            // A client that is far behind may miss this. Its response is then ignored.
            let _ = self.peer.lines.try_send(message.to_string());
        }
    }
}

/// Writes lines until all senders are dropped or the client stops reading.
pub(super) async fn write(mut lines: mpsc::Receiver<String>, mut writer: impl AsyncWrite + Unpin) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if writer.write_all(line.as_bytes()).await.is_err() {
            return;
        }
        if lines.is_empty() && writer.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &str) -> (acp::RequestId, i32) {
        match parse(line.as_bytes()) {
            Err(invalid) => (invalid.0, invalid.1.code.into()),
            Ok(_) => panic!("{line} is read"),
        }
    }

    #[test]
    fn invalid_messages_have_distinct_error_codes() {
        assert_eq!(code("{"), (acp::RequestId::Null, -32700));
        assert_eq!(code("[]"), (acp::RequestId::Null, -32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#), (acp::RequestId::Null, -32600));
        assert_eq!(code(r#"{"jsonrpc":"1.0","id":7,"method":"x"}"#), (acp::RequestId::Number(7), -32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":7}"#), (acp::RequestId::Number(7), -32600));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":7,"method":1}"#), (acp::RequestId::Number(7), -32600));
        assert_eq!(code(&format!("{}1", "[".repeat(100_000))), (acp::RequestId::Null, -32700));
    }

    #[tokio::test]
    async fn send_to_a_client_that_does_not_read_ends_at_the_deadline() {
        let ((peer, lines), nothing) = (Peer::new(), json!({}));
        for _ in 0..MAX_QUEUED_LINES {
            peer.notify("a", &nothing).await;
        }
        let more = peer.notify("b", &nothing);
        assert!(tokio::time::timeout(Duration::from_millis(50), more).await.is_err());
        peer.set_send_deadline(Duration::from_millis(1));
        let more = peer.notify("b", &nothing);
        tokio::time::timeout(Duration::from_secs(20), more).await.unwrap();
        assert_eq!(lines.len(), MAX_QUEUED_LINES);
    }

    #[tokio::test]
    async fn dropped_request_is_cancelled_and_its_late_answer_ignored() {
        let (peer, mut lines) = Peer::new();
        let first = peer.request("a", &json!({})).await;
        let second = peer.request("b", &json!({})).await;
        drop(first);
        peer.handle_response(&acp::RequestId::Number(0), Ok(json!("late")));
        peer.handle_response(&acp::RequestId::Number(1), Ok(json!("answer")));
        assert_eq!(second.answer().await.unwrap(), json!("answer"));
        drop(peer);
        let mut methods = Vec::new();
        while let Some(line) = lines.recv().await {
            let line: Value = serde_json::from_str(&line).unwrap();
            methods.push((line["method"].clone(), line["params"]["requestId"].clone()));
        }
        assert_eq!(
            methods,
            [(json!("a"), Value::Null), (json!("b"), Value::Null), (json!("$/cancel_request"), json!(0))]
        );
    }
}
