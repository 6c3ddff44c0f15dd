//! Why a server elsewhere cannot be spoken to, in words for a person.

use std::error::Error;

use rmcp::service::ClientInitializeError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use url::Url;

use super::Address;
use super::connect::short;
use super::wire::{CONNECT_TIME, Failure, WireError};

/// What is there to do about most of it.
const CHECK: &str = "check `url` in its entry";

/// Refuses an address that nothing could be sent to.
pub(super) fn checked(address: &Address) -> Result<(), String> {
    match Url::parse(address.url.expose()) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
        Ok(url) => Err(format!(
            "it cannot be reached: `{}:` is no way to a server; let `url` begin with http:// or https://",
            short(url.scheme())
        )),
        Err(error) => {
            Err(format!("it cannot be reached: its `url` is no address ({error}); write https://host/path"))
        }
    }
}

/// Why a server could not be greeted.
pub(super) fn greeting(address: &Address, error: &ClientInitializeError) -> String {
    let place = shown(address);
    format!("it cannot be reached at {place}: {}", hidden(address, &refusal(error)))
}

/// Reason why a request has no answer, and whether the server may have acted on it.
pub(super) fn unanswered(address: &Address, error: &(dyn Error + 'static)) -> Lost {
    let failure = failure(error);
    let certain = match failure {
        Some(StreamableHttpError::Client(WireError::Request(error))) => {
            (error.is_connect() || error.is_builder()).then_some("the request did not come through")
        }
        Some(StreamableHttpError::Client(WireError::Ended(_)) | StreamableHttpError::Auth(_)) => {
            Some("the request was not sent")
        }
        Some(
            StreamableHttpError::Client(WireError::Refused { .. }) | StreamableHttpError::SessionExpired,
        ) => Some("the request was refused"),
        Some(StreamableHttpError::HttpStatus(answer)) if answer.status < 500 => {
            Some("the request was refused")
        }
        _ => None,
    };
    if let Some(what) = certain {
        return Lost::Unsent(format!("{what}: {}", hidden(address, &cause(error))));
    }
    let why = match failure {
        Some(StreamableHttpError::Client(WireError::Request(error))) => {
            format!("the connection broke after the request was sent ({})", unsent(error))
        }
        Some(StreamableHttpError::HttpStatus(answer)) => format!("it answered with HTTP {}", answer.status),
        Some(StreamableHttpError::UnexpectedServerResponse(what)) => what.to_string(),
        _ => cause(error),
    };
    Lost::Sent(hidden(address, &why))
}

/// A request without an answer.
pub(super) enum Lost {
    /// The server did not act on it: the whole message.
    Unsent(String),
    /// The server may have acted on it: the cause.
    Sent(String),
}

/// Where a server is, as far as that can hold no key: some servers have one in their path.
fn shown(address: &Address) -> String {
    match Url::parse(address.url.expose()) {
        Ok(url) => url.origin().ascii_serialization(),
        Err(_) => "its address".to_owned(),
    }
}

/// Words without the address, as it is written and as it is understood: it may hold a key. Error pages like to repeat
/// its path.
pub(super) fn hidden(address: &Address, words: &str) -> String {
    let written = address.url.expose();
    let words = words.replace(written, "its address");
    let Ok(url) = Url::parse(written) else { return words };
    let words = words.replace(url.as_str(), "its address");
    let words =
        url.query().filter(|query| query.len() > 3).map_or(words.clone(), |query| words.replace(query, "…"));
    match url.path().len() > 1 {
        true => words.replace(url.path(), "/…"),
        false => words,
    }
}

fn refusal(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => cause(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => refusal(fallback),
        ClientInitializeError::ConnectionClosed(_) => "it closed the connection".to_owned(),
        ClientInitializeError::JsonRpcError(error) => {
            format!("it answered with an error: {}", short(&error.message))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it speaks no version of the protocol that is known here".to_owned()
        }
        _ => format!("it does not answer as an MCP server does; {CHECK}"),
    }
}

fn cause(error: &(dyn Error + 'static)) -> String {
    match failure(error) {
        Some(failure) => failed(failure),
        None => short(&innermost(error).to_string()),
    }
}

/// The failure of the exchange, among the causes of an error.
fn failure<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Failure> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return Some(failure);
        }
        next = error.source();
    }
    None
}

fn failed(failure: &Failure) -> String {
    match failure {
        StreamableHttpError::Client(WireError::Request(error)) => unsent(error),
        StreamableHttpError::Client(error @ (WireError::Refused { .. } | WireError::Ended(_))) => {
            format!("{error}; {CHECK}")
        }
        StreamableHttpError::HttpStatus(answer) if answer.status >= 500 || answer.status == 429 => {
            format!("it answered with HTTP {}; try again later", answer.status)
        }
        StreamableHttpError::HttpStatus(answer) => {
            format!("it answered with HTTP {}; {CHECK}", answer.status)
        }
        StreamableHttpError::UnexpectedServerResponse(what) => format!("{what}; {CHECK}"),
        StreamableHttpError::UnexpectedContentType(kind) => {
            let kind = kind.as_deref().unwrap_or("no type");
            format!("it answered with {kind}, not as an MCP server does; {CHECK}")
        }
        other => short(&innermost(other).to_string()),
    }
}

/// Why a request was not answered at all.
fn unsent(error: &reqwest::Error) -> String {
    if error.is_connect() && error.is_timeout() {
        return format!("no connection within {} seconds; {CHECK} and your network", CONNECT_TIME.as_secs());
    }
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.to_string() == "dns error" {
            return format!("its host is not known; {CHECK}");
        }
        next = error.source();
    }
    let cause = innermost(error).to_string();
    let cause = short(cause.split(" (os error").next().unwrap_or_default());
    let mut letters = cause.chars();
    let cause = letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters);
    let cause: String = cause.collect();
    match error.is_connect() {
        true => format!("{cause}; check that it runs and that `url` in its entry is right"),
        false => cause,
    }
}

/// The cause below all others, which is the one that says something.
fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}
