//! HTTP transport to a server, within limits.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
    StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};

use super::bounded_io::{MAX_MESSAGE_BYTES, MessageRate};
use super::connect::sanitize;
use super::{HttpEndpoint, McpError};
use brigade_base::Secret;
use brigade_base::process::CloseReason;
use brigade_http_client::tls;

/// Timeout for connecting to a remote server.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes read from an error page.
const MAX_ERROR_PAGE_BYTES: usize = 64 << 10;

/// Failure of one exchange with a server.
pub(super) type HttpFailure = StreamableHttpError<HttpError>;
type Headers = HashMap<HeaderName, HeaderValue>;

/// Cause of a failed exchange. It distinguishes whether the server may have acted on the request.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    /// The request was not sent, or its answer did not arrive. The error never shows the URL, which may
    /// contain a key.
    #[error(transparent)]
    Request(reqwest::Error),
    /// The server refused the request with this status.
    #[error("it returned HTTP {status}{detail}")]
    Refused {
        status: u16,
        /// The start of the error page, after a colon.
        detail: String,
    },
    /// The request was not sent, because the connection had already ended.
    #[error("{0}")]
    Ended(String),
}

/// Builds the headers of every request. They are marked as sensitive.
pub(super) fn headers(entries: &[(String, Secret)]) -> Result<Headers, McpError> {
    let mut headers = HashMap::new();
    for (name, value) in entries {
        let wrong = || McpError::Config(format!("invalid header '{}'", sanitize(name)));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Limits on everything that a server sends over one connection.
#[derive(Clone)]
struct ReceiveLimits {
    /// Receives the reason why the connection can no longer be used.
    close_reason: CloseReason,
    rate: Arc<Mutex<MessageRate>>,
}

impl ReceiveLimits {
    /// Counts events. Fails if there are too many.
    fn count(&self, events: usize) -> Result<(), McpError> {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner).count(events)
    }
}

/// An HTTP client with bounded responses. It has no cookies, uses only the configured proxy, and follows
/// redirects only to the same host and only if they preserve the message.
#[derive(Clone)]
pub(super) struct HttpClient {
    client: reqwest::Client,
    limits: ReceiveLimits,
}

impl HttpClient {
    pub(super) async fn new(
        endpoint: &HttpEndpoint,
        close_reason: CloseReason,
    ) -> Result<HttpClient, McpError> {
        let proxy = proxy(endpoint)?;
        // Building a client loads the system's certificates.
        let built = tokio::task::spawn_blocking(|| client(proxy)).await;
        Ok(HttpClient {
            client: built.map_err(|error| McpError::Connect(error.to_string()))??,
            limits: ReceiveLimits { close_reason, rate: Arc::new(Mutex::new(MessageRate::new())) },
        })
    }

    /// Sends a request, unless the server has violated the protocol before.
    async fn send(
        &self,
        mut request: RequestBuilder,
        session: Option<&str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<Response, HttpFailure> {
        if let Some(reason) = self.limits.close_reason.reason() {
            return Err(HttpFailure::Client(HttpError::Ended(reason.to_owned())));
        }
        if let Some(token) = token.filter(|_| !headers.contains_key(&reqwest::header::AUTHORIZATION)) {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(session) = session {
            request = request.header(HEADER_SESSION_ID, session);
        }
        request.header(ACCEPT, accept_header()).send().await.map_err(request_failure)
    }
}

fn proxy(endpoint: &HttpEndpoint) -> Result<Option<reqwest::Proxy>, McpError> {
    // An invalid URL is reported when connecting.
    let Ok(url) = url::Url::parse(endpoint.url.expose()) else { return Ok(None) };
    endpoint.proxies.for_reqwest(&url).map_err(|cause| {
        McpError::Config(format!(
            "cannot use a proxy: {cause}. Change HTTPS_PROXY, or add the server's host to NO_PROXY."
        ))
    })
}

fn client(proxy: Option<reqwest::Proxy>) -> Result<reqwest::Client, McpError> {
    let policy = reqwest::redirect::Policy::custom(|attempt| {
        let from = attempt.previous().last().map(|url| url.origin());
        let keeps_message = matches!(attempt.status().as_u16(), 307 | 308);
        match keeps_message && from == Some(attempt.url().origin()) && attempt.previous().len() <= 5 {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    });
    let builder = tls::client_builder().no_proxy().referer(false).redirect(policy);
    let builder = match proxy {
        Some(proxy) => builder.proxy(proxy),
        None => builder,
    };
    builder.connect_timeout(CONNECT_TIMEOUT).build().map_err(|error| McpError::Connect(error.to_string()))
}

/// Strips the URL, which may contain a key, from a failure.
fn request_failure(error: reqwest::Error) -> HttpFailure {
    HttpFailure::Client(HttpError::Request(error.without_url()))
}

fn accept_header() -> String {
    format!("{JSON_MIME_TYPE}, {EVENT_STREAM_MIME_TYPE}")
}

fn challenge(response: &Response) -> Option<String> {
    Some(response.headers().get(WWW_AUTHENTICATE)?.to_str().ok()?.to_owned())
}

/// Reads the body, up to this many bytes.
async fn body(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, HttpFailure> {
    let mut whole = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(request_failure)? {
        if whole.len() + chunk.len() > max_bytes {
            return Err(unexpected(format!(
                "its response is larger than {} MiB",
                max_bytes.div_ceil(1 << 20)
            )));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}

fn unexpected(why: impl Into<Cow<'static, str>>) -> HttpFailure {
    StreamableHttpError::UnexpectedServerResponse(why.into())
}

fn is_of_type(response: &Response, kind: &str) -> bool {
    let found = response.headers().get(CONTENT_TYPE);
    found.is_some_and(|found| found.as_bytes().to_ascii_lowercase().starts_with(kind.as_bytes()))
}

/// Parses events, with limits on their size and number.
fn events(response: Response, limits: ReceiveLimits) -> BoxStream<'static, Result<Sse, SseError>> {
    let start = (Some(response), SseEventSize::default());
    let bytes = futures::stream::unfold(start, move |(response, mut event)| {
        let limits = limits.clone();
        async move {
            let mut response = response?;
            let chunk = match response.chunk().await {
                Ok(chunk) => chunk?,
                Err(error) => return Some((Err(std::io::Error::other(error.without_url())), (None, event))),
            };
            let within = match event.grow(&chunk) > MAX_MESSAGE_BYTES {
                true => Err(McpError::Protocol(format!(
                    "it sent a message larger than {} MiB",
                    MAX_MESSAGE_BYTES >> 20
                ))),
                false => limits.count(std::mem::take(&mut event.ended)),
            };
            match within {
                Ok(()) => Some((Ok(chunk), (Some(response), event))),
                Err(error) => {
                    limits.close_reason.set(error.to_string());
                    Some((Err(std::io::Error::other(error)), (None, event)))
                }
            }
        }
    });
    SseStream::from_bytes_stream(bytes).boxed()
}

/// Size of the current event. A blank line ends it.
#[derive(Default)]
struct SseEventSize {
    bytes: usize,
    is_line_empty: bool,
    /// Whether the last byte was a carriage return, so that a line feed may belong to the same line ending.
    was_return: bool,
    /// Number of completed events.
    ended: usize,
}

impl SseEventSize {
    /// Counts more bytes. Returns the maximum size of the current event and the events that ended among them.
    fn grow(&mut self, chunk: &[u8]) -> usize {
        let mut largest = 0;
        for byte in chunk {
            match byte {
                b'\n' if self.was_return => {}
                b'\n' | b'\r' if self.is_line_empty => {
                    self.bytes = 0;
                    self.ended += 1;
                }
                b'\n' | b'\r' => self.is_line_empty = true,
                _ => self.is_line_empty = false,
            }
            self.was_return = *byte == b'\r';
            self.bytes += 1;
            largest = largest.max(self.bytes);
        }
        largest
    }
}

/// Returns the authorization error in a response, if it is one.
fn auth_error(response: &Response) -> Option<HttpFailure> {
    let challenge = challenge(response);
    match response.status() {
        StatusCode::UNAUTHORIZED => {
            Some(HttpFailure::AuthRequired(AuthRequiredError::new(challenge.unwrap_or_default())))
        }
        StatusCode::FORBIDDEN => {
            let challenge = challenge?;
            let scope = super::oauth::scope_of(&challenge);
            Some(HttpFailure::InsufficientScope(InsufficientScopeError::new(challenge, scope)))
        }
        _ => None,
    }
}

fn status_error(response: &Response) -> HttpFailure {
    let pause = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    HttpStatusError::new(response.status().as_u16(), pause.map(str::to_owned)).into()
}

fn wrong_type(response: &Response) -> HttpFailure {
    let kind = response.headers().get(CONTENT_TYPE);
    HttpFailure::UnexpectedContentType(kind.map(|kind| sanitize(&String::from_utf8_lossy(kind.as_bytes()))))
}

/// Converts an error status to a failure.
async fn read_refusal(
    response: Response,
    message: &ClientJsonRpcMessage,
    had_session: bool,
) -> Result<StreamableHttpPostResponse, HttpFailure> {
    let status = response.status();
    if let Some(failure) = auth_error(&response) {
        return Err(failure);
    }
    if status == StatusCode::NOT_FOUND && had_session {
        return Err(HttpFailure::SessionExpired);
    }
    let is_json = is_of_type(&response, JSON_MIME_TYPE);
    if status == StatusCode::TOO_MANY_REQUESTS || (status.is_server_error() && !is_json) {
        return Err(status_error(&response));
    }
    let body = body(response, MAX_ERROR_PAGE_BYTES).await?;
    let error = match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
        _ => None,
    };
    // A server that does not know the newest handshake reports this in its own way, and may omit the request
    // id.
    if let ClientJsonRpcMessage::Request(request) = message
        && matches!(request.request, ClientRequest::DiscoverRequest(_))
        && status.is_client_error()
        && status != StatusCode::FORBIDDEN
        && !had_session
    {
        let why = error.map_or_else(
            || ErrorData::invalid_request(format!("refused with HTTP {}", status.as_u16()), None),
            |error| error.error,
        );
        let answer = ServerJsonRpcMessage::error(why, Some(request.id.clone()));
        return Ok(StreamableHttpPostResponse::Json(answer, None));
    }
    match error {
        Some(error) if status != StatusCode::FORBIDDEN => {
            Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), None))
        }
        _ if status.is_server_error() => Err(HttpStatusError::new(status.as_u16(), None).into()),
        _ => {
            let detail = sanitize(String::from_utf8_lossy(&body).trim());
            let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
            Err(HttpFailure::Client(HttpError::Refused { status: status.as_u16(), detail }))
        }
    }
}

/// Reads a successful response.
async fn read_success(
    response: Response,
    message: &ClientJsonRpcMessage,
    limits: &ReceiveLimits,
) -> Result<StreamableHttpPostResponse, HttpFailure> {
    let awaits_answer = matches!(message, ClientJsonRpcMessage::Request(_));
    let is_empty = response.content_length() == Some(0) && !awaits_answer;
    if matches!(response.status(), StatusCode::ACCEPTED | StatusCode::NO_CONTENT) || is_empty {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    let session = response.headers().get(HEADER_SESSION_ID).and_then(|value| value.to_str().ok());
    let session = session.map(str::to_owned);
    if is_of_type(&response, EVENT_STREAM_MIME_TYPE) {
        return Ok(StreamableHttpPostResponse::Sse(events(response, limits.clone()), session));
    }
    if !is_of_type(&response, JSON_MIME_TYPE) {
        return Err(wrong_type(&response));
    }
    let body = body(response, MAX_MESSAGE_BYTES).await?;
    match serde_json::from_slice(&body) {
        Ok(answer) => Ok(StreamableHttpPostResponse::Json(answer, session)),
        Err(_) if !awaits_answer => Ok(StreamableHttpPostResponse::Accepted),
        Err(error) => Err(unexpected(format!("its answer is not a valid message: {error}"))),
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpFailure> {
        let body = serde_json::to_vec(&message)?;
        let request = self.client.post(uri.as_ref()).header(CONTENT_TYPE, JSON_MIME_TYPE).body(body);
        let response = self.send(request, session.as_deref(), token, headers).await?;
        match response.status().is_success() {
            true => read_success(response, &message, &self.limits).await,
            false => read_refusal(response, &message, session.is_some()).await,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpFailure> {
        let deleted = StreamableHttpClient::delete_session(&self.client, uri, session, token, headers).await;
        deleted.map_err(|failure| match failure {
            StreamableHttpError::Client(error) => request_failure(error),
            other => unexpected(other.to_string()),
        })
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpFailure> {
        let mut request = self.client.get(uri.as_ref());
        if let Some(last) = last_event {
            request = request.header(HEADER_LAST_EVENT_ID, last);
        }
        let response = self.send(request, session.as_deref(), token, headers).await?;
        if let Some(failure) = auth_error(&response) {
            return Err(failure);
        }
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(HttpFailure::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(status_error(&response)),
            _ if !is_of_type(&response, EVENT_STREAM_MIME_TYPE) => Err(wrong_type(&response)),
            _ => Ok(events(response, self.limits.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sse_event_ends_with_an_empty_line() {
        let mut event = SseEventSize::default();
        assert_eq!(event.grow(b"data: abc"), 9);
        assert_eq!(event.grow(b"\n\ndata: x"), 10);
        assert_eq!(event.grow(b"\r\n\r\n"), 10);
        assert_eq!(event.grow(b"12"), 4);
        assert_eq!(event.ended, 2);
        event.grow(b"\r\r3\r\n\n");
        assert_eq!(event.ended, 4);
    }
}
