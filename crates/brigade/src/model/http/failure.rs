//! Failures of providers, in words that say what to do.

use std::error::Error;

use serde_json::Value;

use super::super::ModelError;
use super::endpoint::Endpoint;

/// How much of a provider's message is shown.
const SHOWN: usize = 400;

const OVERFLOW: [&str; 10] = [
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context window",
    "context length",
    "context size",
    "prompt is too long",
    "input is too long",
    "too many tokens",
    "request_too_large",
];
/// Words of errors that stay, whatever their number is.
const LASTING: [&str; 9] = [
    "invalid_request",
    "authentication",
    "permission",
    "not_found",
    "insufficient_quota",
    "billing",
    "invalid_api_key",
    "model_not_found",
    "unsupported",
];

/// A reply with a status of failure.
pub(super) fn status(endpoint: &Endpoint, status: u16, retry: Option<&str>, body: &str) -> ModelError {
    let name = endpoint.name();
    let (said, kind) = message(body);
    if is_overflow(&said, &kind) && status != 429 {
        return overflow(name, &said);
    }
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    let fatal = |cure: &str| ModelError::Fatal(format!("{name} answered {status}{said}; {cure}"));
    match status {
        429 if kind.contains("insufficient_quota") || kind.contains("billing") => {
            fatal("the account has no credit left")
        }
        408 | 409 | 425 | 429 | 500.. => {
            let wait = retry.map(plain).filter(|wait| !wait.is_empty());
            let wait = wait.map(|wait| format!(" (Retry-After: {wait})")).unwrap_or_default();
            ModelError::Transient(format!("{name} answered {status}{said}{wait}"))
        }
        401 | 403 => fatal("check the key of this provider and what it may be used for"),
        402 => fatal("the account has no credit left"),
        404 => fatal("check the name of the model and the base_url of the provider"),
        413 => overflow(name, said.trim_start_matches(": ")),
        300..=399 => fatal("redirects are not followed; write the final address as base_url"),
        _ => fatal("asking again would not help"),
    }
}

/// A reply that succeeded and is no stream.
pub(super) fn no_stream(endpoint: &Endpoint, kind: &str, body: &str) -> ModelError {
    let (said, _) = message(body);
    ModelError::Transient(format!(
        "{} answered with {} instead of an event stream; check the base_url of the provider: {said}",
        endpoint.name(),
        plain(kind)
    ))
}

/// An error inside a stream: the provider's own object.
pub(in super::super) fn in_stream(endpoint: &Endpoint, error: &Value) -> ModelError {
    let name = endpoint.name();
    // The key is taken out before the text is shortened, so that no half of it is left.
    let hidden: Value = serde_json::from_str(&endpoint.hide(error.to_string())).unwrap_or_default();
    let (said, kind) = read(&hidden);
    if is_overflow(&said, &kind) {
        return overflow(name, &said);
    }
    let said = if said.is_empty() { "it does not say why".to_owned() } else { said };
    let code = error.get("code").or_else(|| error.get("status_code")).and_then(Value::as_u64);
    let lasts = match code {
        Some(408 | 409 | 425 | 429) | Some(500..) => false,
        Some(400..=499) => true,
        Some(_) | None => LASTING.iter().any(|word| kind.contains(word)),
    };
    match lasts {
        true => ModelError::Fatal(format!("{name} refused in the middle of its reply: {said}")),
        false => ModelError::Transient(format!("{name} failed in the middle of its reply: {said}")),
    }
}

/// A stream that is not what the API promises.
pub(in super::super) fn refused(endpoint: &Endpoint, what: &str) -> ModelError {
    ModelError::Transient(format!("{} sent a reply that cannot be used: {what}", endpoint.name()))
}

/// No answer came at all.
pub(super) fn unreachable(endpoint: &Endpoint, error: &reqwest::Error) -> ModelError {
    let name = endpoint.name();
    if error.is_builder() {
        return ModelError::Fatal(format!("the request to {name} cannot be made: {}", innermost(error)));
    }
    if error.is_connect() {
        let cause = if error.is_timeout() { "it takes too long".to_owned() } else { innermost(error) };
        return ModelError::Transient(format!(
            "{name} cannot be reached: {cause}; check that it runs and that its base_url is right"
        ));
    }
    broken(endpoint, error)
}

/// The connection broke within the exchange.
pub(super) fn broken(endpoint: &Endpoint, error: &reqwest::Error) -> ModelError {
    let name = endpoint.name();
    if error.is_timeout() {
        let limit = endpoint.total_limit().as_secs_f64();
        return ModelError::Transient(format!("{name} took longer than {limit} s for one reply"));
    }
    ModelError::Transient(format!("the connection to {name} broke off: {}", innermost(error)))
}

/// The cause below all others; the outer ones carry addresses.
pub(super) fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    plain(&error.to_string())
}

fn overflow(name: &str, said: &str) -> ModelError {
    let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
    ModelError::Overflow(format!(
        "the conversation is longer than the context window of the model of {name}{said}; give smaller parts to \
         agents, or choose a model with a larger window"
    ))
}

fn is_overflow(said: &str, kind: &str) -> bool {
    let said = said.to_lowercase();
    OVERFLOW.iter().any(|words| said.contains(words) || kind.contains(words))
}

/// What a body says, and the words for its kind.
fn message(body: &str) -> (String, String) {
    match serde_json::from_str::<Value>(body) {
        // Gemini's compatible server answers with a list of one.
        Ok(Value::Array(list)) => list.first().map(read).unwrap_or_default(),
        Ok(value) => read(&value),
        Err(_) => (plain(body), String::new()),
    }
}

fn read(value: &Value) -> (String, String) {
    let inner = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
    let said = match inner {
        Value::String(text) => Some(text.as_str()),
        _ => ["message", "detail", "error"].iter().find_map(|key| inner.get(key)?.as_str()),
    };
    // OpenRouter keeps the words of whoever failed behind it apart.
    let raw = inner.pointer("/metadata/raw").and_then(Value::as_str);
    let said = [said, raw].into_iter().flatten().collect::<Vec<_>>().join(": ");
    let words = ["type", "code", "status"].iter().filter_map(|key| inner.get(key)?.as_str());
    (plain(&said), words.collect::<Vec<_>>().join(" ").to_lowercase())
}

/// Foreign text, fit to be shown in one line.
fn plain(text: &str) -> String {
    let line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let line = line.trim();
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    shown
}
