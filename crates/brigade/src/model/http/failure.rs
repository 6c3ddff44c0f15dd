//! Failures of providers, in words that say what to do.

use std::error::Error;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;

use super::super::ModelError;
use super::super::gate::Why;
use super::endpoint::{Endpoint, Place};
use super::proxy::TunnelError;
use super::wire::WireError;

/// How much of a provider's message is shown.
const SHOWN: usize = 400;

const OVERFLOW: [&str; 15] = [
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
/// What a whole reply has, in one API or another.
const COMPLETION: [&str; 4] = ["choices", "content", "candidates", "output"];
/// Words of errors that stay, whatever their number is.
const LASTING: [&str; 10] = [
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

/// A reply with a status of failure.
pub(super) fn status(endpoint: &Endpoint, status: u16, retry: Option<&str>, body: &str) -> ModelError {
    let name = endpoint.name();
    let (said, kind) = message(body);
    if is_overflow(&said, &kind) && status != 429 {
        return overflow(name, &said);
    }
    let said = match reason(status) {
        Some(reason) if said.is_empty() => format!(" {reason}"),
        None if said.is_empty() => String::new(),
        _ => format!(": {said}"),
    };
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
        413 => overflow(name, said.trim_start_matches([':', ' '])),
        300..=399 => fatal("redirects are not followed; write the final address as base_url"),
        _ => fatal("asking again would not help"),
    }
}

/// What came in the place of a stream.
pub(super) enum Instead {
    /// An error, or the page of a gateway: nobody worked.
    Failure(ModelError),
    /// Something else, for which the provider may have worked.
    Work(ModelError),
}

/// A reply that succeeded and is no stream.
pub(super) fn no_stream(endpoint: &Endpoint, kind: &str, body: &str) -> Instead {
    let value: Option<Value> = serde_json::from_str(body).ok();
    let value = value.as_ref().map(only);
    // Some servers fail with a status of success.
    if let Some(error) = value.and_then(|value| value.get("error")).filter(|error| !error.is_null()) {
        return Instead::Failure(judged(endpoint, error, "instead of replying"));
    }
    let (name, kind) = (endpoint.name(), plain(kind));
    let is_whole = COMPLETION.iter().any(|key| match value {
        Some(value) => value.get(key).is_some(),
        // A long reply is not read to its end.
        None => kind.contains("json") && body.contains(&format!("\"{key}\"")),
    });
    if is_whole {
        return Instead::Work(ModelError::Fatal(format!(
            "{name} answered with a whole reply ({kind}) instead of an event stream; check the base_url of the \
             provider: the server there, or a proxy before it, does not stream"
        )));
    }
    let (said, _) = message(body);
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    let error = ModelError::Transient(format!(
        "{name} answered with {kind} instead of an event stream; check the base_url of the provider{said}"
    ));
    if value.is_some() { Instead::Work(error) } else { Instead::Failure(error) }
}

/// An error inside a stream: the provider's own object.
pub(in super::super) fn in_stream(endpoint: &Endpoint, error: &Value) -> ModelError {
    judged(endpoint, error, "in the middle of its reply")
}

fn judged(endpoint: &Endpoint, error: &Value, when: &str) -> ModelError {
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
        true => ModelError::Fatal(format!("{name} refused {when}: {said}")),
        false => ModelError::Transient(format!("{name} failed {when}: {said}")),
    }
}

/// A stream that is not what the API promises.
pub(in super::super) fn refused(endpoint: &Endpoint, what: &str) -> ModelError {
    ModelError::Transient(format!("{} sent a reply that cannot be used: {what}", endpoint.name()))
}

/// The request cannot be written.
pub(super) fn unwritable(endpoint: &Endpoint, cause: &str) -> ModelError {
    ModelError::Fatal(format!("the request to {} cannot be made: {}", endpoint.name(), plain(cause)))
}

