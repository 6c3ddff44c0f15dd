//! How a provider is reached: one client, one way to read a stream, one way to fail, for all adapters.

mod endpoint;
mod failure;
mod ids;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use reqwest::{RequestBuilder, Response, Version, header};

use super::sse::{Event, Parser};
use super::{Chunk, ModelError};

pub use endpoint::{Endpoint, EndpointError};
pub(super) use failure::{in_stream, refused};
pub(super) use ids::{arguments, call_ids};

/// The most bytes of one reply.
const REPLY_BYTES: usize = 64 << 20;
/// The most bytes of an error that are read.
const ERROR_BYTES: usize = 64 << 10;
/// How long an error's text is waited for.
const ERROR_TIME: Duration = Duration::from_secs(10);
/// How long the end of the body is waited for after the terminal event, so that the connection serves again.
const LINGER: Duration = Duration::from_millis(50);

/// Makes pieces of a reply out of events.
pub(super) trait Decoder: Send + 'static {
    /// Takes one event. [`Chunk::Done`] stands last.
    fn take(&mut self, event: &Event, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;

    /// The body is over, and nothing of it is missing. Gives [`Chunk::Done`] where the reply is whole all the same.
    fn end(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;
}

/// Sends a request and gives the pieces of its reply.
pub(super) fn converse(
    endpoint: &Endpoint,
    request: RequestBuilder,
    decoder: impl Decoder,
) -> BoxStream<'static, Result<Chunk, ModelError>> {
    let exchange = Exchange {
        endpoint: endpoint.clone(),
        phase: Phase::Ready(request.timeout(endpoint.total_limit())),
        parser: Parser::default(),
        decoder,
        events: Vec::new(),
        chunks: VecDeque::new(),
        failed: None,
        framing: Framing::None,
        received: 0,
    };
    let next = |mut exchange: Exchange<_>| async move { Some((exchange.next().await?, exchange)) };
    stream::unfold(exchange, next).boxed()
}

/// A stream that only says why there is none.
pub(super) fn failed(error: ModelError) -> BoxStream<'static, Result<Chunk, ModelError>> {
    stream::iter([Err(error)]).boxed()
}

struct Exchange<D> {
    endpoint: Endpoint,
    phase: Phase,
    parser: Parser,
    decoder: D,
    events: Vec<Event>,
    chunks: VecDeque<Chunk>,
    failed: Option<ModelError>,
    framing: Framing,
    received: usize,
}

enum Phase {
    Ready(RequestBuilder),
    Reading(Response),
    Over,
}

/// Whether the end of a body can be told from a cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Known,
    None,
}

impl<D: Decoder> Exchange<D> {
    async fn next(&mut self) -> Option<Result<Chunk, ModelError>> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                if matches!(chunk, Chunk::Done(_)) {
                    self.linger().await;
                    self.chunks.clear();
                    self.failed = None;
                }
                return Some(Ok(chunk));
            }
            if let Some(error) = self.failed.take() {
                self.phase = Phase::Over;
                return Some(Err(self.endpoint.without_key(error)));
            }
            match mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return None,
                Phase::Ready(request) => self.send(request).await,
                Phase::Reading(response) => self.read(response).await,
            }
        }
    }

    async fn send(&mut self, request: RequestBuilder) {
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                if !error.is_connect() && !error.is_builder() {
                    self.may_have_begun();
                }
                self.failed = Some(failure::unreachable(&self.endpoint, &error));
                return;
            }
        };
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or("text/event-stream").to_ascii_lowercase();
        if !response.status().is_success() || !kind.starts_with("text/event-stream") {
            self.failed = Some(failed_reply(&self.endpoint, response, &kind).await);
            return;
        }
        let chunked = response.headers().contains_key(header::TRANSFER_ENCODING);
        if chunked || response.content_length().is_some() || response.version() >= Version::HTTP_2 {
            self.framing = Framing::Known;
        }
        self.may_have_begun();
        self.phase = Phase::Reading(response);
    }

    /// Tells whoever pays that the provider may have worked, whatever comes.
    fn may_have_begun(&mut self) {
        self.chunks.push_back(Chunk::Usage(brigade_core::Usage::default()));
    }

    async fn read(&mut self, mut response: Response) {
        match response.chunk().await {
            Ok(Some(bytes)) => {
                self.phase = Phase::Reading(response);
                if let Err(error) = self.take(&bytes) {
                    self.failed = Some(error);
                }
            }
            Ok(None) if self.framing == Framing::Known => {
                if let Err(error) = self.decoder.end(&mut self.chunks) {
                    self.failed = Some(error);
                }
            }
            Ok(None) => self.failed = Some(cut(&self.endpoint)),
            Err(error) => self.failed = Some(failure::broken(&self.endpoint, &error)),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        let transient = |cause: String| ModelError::Transient(format!("{}: {cause}", self.endpoint.name()));
        self.received = self.received.saturating_add(bytes.len());
        if self.received > REPLY_BYTES {
            return Err(transient(format!("the reply is larger than {REPLY_BYTES} bytes")));
        }
        let fed = self.parser.feed(bytes, &mut self.events);
        for mut event in self.events.drain(..) {
            // Whoever says the key in a reply would have it stored and shown.
            event.data = self.endpoint.hide(event.data);
            self.decoder.take(&event, &mut self.chunks)?;
            if matches!(self.chunks.back(), Some(Chunk::Done(_))) {
                break;
            }
        }
        fed.map_err(|error| transient(error.to_string()))
    }

    /// A connection serves again only once its body was read to the end.
    async fn linger(&mut self) {
        if let Phase::Reading(mut response) = mem::replace(&mut self.phase, Phase::Over) {
            let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
            // Whoever goes on sending loses the connection, and nothing else.
            let _ = tokio::time::timeout(LINGER, rest).await;
        }
    }
}

/// The stream ended before its terminal event.
pub(super) fn cut(endpoint: &Endpoint) -> ModelError {
    let name = endpoint.name();
    ModelError::Transient(format!("{name} cut its reply off before the end"))
}

async fn failed_reply(endpoint: &Endpoint, mut response: Response, kind: &str) -> ModelError {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(bytes)) = response.chunk().await {
            let room = ERROR_BYTES.saturating_sub(body.len());
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if body.len() >= ERROR_BYTES {
                break;
            }
        }
    };
    // What came in time is enough for a message.
    let _ = tokio::time::timeout(ERROR_TIME, read).await;
    let retry = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let text = endpoint.hide(String::from_utf8_lossy(&body).into_owned());
    match response.status().is_success() {
        true => failure::no_stream(endpoint, kind, &text),
        false => failure::status(endpoint, response.status().as_u16(), retry, &text),
    }
}
