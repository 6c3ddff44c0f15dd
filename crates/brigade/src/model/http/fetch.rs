//! Whole replies, for what is not streamed.

use reqwest::{RequestBuilder, Response};

use super::super::ModelError;
use super::endpoint::Endpoint;
use super::exchange::failed_reply;
use super::failure;

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
    request: RequestBuilder,
    most: usize,
) -> Result<Vec<u8>, Unfetched> {
    let failed = |error| Unfetched::Failed(endpoint.without_key(error));
    let response = match request.timeout(endpoint.limits().total).send().await {
        Ok(response) => response,
        Err(error) if error.is_connect() => {
            return Err(Unfetched::Unreachable(endpoint.without_key(failure::unreachable(endpoint, &error))));
        }
        Err(error) => return Err(failed(failure::unreachable(endpoint, &error))),
    };
    if !response.status().is_success() {
        return Err(failed(failed_reply(endpoint, response).await));
    }
    read(endpoint, response, most).await.map_err(failed)
}

async fn read(endpoint: &Endpoint, mut response: Response, most: usize) -> Result<Vec<u8>, ModelError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(bytes)) if body.len() + bytes.len() > most => {
                return Err(failure::refused(endpoint, &format!("it is larger than {most} bytes")));
            }
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Ok(None) => return Ok(body),
            Err(error) => return Err(failure::broken(endpoint, &error)),
        }
    }
}
