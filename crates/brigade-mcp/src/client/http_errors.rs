//! Error messages for failed requests to remote servers.

use std::error::Error;

use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use url::Url;

use super::connect::sanitize;
use super::http::{CONNECT_TIMEOUT, HttpError, HttpFailure};
use super::{HttpEndpoint, McpError};

/// The fix for most of these errors.
const CHECK_URL: &str = "Check `url` in its configuration.";

/// Rejects a URL that cannot be used.
pub(super) fn check_url(endpoint: &HttpEndpoint) -> Result<(), McpError> {
    match Url::parse(endpoint.url.expose()) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
        Ok(url) => Err(McpError::Config(format!(
            "cannot connect: the scheme `{}:` is not supported. Use a `url` that starts with http:// or https://.",
            sanitize(url.scheme())
        ))),
        Err(error) => Err(McpError::Config(format!(
            "cannot connect: `url` is not a valid URL ({error}). Use a URL such as https://host/path."
        ))),
    }
}

/// Returns the reason why connecting failed.
pub(super) fn connect_error(endpoint: &HttpEndpoint, error: &ClientInitializeError) -> String {
    let place = origin(endpoint);
    format!("cannot connect to {place}: {}", redact_url(endpoint, &initialize_error(error)))
}

/// Returns the reason why a request has no answer, and whether the server may have acted on it.
pub(super) fn request_error(endpoint: &HttpEndpoint, error: &(dyn Error + 'static)) -> LostRequest {
    let failure = find_failure(error);
    let certain = match failure {
        Some(StreamableHttpError::Client(HttpError::Request(error))) => {
            (error.is_connect() || error.is_builder()).then_some("the request was not delivered")
        }
        Some(StreamableHttpError::Client(HttpError::Ended(_)) | StreamableHttpError::Auth(_)) => {
            Some("the request was not sent")
        }
        Some(
            StreamableHttpError::Client(HttpError::Refused { .. }) | StreamableHttpError::SessionExpired,
        ) => Some("the request was refused"),
        Some(StreamableHttpError::HttpStatus(answer)) if answer.status < 500 => {
            Some("the request was refused")
        }
        _ => None,
    };
    if let Some(what) = certain {
        return LostRequest::NotExecuted(format!("{what}: {}", redact_url(endpoint, &describe(error))));
    }
    let why = match failure {
        Some(StreamableHttpError::Client(HttpError::Request(error))) => {
            format!("the connection was lost after the request was sent ({})", transport_error(error))
        }
        Some(StreamableHttpError::HttpStatus(answer)) => format!("it returned HTTP {}", answer.status),
        Some(StreamableHttpError::UnexpectedServerResponse(what)) => what.to_string(),
        _ => describe(error),
    };
    LostRequest::MaybeExecuted(redact_url(endpoint, &why))
}

/// A request without an answer.
pub(super) enum LostRequest {
    /// The server did not act on it. Contains the whole message.
    NotExecuted(String),
    /// The server may have acted on it. Contains the cause.
    MaybeExecuted(String),
}

/// Returns the origin of a server's URL. The path is omitted, because it may contain a key.
fn origin(endpoint: &HttpEndpoint) -> String {
    match Url::parse(endpoint.url.expose()) {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => "its address".to_owned(),
    }
}

/// Removes the URL, as configured and as parsed, because it may contain a key. Error pages often repeat the
/// path.
pub(super) fn redact_url(endpoint: &HttpEndpoint, text: &str) -> String {
    let url_text = endpoint.url.expose();
    let text = text.replace(url_text, "its address");
    let Ok(url) = Url::parse(url_text) else { return text };
    let text = text.replace(url.as_str(), "its address");
    let text =
        url.query().filter(|query| query.len() > 3).map_or(text.clone(), |query| text.replace(query, "…"));
    if url.path().len() > 1 { text.replace(url.path(), "/…") } else { text }
}

fn initialize_error(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => describe(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => initialize_error(fallback),
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection".to_owned(),
        ClientInitializeError::JsonRpcError(error) => {
            format!("it answered with an error: {}", sanitize(&error.message))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it does not support a compatible protocol version".to_owned()
        }
        _ => format!("it does not respond like an MCP server. {CHECK_URL}"),
    }
}

fn describe(error: &(dyn Error + 'static)) -> String {
    match find_failure(error) {
        Some(failure) => describe_failure(failure),
        None => sanitize(&root_cause(error).to_string()),
    }
}

/// Returns the failed exchange among the causes of an error.
fn find_failure<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a HttpFailure> {
    causes(error).find_map(|error| error.downcast_ref())
}

fn describe_failure(failure: &HttpFailure) -> String {
    match failure {
        StreamableHttpError::Client(HttpError::Request(error)) => transport_error(error),
        StreamableHttpError::Client(error @ (HttpError::Refused { .. } | HttpError::Ended(_))) => {
            format!("{error}. {CHECK_URL}")
        }
        StreamableHttpError::HttpStatus(answer) if answer.status >= 500 || answer.status == 429 => {
            format!("it returned HTTP {}. Try again later.", answer.status)
        }
        StreamableHttpError::HttpStatus(answer) => {
            format!("it returned HTTP {}. {CHECK_URL}", answer.status)
        }
        StreamableHttpError::UnexpectedServerResponse(what) => format!("{what}. {CHECK_URL}"),
        StreamableHttpError::UnexpectedContentType(Some(kind)) => {
            format!("it answered with {kind}, which is not an MCP response. {CHECK_URL}")
        }
        StreamableHttpError::UnexpectedContentType(None) => {
            format!("its response has no content type. {CHECK_URL}")
        }
        other => sanitize(&root_cause(other).to_string()),
    }
}

/// Returns the reason why a request was not answered at all.
fn transport_error(error: &reqwest::Error) -> String {
    if error.is_connect() && error.is_timeout() {
        return format!(
            "no connection within {} seconds. Check `url` in its configuration and your network.",
            CONNECT_TIMEOUT.as_secs()
        );
    }
    if causes(error).any(|error| error.to_string() == "dns error") {
        return format!("unknown host. {CHECK_URL}");
    }
    let cause = root_cause(error).to_string();
    let cause = sanitize(cause.split(" (os error").next().unwrap_or_default());
    let mut letters = cause.chars();
    let cause = letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters);
    let cause: String = cause.collect();
    match error.is_connect() {
        true => format!("{cause}. Check that it is running and that `url` in its configuration is correct."),
        false => cause,
    }
}

/// Returns the innermost cause, which is the most specific one.
fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    causes(error).last().unwrap_or(error)
}

/// Returns an error and its sources, outermost first.
pub(super) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}
