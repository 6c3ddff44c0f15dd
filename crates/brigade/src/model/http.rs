//! How a provider is reached: one client, one gate, one way to read a stream, one way to fail, for all adapters.

mod chunk_buffer;
mod endpoint;
mod exchange;
mod failure;
mod fetch;
mod ids;
mod pool;
mod proxy;
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
pub use proxy::Proxies;
pub use timeouts::Timeouts;

/// Makes pieces of a reply out of events.
pub(super) trait Decoder: Send + 'static {
    /// Takes one event. [`Chunk::Done`] stands last.
    fn take(&mut self, event: &SseEvent, chunks: &mut ChunkBuffer) -> Result<(), ModelError>;

    /// The body is over, and nothing of it is missing. Gives [`Chunk::Done`] where the reply is whole all the same.
    fn end(&mut self, chunks: &mut ChunkBuffer) -> Result<(), ModelError>;
}

/// Sends a request of about this many bytes once the gate lets it through, and gives the pieces of its reply. It is
/// written only then: those that stand in line, perhaps thousands, keep no more than what they want to say.
pub(super) fn stream_reply<D: Decoder>(
    endpoint: &Endpoint,
    bytes: usize,
    write: impl Fn() -> serde_json::Result<(RequestBuilder, D)> + Send + 'static,
) -> BoxStream<'static, Result<Chunk, ModelError>> {
    let exchange = Box::new(Exchange::new(endpoint.clone(), bytes, Box::new(write)));
    let next = |mut exchange: Box<Exchange<_>>| async move { Some((exchange.next().await?, exchange)) };
    stream::unfold(exchange, next).boxed()
}

/// The stream ended before its terminal event.
pub(super) fn truncated(endpoint: &Endpoint) -> ModelError {
    let name = endpoint.name();
    ModelError::Transient(format!("{name} cut its reply off before the end"))
}
