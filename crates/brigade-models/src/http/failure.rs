//! Error messages for failed requests to providers.

use std::error::Error;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;

use super::super::ModelError;
use super::super::rate_limit::WaitReason;
use super::endpoint::{Endpoint, Locality};
use super::pool::ConnectionError;
use super::proxy::TunnelError;

/// Maximum length of a provider's message in an error.
const MAX_MESSAGE_CHARS: usize = 400;

const OVERFLOW_PHRASES: [&str; 15] = [
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context window",
    "context length",
    "context size",
    "context limit",
    "maximum prompt length",
    "maximum model length",
    "max_model_len",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "exceeds the maximum number of tokens",
    "request_too_large",
];
/// Keys of a complete reply in the various APIs.
const COMPLETION_KEYS: [&str; 4] = ["choices", "content", "candidates", "output"];
/// Error types that are permanent, whatever the status.
const FATAL_ERROR_KINDS: [&str; 10] = [
    "invalid_request",
    "invalid_prompt",
    "authentication",
    "permission",
    "not_found",
    "insufficient_quota",
    "billing",
    "invalid_api_key",
    "model_not_found",
    "unsupported",
];

/// Error for a response with a failure status.
pub(super) fn status(endpoint: &Endpoint, status: u16, retry: Option<&str>, body: &str) -> ModelError {
    let name = endpoint.name();
    let (message, kind) = parse_error_body(body);
    if is_overflow(&message, &kind) && status != 429 {
        return overflow(name, &message);
    }
    let message = match reason(status) {
        Some(reason) if message.is_empty() => format!(" {reason}"),
        None if message.is_empty() => String::new(),
        _ => format!(": {message}"),
    };
    let fatal = |hint: &str| {
        let message = message.trim_end_matches('.');
        ModelError::Fatal(format!("{name} returned {status}{message}. {hint}"))
    };
    match status {
        429 if kind.contains("insufficient_quota") || kind.contains("billing") => {
            fatal("The account has no credit left. Add credit, or choose another provider.")
        }
        408 | 409 | 425 | 429 | 500.. => {
            let wait = retry.map(sanitize).filter(|wait| !wait.is_empty());
            let wait = wait.map(|wait| format!(" (Retry-After: {wait})")).unwrap_or_default();
            ModelError::Transient(format!("{name} returned {status}{message}{wait}"))
        }
        401 | 403 => fatal("Check the provider's API key and its permissions."),
        402 => fatal("The account has no credit left. Add credit, or choose another provider."),
        404 => fatal("Check the model name and the provider's `base_url`."),
        413 => overflow(name, message.trim_start_matches([':', ' '])),
        300..=399 => fatal("Redirects are not followed. Set `base_url` to the final URL."),
        _ => fatal("A retry would not help."),
    }
}

/// A response that is not a stream.
pub(super) enum NonStreamReply {
    /// An error, or a gateway's page. The provider did no work.
    Failure(ModelError),
    /// Another response, for which the provider may charge.
    Billable(ModelError),
}

/// Classifies a successful response that is not a stream.
pub(super) fn non_stream_reply(endpoint: &Endpoint, kind: &str, body: &str) -> NonStreamReply {
    let value: Option<Value> = serde_json::from_str(body).ok();
    let value = value.as_ref().map(first_or_self);
    // Some servers report errors with a success status.
    if let Some(error) = value.and_then(|value| value.get("error")).filter(|error| !error.is_null()) {
        return NonStreamReply::Failure(classify(endpoint, error, "instead of a reply"));
    }
    let (name, kind) = (endpoint.name(), sanitize(kind));
    let is_whole = COMPLETION_KEYS.iter().any(|key| match value {
        Some(value) => value.get(key).is_some(),
        // A long body is not read to its end, so it may not parse.
        None => kind.contains("json") && body.contains(&format!("\"{key}\"")),
    });
    if is_whole {
        return NonStreamReply::Billable(ModelError::Fatal(format!(
            "{name} sent a complete reply ({kind}) instead of an event stream. Check the provider's `base_url`: the \
             server, or a proxy in front of it, does not support streaming."
        )));
    }
    let (message, _) = parse_error_body(body);
    let message = if message.is_empty() { String::new() } else { format!(" ({message})") };
    let error = ModelError::Transient(format!(
        "{name} returned {kind} instead of an event stream{message}. Check the provider's `base_url`."
    ));
    if value.is_some() { NonStreamReply::Billable(error) } else { NonStreamReply::Failure(error) }
}