/// There is no connection, or it broke within the exchange.
pub(super) fn broken(endpoint: &Endpoint, error: WireError) -> ModelError {
    let name = endpoint.name();
    let cause = match error {
        WireError::Late => {
            format!("no connection within {} (connect_timeout)", shown(endpoint.limits().connect))
        }
        WireError::Unreachable(cause) => cause,
        WireError::Proxy(error) => return no_tunnel(name, &error),
        WireError::Broken(cause) => {
            return ModelError::Transient(format!("the connection to {name} broke off: {cause}"));
        }
    };
    let cure = match endpoint.place() {
        Place::Here => "check that it runs and that its base_url is right",
        Place::Elsewhere => "check your network connection and its base_url",
    };
    ModelError::Transient(format!("{name} cannot be reached: {cause}; {cure}"))
}

/// The proxy does not connect to the provider.
fn no_tunnel(name: &str, error: &TunnelError) -> ModelError {
    let cannot = |cure: &str| format!("cannot reach {name}: {error}. {cure}");
    match error {
        TunnelError::Unauthorised { .. } => ModelError::Fatal(cannot(
            "Set HTTPS_PROXY to http://USER:PASSWORD@HOST:PORT, or list the host of the provider in NO_PROXY.",
        )),
        TunnelError::Refused { status: 400..=499, .. } => {
            ModelError::Fatal(cannot("Ask for access, or list the host of the provider in NO_PROXY."))
        }
        TunnelError::Unreachable { .. } | TunnelError::Refused { .. } | TunnelError::NotHttp { .. } => {
            ModelError::Transient(cannot("Check HTTPS_PROXY, or list the host of the provider in NO_PROXY."))
        }
    }
}

/// The reply took too long as a whole.
pub(super) fn too_long(endpoint: &Endpoint) -> ModelError {
    let (name, limit) = (endpoint.name(), shown(endpoint.limits().total));
    ModelError::Transient(format!("{name} took longer than {limit} for one reply (total_timeout)"))
}

/// The reply did not begin in time.
pub(super) fn no_answer(endpoint: &Endpoint, limit: Duration) -> ModelError {
    let (name, limit) = (endpoint.name(), shown(limit));
    ModelError::Transient(format!("{name} did not begin to answer within {limit} (first_byte_timeout)"))
}

/// The reply began and did not go on.
pub(super) fn stalled(endpoint: &Endpoint, limit: Duration) -> ModelError {
    let (name, limit) = (endpoint.name(), shown(limit));
    ModelError::Transient(format!(
        "{name} sent nothing for {limit} in the middle of its reply (idle_timeout)"
    ))
}

/// The provider asks for more patience than there is.
pub(super) fn asks_too_much(endpoint: &Endpoint, wait: Duration) -> String {
    let (name, limit) = (endpoint.name(), shown(endpoint.gate().longest_wait()));
    format!("{name} asks to wait {}, and the longest wait is {limit} (longest_wait)", rounded(wait))
}

/// What a request waits for at the gate.
pub(super) fn waits(endpoint: &Endpoint, why: Why) -> String {
    let name = endpoint.name();
    match why {
        Why::Asked(wait) => format!("{name} asks to wait {} (rate limit)", rounded(wait)),
        Why::Busy(count) => format!("in line for {name}, which has {count} requests under way"),
        Why::Paced => format!("in line for {name}, whose requests are spread over time"),
    }
}

/// A provider that has said nothing for a while.
pub(super) fn quiet(endpoint: &Endpoint, quiet: Duration) -> String {
    format!("no word of {} for {}", endpoint.name(), rounded(quiet))
}

/// A limit as it was set.
fn shown(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}

/// A wait in whole seconds.
fn rounded(wait: Duration) -> String {
    format!("{} s", wait.as_secs_f64().round().max(1.0))
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

/// Standard reason phrase of a status, such as `Not Found`.
fn reason(status: u16) -> Option<&'static str> {
    StatusCode::from_u16(status).ok()?.canonical_reason()
}

/// What a body says, and the words for its kind. The page of a web server says nothing about the request.
fn message(body: &str) -> (String, String) {
    match serde_json::from_str::<Value>(body) {
        Ok(value) => read(only(&value)),
        Err(_) if body.trim_start().starts_with('<') => (String::new(), String::new()),
        Err(_) => (plain(body), String::new()),
    }
}

/// Gemini's servers answer with a list, of one where it is an error.
fn only(value: &Value) -> &Value {
    value.as_array().and_then(|list| list.first()).unwrap_or(value)
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
