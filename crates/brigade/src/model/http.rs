//! How a provider is reached: one client, one gate, one way to read a stream, one way to fail, for all adapters.

mod endpoint;
mod exchange;
mod failure;
mod fetch;
mod ids;
#[cfg(test)]
mod tests;
mod times;
mod wire;

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::sse::Event;
use super::{Chunk, ModelError};
use endpoint::Draft;
use exchange::Exchange;

pub(super) use endpoint::place;
pub use endpoint::{Endpoint, EndpointError, Place};
pub(super) use failure::{in_stream, refused};
pub(super) use fetch::{Unfetched, fetch};
pub(super) use ids::{arguments, call_ids, said_arguments};
pub use times::Times;

/// Makes pieces of a reply out of events.
pub(super) trait Decoder: Send + 'static {
    /// Takes one event. [`Chunk::Done`] stands last.
    fn take(&mut self, event: &Event, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;

    /// The body is over, and nothing of it is missing. Gives [`Chunk::Done`] where the reply is whole all the same.
    fn end(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError>;
}

/// Sends a request once the gate lets it through, and gives the pieces of its reply.
pub(super) fn converse(
    endpoint: &Endpoint,
    draft: Draft,
    decoder: impl Decoder,
) -> BoxStream<'static, Result<Chunk, ModelError>> {
    let request = match draft.build() {
        Ok(request) => request,
        Err(cause) => return failed(failure::unwritable(endpoint, &cause)),
    };
    let exchange = Box::new(Exchange::new(endpoint.clone(), request, decoder));
    let next = |mut exchange: Box<Exchange<_>>| async move { Some((exchange.next().await?, exchange)) };
    stream::unfold(exchange, next).boxed()
}

/// A stream that only says why there is none.
pub(super) fn failed(error: ModelError) -> BoxStream<'static, Result<Chunk, ModelError>> {
    stream::iter([Err(error)]).boxed()
}

/// The stream ended before its terminal event.
pub(super) fn cut(endpoint: &Endpoint) -> ModelError {
    let name = endpoint.name();
    ModelError::Transient(format!("{name} cut its reply off before the end"))
}
