//! What the headers of a reply say about waiting.

use std::time::Duration;

use reqwest::header::{self, HeaderMap};

use super::date;

/// Longer waits mean the same: not today.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Larger numbers are moments, in seconds and in milliseconds since 1970.
const MOMENT_SECONDS: f64 = 1e9;
const MOMENT_MILLIS: f64 = 1e12;

/// A part of every name below.
const COUNTED: &str = "ratelimit";

/// The names of limit, rest and end of what is counted, in the order in which they are believed.
type Names = [&'static str; 3];

const REQUESTS: [Names; 4] = [
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
    ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
];
const TOKENS: [Names; 4] = [
    [
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ],
    [
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-remaining",
        "anthropic-ratelimit-input-tokens-reset",
    ],
    [
        "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-remaining",
        "anthropic-ratelimit-output-tokens-reset",
    ],
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
];

/// What the headers of a reply say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct Hints {
    /// How long to wait before asking again.
    pub(super) wait: Option<Duration>,
    /// How many requests are left.
    pub(super) requests: Allowance,
    /// How many tokens are left.
    pub(super) tokens: Allowance,
}

/// What is left of something that the provider counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) reset: Option<Duration>,
}

impl Hints {
    /// Reads the headers. `now` is in milliseconds since 1970, for replies that do not say what time it is.
    pub(in super::super) fn read(headers: &HeaderMap, now: u64) -> Hints {
        // The clock of whoever wrote the other moments is the one to compare them with.
        let date = text(headers, header::DATE.as_str()).and_then(date::http);
        let now = date.unwrap_or(i64::try_from(now).unwrap_or(i64::MAX));
        // Most servers count nothing, and are not asked for each of the names.
        let counts = headers.keys().any(|name| name.as_str().contains(COUNTED));
        let read = |names| if counts { scarcest(headers, names, now) } else { Allowance::default() };
        let (requests, tokens) = (read(&REQUESTS), read(&TOKENS));
        let wait = told_to_wait(headers, now).or_else(|| {
            let used_up = |counted: &Allowance| counted.remaining == Some(0);
            let ends = [requests, tokens].into_iter().filter(used_up).filter_map(|counted| counted.reset);
            ends.max().or(requests.reset.filter(|_| requests.remaining.is_none()))
        });
        Hints { wait, requests, tokens }
    }

    /// Whether the provider says when to come back.
    pub(in super::super) fn ask_to_wait(&self) -> bool {
        self.wait.is_some()
    }
}

fn told_to_wait(headers: &HeaderMap, now: i64) -> Option<Duration> {
    let millis = text(headers, "retry-after-ms").and_then(decimal);
    let wait = millis.map(|millis| bounded(millis / 1000.0));
    wait.or_else(|| {
        let text = text(headers, header::RETRY_AFTER.as_str())?;
        decimal(text).map(bounded).or_else(|| Some(until(date::http(text)?, now)))
    })
}

/// Of several counts of the same thing, the one of which least is left.
fn scarcest(headers: &HeaderMap, names: &[Names], now: i64) -> Allowance {
    let read = |[limit, remaining, reset]: &Names| Allowance {
        limit: text(headers, limit).and_then(count),
        remaining: text(headers, remaining).and_then(count),
        reset: text(headers, reset).and_then(|text| moment(text, now)),
    };
    let said = names.iter().map(read).filter(|allowance| *allowance != Allowance::default());
    // A limit of nothing is none, and any other goes before it.
    let order = |said: &Allowance| (said.limit == Some(0), said.remaining.unwrap_or(u64::MAX));
    said.min_by_key(order).unwrap_or_default()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn count(text: &str) -> Option<u64> {
    decimal(text).map(|number| number as u64)
}

/// The time until a moment, however it is written: `1s`, `6m0s`, `120ms`, seconds, a date or a count since 1970.
fn moment(text: &str, now: i64) -> Option<Duration> {
    match decimal(text) {
        Some(millis) if millis >= MOMENT_MILLIS => Some(until(millis as i64, now)),
        Some(seconds) if seconds >= MOMENT_SECONDS => Some(until((seconds * 1000.0) as i64, now)),
        Some(seconds) => Some(bounded(seconds)),
        None => units(text).or_else(|| Some(until(date::rfc3339(text).or_else(|| date::http(text))?, now))),
    }
}

/// A number with digits and at most one point: no sign, no exponent, no words.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse::<f64>().ok())?.filter(|number| number.is_finite())
}

/// `1h2m3.5s` and the like.
fn units(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
        let (number, unit) = rest.split_at(digits);
        let letters = unit.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(unit.len());
        let (unit, after) = unit.split_at(letters);
        let factor = match unit {
            "d" => 86_400.0,
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            "us" => 0.000_001,
            "ns" => 0.000_000_001,
            _ => return None,
        };
        seconds += decimal(number)? * factor;
        rest = after;
    }
    (!text.is_empty()).then(|| bounded(seconds))
}

fn until(moment: i64, now: i64) -> Duration {
    let millis = moment.saturating_sub(now);
    Duration::from_millis(u64::try_from(millis).unwrap_or(0)).min(LONGEST)
}

fn bounded(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
}