/// Error for an error object inside a stream.
pub(in super::super) fn stream_error(endpoint: &Endpoint, error: &Value) -> ModelError {
    classify(endpoint, error, "in the middle of its reply")
}

fn classify(endpoint: &Endpoint, error: &Value, when: &str) -> ModelError {
    let name = endpoint.name();
    // The key is redacted before the text is shortened, so that no part of it remains.
    let hidden: Value = serde_json::from_str(&endpoint.redact(error.to_string())).unwrap_or_default();
    let (message, kind) = message_and_kind(&hidden);
    if is_overflow(&message, &kind) {
        return overflow(name, &message);
    }
    let message = if message.is_empty() { "no cause given".to_owned() } else { message };
    let code = error.get("code").or_else(|| error.get("status_code")).and_then(Value::as_u64);
    let is_fatal = match code {
        Some(408 | 409 | 425 | 429) | Some(500..) => false,
        Some(400..=499) => true,
        Some(_) | None => FATAL_ERROR_KINDS.iter().any(|word| kind.contains(word)),
    };
    match is_fatal {
        true => ModelError::Fatal(format!("{name} sent an error {when}: {message}")),
        false => ModelError::Transient(format!("{name} sent an error {when}: {message}")),
    }
}

/// Error for a stream that violates the API.
pub(in super::super) fn invalid_reply(endpoint: &Endpoint, what: &str) -> ModelError {
    ModelError::Transient(format!("invalid reply from {}: {what}", endpoint.name()))
}

/// Error for a request that cannot be built.
pub(super) fn invalid_request(endpoint: &Endpoint, cause: &dyn Error) -> ModelError {
    let cause = sanitize(&cause.to_string());
    ModelError::Fatal(format!("cannot build the request to {}: {cause}", endpoint.name()))
}

/// Error for a connection that failed or broke.
pub(super) fn connection_error(endpoint: &Endpoint, error: ConnectionError) -> ModelError {
    let name = endpoint.name();
    let cause = match error {
        ConnectionError::TimedOut => {
            format!(
                "no connection within {} (`connect_timeout`)",
                format_seconds(endpoint.timeouts().connect)
            )
        }
        ConnectionError::Unreachable(cause) => cause,
        ConnectionError::Proxy(error) => return tunnel_error(name, &error),
        ConnectionError::Broken(cause) => {
            return ModelError::Transient(format!("the connection to {name} was lost: {cause}"));
        }
    };
    let hint = match endpoint.locality() {
        Locality::Local => "Check that it is running and that its `base_url` is correct.",
        Locality::Remote => "Check your network connection and the provider's `base_url`.",
    };
    ModelError::Transient(format!("cannot reach {name}: {cause}. {hint}"))
}

/// Error for a failed connection through a proxy.
fn tunnel_error(name: &str, error: &TunnelError) -> ModelError {
    let cannot = |hint: &str| format!("cannot reach {name}: {error}. {hint}");
    match error {
        TunnelError::Unauthorised { .. } => ModelError::Fatal(cannot(
            "Set HTTPS_PROXY to http://USER:PASSWORD@HOST:PORT, or add the provider's host to NO_PROXY.",
        )),
        TunnelError::Refused { status: 400..=499, .. } => ModelError::Fatal(cannot(
            "Request access through the proxy, or add the provider's host to NO_PROXY.",
        )),
        TunnelError::Unreachable { .. } | TunnelError::Refused { .. } | TunnelError::NotHttp { .. } => {
            ModelError::Transient(cannot("Check HTTPS_PROXY, or add the provider's host to NO_PROXY."))
        }
    }
}

/// Error for a reply that took too long as a whole.
pub(super) fn total_timeout(endpoint: &Endpoint) -> ModelError {
    let (name, limit) = (endpoint.name(), format_seconds(endpoint.timeouts().total));
    ModelError::Transient(format!("{name} took longer than {limit} for one reply (`total_timeout`)"))
}

