//! HTTP requests and responses of the test server.

use std::time::Duration;

use serde_json::Value;

use crate::wire::{ModelReply, WireFormat};

/// A request that the server received.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    /// Number of the request, from 0.
    pub number: usize,
    /// Request line and headers.
    pub head: String,
    /// Body, as far as it was received.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// Returns the path with its query.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns all values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    /// Returns the body as JSON, or null.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns head and body as text.
    pub fn text(&self) -> String {
        format!("{}\r\n\r\n{}", self.head, String::from_utf8_lossy(&self.body))
    }
}

/// A response of the server.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    pub(crate) delay: Duration,
    pub(crate) bytes: Vec<u8>,
    pub(crate) after: AfterResponse,
}

/// Use of the connection after a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AfterResponse {
    /// The connection is kept for the next request.
    Keep,
    /// The connection is closed.
    Close,
    /// The connection stays open, and nothing more is sent.
    Stall,
    /// The same bytes are sent again and again until the client disconnects.
    Repeat {
        /// Bytes that are sent each time.
        bytes: Vec<u8>,
        /// Pause before each time.
        pause: Duration,
    },
}

impl HttpResponse {
    /// Creates a complete response. `status` is the code with its reason, such as `200 OK`. The connection is kept.
    pub fn new(status: &str, body: impl AsRef<[u8]>) -> HttpResponse {
        HttpResponse::with_headers(status, "", body)
    }

    /// Creates a complete response with these header lines, each of which ends with `\r\n`.
    pub fn with_headers(status: &str, headers: &str, body: impl AsRef<[u8]>) -> HttpResponse {
        let body = body.as_ref();
        let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        HttpResponse { after: AfterResponse::Keep, ..HttpResponse::raw([head.as_bytes(), body].concat()) }
    }

    /// Creates a complete event stream.
    pub fn events(stream: &str) -> HttpResponse {
        HttpResponse::with_headers("200 OK", "Content-Type: text/event-stream\r\n", stream)
    }

    /// Creates the beginning of an event stream, after which the connection is closed.
    pub fn beginning(stream: &str) -> HttpResponse {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        HttpResponse::raw(format!("{head}{stream}"))
    }

    /// Creates the event stream of a reply in the format of the request, or a 404 if the path belongs to no format.
    pub fn reply(request: &HttpRequest, reply: &ModelReply) -> HttpResponse {
        match WireFormat::of(request) {
            Some(format) => HttpResponse::events(&format.stream(reply)),
            None => HttpResponse::new("404 Not Found", "{}"),
        }
    }

    /// Sends these bytes and closes the connection.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> HttpResponse {
        HttpResponse { delay: Duration::ZERO, bytes: bytes.into(), after: AfterResponse::Close }
    }

    /// Sends nothing.
    pub fn nothing() -> HttpResponse {
        HttpResponse::raw([])
    }

    /// Returns the response as it is sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sends only the first bytes.
    pub fn truncated(mut self, length: usize) -> HttpResponse {
        self.bytes.truncate(length);
        self.then(AfterResponse::Close)
    }

    /// Sets the pause before the response.
    pub fn delayed(mut self, delay: Duration) -> HttpResponse {
        self.delay = delay;
        self
    }

    /// Sets the use of the connection after the response.
    pub fn then(mut self, after: AfterResponse) -> HttpResponse {
        self.after = after;
        self
    }
}
