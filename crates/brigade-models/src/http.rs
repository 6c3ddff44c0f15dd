//! HTTP transport shared by all adapters: connections, rate limiting, stream decoding and errors.

mod chunk_buffer;
mod endpoint;
mod exchange;
mod failure;
mod fetch;
mod ids;
mod pool;
mod proxy;
#[cfg(all(feature = "anthropic", feature = "gemini", feature = "openai"))]
#[cfg(test)]
mod tests;
mod timeouts;

use brigade_core::Usage;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde::Deserialize;

use super::sse::SseEvent;
use super::{Chunk, ModelError};
use exchange::Exchange;

pub(super) use chunk_buffer::ChunkBuffer;
pub use endpoint::{Endpoint, EndpointError, Locality};
pub(super) use endpoint::{RequestBuilder, locality};
pub(super) use failure::{invalid_reply, stream_error};
pub(super) use fetch::{FetchError, fetch};
pub(super) use ids::{arguments_object, call_ids};
pub use timeouts::Timeouts;

/// Data of the last event in some APIs.
const DONE: &str = "[DONE]";

/// Decodes events into chunks of a reply.
pub(super) trait Decoder: Send + 'static {
    /// Takes one event. [`Chunk::Done`] comes last.
    fn take(&mut self, event: &SseEvent, chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        let before = chunks.added();
        match event.data.trim() {
            "" => return Ok(()),
            DONE => return self.done(chunks),
            data => self.decode(&event.name, data, chunks)?,
        }
        if chunks.added() == before {
            // Calls and reasoning are held back. This tells the consumer that the model is working.
            chunks.push(Chunk::Usage(self.usage(chunks.text_bytes())));
        }
        Ok(())
    }

    /// Decodes the data of an event.
    fn decode(&mut self, name: &str, data: &str, chunks: &mut ChunkBuffer) -> Result<(), ModelError>;

    /// Returns the usage so far, given the bytes of text that were emitted.
    fn usage(&self, text_bytes: usize) -> Usage;

    /// Handles the event `[DONE]`, which most APIs do not have.
    fn done(&mut self, _chunks: &mut ChunkBuffer) -> Result<(), ModelError> {
        Ok(())
    }

    /// Handles the end of a completely received body. Emits [`Chunk::Done`] if the reply is complete even
    /// without a terminal event.
    fn end(&mut self, chunks: &mut ChunkBuffer) -> Result<(), ModelError>;
}

/// Sends a request of about this many bytes when the rate limiter permits, and returns the chunks of its
/// reply. The body is built only then, because thousands of requests may be queued.
pub(super) fn stream_reply<D: Decoder>(
    endpoint: &Endpoint,
    bytes: usize,
    write: impl Fn() -> serde_json::Result<(RequestBuilder, D)> + Send + 'static,
) -> BoxStream<'static, Result<Chunk, ModelError>> {
    let exchange = Box::new(Exchange::new(endpoint.clone(), bytes, Box::new(write)));
    let next = |mut exchange: Box<Exchange<_>>| async move { Some((exchange.next().await?, exchange)) };
    stream::unfold(exchange, next).boxed()
}

/// Parses the data of an event.
pub(super) fn parse_event<'a, T: Deserialize<'a>>(
    endpoint: &Endpoint,
    data: &'a str,
) -> Result<T, ModelError> {
    serde_json::from_str(data).map_err(|_| invalid_reply(endpoint, "a stream event has an unexpected format"))
}

/// Error for a stream that ended before its terminal event.
pub(super) fn truncated(endpoint: &Endpoint) -> ModelError {
    let name = endpoint.name();
    ModelError::Transient(format!("{name} ended the stream before its reply was complete"))
}
