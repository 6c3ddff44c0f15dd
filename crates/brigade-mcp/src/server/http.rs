//! Streamable HTTP at one endpoint, `/mcp`, behind the checks of `brigade-http`. It works with any
//! `ServerHandler`.

mod sessions;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use brigade_http::{Cors, Listener, Policy, Rejected};
use rmcp::ServerHandler;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use sessions::Sessions;

/// Path of the endpoint.
pub const PATH: &str = "/mcp";

/// The first version of the protocol without sessions.
const STATELESS_SINCE: &str = "2026-07-28";

/// Serves the handlers that `make_handler` creates at [`PATH`], behind `policy`, until `stop` is ready. The CORS
/// headers are those of the protocol.
///
/// # Contract
///
/// * `make_handler` is called once per protocol session, and once per request of clients without sessions.
///   State that has to outlive a request must be shared by the handlers.
pub async fn serve<H: ServerHandler + Send + 'static>(
    listener: Listener,
    make_handler: impl Fn() -> H + Send + Sync + 'static,
    policy: Policy,
    stop: impl Future<Output = ()>,
) {
    let sessions = Arc::new(Sessions::new());
    // The policy checks hosts and origins before anything is read, and limits the body.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(usize::MAX);
    let service = StreamableHttpService::new(move || Ok(make_handler()), sessions.clone(), config);
    let router =
        Router::new().route_service(PATH, service).layer(from_fn_with_state(sessions, check_sessions));
    listener.serve(router, policy.cors(cors()), stop).await;
}

fn cors() -> Cors {
    Cors {
        methods: HeaderValue::from_static("GET, POST, DELETE"),
        request_headers: HeaderValue::from_static(
            "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name",
        ),
        response_headers: HeaderValue::from_static("mcp-session-id, www-authenticate"),
    }
}

/// Rejects requests that open a session if there is no capacity for one.
async fn check_sessions(State(sessions): State<Arc<Sessions>>, request: Request, next: Next) -> Response {
    // Requests that open a session in another way are rejected when the session is created.
    if opens_session(&request) && sessions.is_full() {
        return Rejected::Full.into_response();
    }
    let is_json = is_json(request.headers());
    let mut response = next.run(request).await;
    // The content type is valid, so the error is about the content of the body.
    if is_json && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response
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
