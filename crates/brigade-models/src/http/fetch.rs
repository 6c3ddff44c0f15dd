//! Requests whose reply is not streamed.

use super::super::ModelError;
use super::endpoint::{Endpoint, RequestBuilder};
use super::exchange::response_error;
use super::failure;
use super::pool::{ConnectionError, HttpResponse};

/// Reasons why a request has no reply.
pub(in super::super) enum FetchError {
    /// The server cannot be reached.
    Unreachable(ModelError),
    /// The server answered with an error.
    Failed(ModelError),
}

/// Sends a request and reads the whole reply, up to this many bytes. The endpoint's timeouts apply.
pub(in super::super) async fn fetch(
    endpoint: &Endpoint,
    builder: RequestBuilder,
    max_bytes: usize,
) -> Result<Vec<u8>, FetchError> {
    let failed = |error| FetchError::Failed(endpoint.redact_error(error));
    let request = builder.build().map_err(|cause| failed(failure::invalid_request(endpoint, &cause)))?;
    let exchange = async {
        let reply = match endpoint.pool().clone().send(request).await {
            Ok(reply) => reply,
            Err(error @ ConnectionError::Broken(_)) => {
                return Err(failed(failure::connection_error(endpoint, error)));
            }
            Err(error) => {
                let error = endpoint.redact_error(failure::connection_error(endpoint, error));
                return Err(FetchError::Unreachable(error));
            }
        };
        if !reply.head.status().is_success() {
            return Err(failed(response_error(endpoint, reply).await));
        }
        read(endpoint, reply, max_bytes).await.map_err(failed)
    };
    let exchanged = tokio::time::timeout(endpoint.timeouts().total, exchange).await;
    exchanged.unwrap_or_else(|_| Err(failed(failure::total_timeout(endpoint))))
}

async fn read(
    endpoint: &Endpoint,
    mut reply: Box<HttpResponse>,
    max_bytes: usize,
) -> Result<Vec<u8>, ModelError> {
    let mut body = Vec::new();
    loop {
        match reply.chunk().await {
            Ok(Some(bytes)) if body.len() + bytes.len() > max_bytes => {
                return Err(failure::invalid_reply(
                    endpoint,
                    &format!("it is larger than {max_bytes} bytes"),
                ));
            }
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Ok(None) => return Ok(body),
            Err(error) => return Err(failure::connection_error(endpoint, error)),
        }
    }
}
