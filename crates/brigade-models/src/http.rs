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

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::sse::SseEvent;
use super::{Chunk, ModelError};
use exchange::Exchange;

pub(super) use chunk_buffer::ChunkBuffer;
pub use endpoint::{Endpoint, EndpointError, Locality};
pub(super) use endpoint::{RequestBuilder, locality};
pub(super) use failure::{invalid_reply, stream_error};
pub(super) use fetch::{FetchError, fetch};
pub(super) use ids::{arguments_chunk, arguments_object, call_ids};
pub use timeouts::Timeouts;

/// Decodes events into chunks of a reply.
pub(super) trait Decoder: Send + 'static {
    /// Takes one event. [`Chunk::Done`] comes last.
    fn take(&mut self, event: &SseEvent, chunks: &mut ChunkBuffer) -> Result<(), ModelError>;

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

/// Error for a stream that ended before its terminal event.
pub(super) fn truncated(endpoint: &Endpoint) -> ModelError {
    let name = endpoint.name();
    ModelError::Transient(format!("{name} ended the stream before its reply was complete"))
}
