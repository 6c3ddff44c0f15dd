//! Whole replies, for what is not streamed.

use super::super::ModelError;
use super::endpoint::{Draft, Endpoint};
use super::exchange::failed_reply;
use super::failure;
use super::wire::{Reply, WireError};

/// Why there is no reply.
pub(in super::super) enum Unfetched {
    /// Nobody answers there.
    Unreachable(ModelError),
    /// Somebody does, but not with this.
    Failed(ModelError),
}

/// Sends a request and reads the whole reply, which may have so many bytes. The endpoint has the limit in time.
pub(in super::super) async fn fetch(
    endpoint: &Endpoint,
    draft: Draft,
    most: usize,
) -> Result<Vec<u8>, Unfetched> {
    let failed = |error| Unfetched::Failed(endpoint.without_key(error));
    let request = draft.build().map_err(|cause| failed(failure::unwritable(endpoint, &cause)))?;
    let exchange = async {
        let reply = match endpoint.wire().clone().send(request).await {
            Ok(reply) => reply,
            Err(error @ WireError::Broken(_)) => return Err(failed(failure::broken(endpoint, error))),
            Err(error) => {
                let error = endpoint.without_key(failure::broken(endpoint, error));
                return Err(Unfetched::Unreachable(error));
            }
        };
        if !reply.status().is_success() {
            return Err(failed(failed_reply(endpoint, reply).await));
        }
        read(endpoint, reply, most).await.map_err(failed)
    };
    let exchanged = tokio::time::timeout(endpoint.limits().total, exchange).await;
    exchanged.unwrap_or_else(|_| Err(failed(failure::too_long(endpoint))))
}

async fn read(endpoint: &Endpoint, mut reply: Box<Reply>, most: usize) -> Result<Vec<u8>, ModelError> {
    let mut body = Vec::new();
    loop {
        match reply.chunk().await {
            Ok(Some(bytes)) if body.len() + bytes.len() > most => {
                return Err(failure::refused(endpoint, &format!("it is larger than {most} bytes")));
            }
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Ok(None) => return Ok(body),
            Err(error) => return Err(failure::broken(endpoint, error)),
        }
    }
}
