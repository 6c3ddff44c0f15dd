//! Streamable HTTP at one endpoint, `/mcp`. It requires the token and rejects requests from foreign web
//! pages.
//!
//! It works with any `ServerHandler`. Every request passes [`Checks`] before its body is read.

mod checks;
mod connection_limits;
mod connections;
mod cors;
mod sessions;
mod token;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use rmcp::ServerHandler;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

pub use checks::{Checks, Rejected};
use connection_limits::ConnectionHandle;
pub use connections::serve;
use sessions::Sessions;
pub use token::{Token, TokenError};

/// Path of the endpoint.
pub const PATH: &str = "/mcp";

/// Maximum size of a request body.
const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// The first version of the protocol without sessions.
const STATELESS_SINCE: &str = "2026-07-28";

struct AuthLayer {
    checks: Checks,
    sessions: Arc<Sessions>,
}

/// Serves the handlers that `make_handler` creates at [`PATH`], behind `checks`.
///
/// # Contract
///
/// * `make_handler` is called once per protocol session, and once per request of clients without sessions.
///   State that has to outlive a request must be shared by the handlers.
pub fn router<H: ServerHandler + Send + 'static>(
    make_handler: impl Fn() -> H + Send + Sync + 'static,
    checks: Checks,
) -> Router {
    let sessions = Arc::new(Sessions::new());
    // The auth layer checks hosts and origins before anything is read.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(MAX_BODY_BYTES);
    let service = StreamableHttpService::new(move || Ok(make_handler()), sessions.clone(), config);
    let layer = Arc::new(AuthLayer { checks, sessions });
    Router::new().route_service(PATH, service).layer(from_fn_with_state(layer, check_request))
}

/// Checks the source, the token and the capacity for every request.
async fn check_request(State(layer): State<Arc<AuthLayer>>, request: Request, next: Next) -> Response {
    let origin = match layer.checks.check_source(&request) {
        Ok(origin) => origin,
        Err(rejected) => return rejection(&rejected),
    };
    if let Some(origin) = origin.as_ref().filter(|_| request.method() == Method::OPTIONS) {
        return cors::preflight(origin);
    }
    let response = match layer.checks.check_token(request.headers()) {
        Err(rejected) => rejection(&rejected),
        Ok(()) if !has_capacity(&request) => rejection(&Rejected::Full),
        // Requests that open a session in another way are rejected when the session is created.
        Ok(()) if opens_session(&request) && layer.sessions.is_full() => rejection(&Rejected::Full),
        Ok(()) => {
            let is_json = is_json(request.headers());
            let mut response = next.run(request).await;
            // The content type is valid, so the error is about the content of the body.
            if is_json && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
                *response.status_mut() = StatusCode::BAD_REQUEST;
            }
            response
        }
    };
    match origin {
        Some(origin) => cors::readable(response, &origin),
        None => response,
    }
}

/// Whether there is capacity for an authenticated connection. Without [`serve`] there is no limit.
fn has_capacity(request: &Request) -> bool {
    request.extensions().get::<ConnectionHandle>().is_none_or(ConnectionHandle::authenticate)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

fn opens_session(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::POST && !headers.contains_key("mcp-session-id") && !is_stateless(headers)
}

fn is_stateless(headers: &HeaderMap) -> bool {
    // Versions are dates, so they can be compared as text.
    let version = headers.get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    version.is_some_and(|version| version >= STATELESS_SINCE)
        && headers.get("mcp-method").is_none_or(|method| method != "initialize")
}

fn rejection(rejected: &Rejected) -> Response {
    let (status, extra) = match rejected {
        Rejected::Host | Rejected::Origin => (StatusCode::FORBIDDEN, None),
        Rejected::NoToken => {
            (StatusCode::UNAUTHORIZED, Some((header::WWW_AUTHENTICATE, "Bearer realm=\"brigade\"")))
        }
        Rejected::WrongToken => (
            StatusCode::UNAUTHORIZED,
            Some((header::WWW_AUTHENTICATE, "Bearer realm=\"brigade\", error=\"invalid_token\"")),
        ),
        Rejected::Full => (StatusCode::SERVICE_UNAVAILABLE, Some((header::RETRY_AFTER, "60"))),
    };
    let mut response = (status, format!("{rejected}\n")).into_response();
    if let Some((name, value)) = extra {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