/// Error for a reply that did not start in time.
pub(super) fn first_byte_timeout(endpoint: &Endpoint, limit: Duration) -> ModelError {
    let (name, limit) = (endpoint.name(), format_seconds(limit));
    ModelError::Transient(format!("{name} did not start to respond within {limit} (`first_byte_timeout`)"))
}

/// Error for a reply that stalled.
pub(super) fn idle_timeout(endpoint: &Endpoint, limit: Duration) -> ModelError {
    let (name, limit) = (endpoint.name(), format_seconds(limit));
    ModelError::Transient(format!(
        "{name} sent nothing for {limit} in the middle of its reply (`idle_timeout`)"
    ))
}

/// Message about a requested wait that exceeds the limit.
pub(super) fn wait_too_long(endpoint: &Endpoint, wait: Duration) -> String {
    let (name, limit) = (endpoint.name(), format_seconds(endpoint.rate_limiter().longest_wait()));
    format!(
        "{name} requested a wait of {}, but the limit is {limit} (`longest_wait`)",
        format_rounded_seconds(wait)
    )
}

/// Message about the reason why a request is queued.
pub(super) fn wait_message(endpoint: &Endpoint, reason: WaitReason) -> String {
    let name = endpoint.name();
    match reason {
        WaitReason::RetryAfter(wait) => {
            format!("{name} requested a wait of {} (rate limit)", format_rounded_seconds(wait))
        }
        WaitReason::Busy(count) => format!("queued for {name} (requests in flight: {count})"),
        WaitReason::Paced => format!("queued for {name}: requests are rate limited"),
    }
}

/// Message about a provider that has been silent for a while.
pub(super) fn silence_message(endpoint: &Endpoint, quiet: Duration) -> String {
    format!("no response from {} for {}", endpoint.name(), format_rounded_seconds(quiet))
}

/// Formats a configured limit.
fn format_seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}

/// Formats a wait in whole seconds.
fn format_rounded_seconds(wait: Duration) -> String {
    format!("{} s", wait.as_secs_f64().round().max(1.0))
}

/// Returns the innermost cause. The outer ones contain addresses.
pub(super) fn root_cause(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    sanitize(&error.to_string())
}

fn overflow(name: &str, message: &str) -> ModelError {
    let message = if message.is_empty() { String::new() } else { format!(" ({message})") };
    ModelError::Overflow(format!(
        "the conversation exceeds the context window of the {name} model{message}. Delegate smaller parts, or choose a \
         model with a larger context window."
    ))
}

fn is_overflow(message: &str, kind: &str) -> bool {
    let message = message.to_lowercase();
    OVERFLOW_PHRASES.iter().any(|phrase| message.contains(phrase) || kind.contains(phrase))
}

/// Returns the standard reason phrase of a status, such as `Not Found`.
fn reason(status: u16) -> Option<&'static str> {
    StatusCode::from_u16(status).ok()?.canonical_reason()
}

/// Returns the message and the error type in a body. A web server's HTML page says nothing about the request.
fn parse_error_body(body: &str) -> (String, String) {
    match serde_json::from_str::<Value>(body) {
        Ok(value) => message_and_kind(first_or_self(&value)),
        Err(_) if body.trim_start().starts_with('<') => (String::new(), String::new()),
        Err(_) => (sanitize(body), String::new()),
    }
}

/// Unwraps a list, because Gemini's servers send errors as a list with one element.
fn first_or_self(value: &Value) -> &Value {
    value.as_array().and_then(|list| list.first()).unwrap_or(value)
}

fn message_and_kind(value: &Value) -> (String, String) {
    let inner = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
    let message = match inner {
        Value::String(text) => Some(text.as_str()),
        _ => ["message", "detail", "error"].iter().find_map(|key| inner.get(key)?.as_str()),
    };
    // OpenRouter reports the upstream provider's message separately.
    let raw = inner.pointer("/metadata/raw").and_then(Value::as_str);
    let message = [message, raw].into_iter().flatten().collect::<Vec<_>>().join(": ");
    let kinds = ["type", "code", "status"].iter().filter_map(|key| inner.get(key)?.as_str());
    (sanitize(&message), kinds.collect::<Vec<_>>().join(" ").to_lowercase())
}

/// Makes untrusted text fit for display in one line.
fn sanitize(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let line = line.trim();
    let mut shown: String = line.chars().take(MAX_MESSAGE_CHARS).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    shown
}
