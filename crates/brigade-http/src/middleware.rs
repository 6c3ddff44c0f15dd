//! Checks of a request before its handler runs, and the limit on its body.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::connection_limits::ConnectionHandle;
use crate::{Policy, Rejected};

/// Puts the checks of a policy in front of a router.
pub(crate) fn guarded(router: Router, policy: Policy) -> Router {
    // The limit of the policy replaces the one that extractors have by default.
    let router = router.layer(DefaultBodyLimit::disable());
    router.layer(from_fn_with_state(Arc::new(policy), check_request))
}

/// Checks the source, the token and the capacity for every request.
async fn check_request(State(policy): State<Arc<Policy>>, request: Request, next: Next) -> Response {
    let origin = match policy.check_source(&request) {
        Ok(origin) => origin,
        Err(rejected) => return rejected.into_response(),
    };
    if let Some(origin) = origin.as_ref().filter(|_| request.method() == Method::OPTIONS) {
        return policy.cors.preflight(origin);
    }
    let response = match policy.check_token(request.headers()) {
        Err(rejected) => rejected.into_response(),
        Ok(()) if !has_capacity(&request) => Rejected::Full.into_response(),
        Ok(()) => run_limited(request, next, policy.max_body_bytes).await,
    };
    match origin {
        Some(origin) => policy.cors.readable(response, &origin),
        None => response,
    }
}

/// Whether there is capacity for an authenticated connection.
fn has_capacity(request: &Request) -> bool {
    request.extensions().get::<ConnectionHandle>().is_some_and(ConnectionHandle::authenticate)
}

/// Runs the handler with a body that ends with an error at the limit. If the body cannot be read, the response is about
/// that, whatever the handler makes of the error. A request that announces a larger body is refused at once.
async fn run_limited(request: Request, next: Next, max_body_bytes: usize) -> Response {
    let announced = request.body().size_hint().lower();
    if usize::try_from(announced).map_or(true, |announced| announced > max_body_bytes) {
        return too_large(max_body_bytes);
    }
    let is_exceeded = Arc::new(AtomicBool::new(false));
    let is_broken = Arc::new(AtomicBool::new(false));
    let (exceeded, broken) = (is_exceeded.clone(), is_broken.clone());
    let request = request.map(|body| {
        Body::new(Limited::new(body, max_body_bytes).map_err(move |error: Box<dyn Error + Send + Sync>| {
            let seen = if error.is::<LengthLimitError>() { &exceeded } else { &broken };
            seen.store(true, Ordering::Relaxed);
            error
        }))
    });
    let response = next.run(request).await;
    if is_exceeded.load(Ordering::Relaxed) {
        return too_large(max_body_bytes);
    }
    if is_broken.load(Ordering::Relaxed) {
        return refusal(StatusCode::BAD_REQUEST, "Bad Request: the request body cannot be read".to_owned());
    }
    response
}

fn too_large(max_body_bytes: usize) -> Response {
    let text = format!("Payload Too Large: request body exceeds {max_body_bytes} bytes");
    refusal(StatusCode::PAYLOAD_TOO_LARGE, text)
}

fn refusal(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
