//! What the headers of a reply say about waiting.

use std::time::Duration;

use reqwest::header::{self, HeaderMap};

use super::date;

/// Longer waits mean the same: not today.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// Larger numbers are moments, in seconds and in milliseconds since 1970.
const MIN_UNIX_SECONDS: f64 = 1e9;
const MIN_UNIX_MILLIS: f64 = 1e12;

/// A part of every name below.
const HEADER_MARKER: &str = "ratelimit";

/// The names of limit, rest and end of what is counted, in the order in which they are believed.
type HeaderNames = [&'static str; 3];

const REQUEST_HEADERS: [HeaderNames; 4] = [
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
    ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
    ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
];
const TOKEN_HEADERS: [HeaderNames; 4] = [
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
pub(in super::super) struct RateLimitHeaders {
    /// How long to wait before asking again.
    pub(super) wait: Option<Duration>,
    /// How many requests are left.
    pub(super) requests: QuotaStatus,
    /// How many tokens are left.
    pub(super) tokens: QuotaStatus,
}

/// What is left of something that the provider counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QuotaStatus {
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) reset: Option<Duration>,
}

impl RateLimitHeaders {
    /// Reads the headers. `now` is in milliseconds since 1970, for replies that do not say what time it is.
    pub(in super::super) fn read(headers: &HeaderMap, now: u64) -> RateLimitHeaders {
        // The clock of whoever wrote the other moments is the one to compare them with.
        let date = header_text(headers, header::DATE.as_str()).and_then(date::parse_http_date);
        let now = date.unwrap_or(i64::try_from(now).unwrap_or(i64::MAX));
        // Most servers count nothing, and are not asked for each of the names.
        let counts = headers.keys().any(|name| name.as_str().contains(HEADER_MARKER));
        let read = |names| if counts { tightest(headers, names, now) } else { QuotaStatus::default() };
        let (requests, tokens) = (read(&REQUEST_HEADERS), read(&TOKEN_HEADERS));
        let wait = retry_after(headers, now).or_else(|| {
            let used_up = |counted: &QuotaStatus| counted.remaining == Some(0);
            let ends = [requests, tokens].into_iter().filter(used_up).filter_map(|counted| counted.reset);
            ends.max().or(requests.reset.filter(|_| requests.remaining.is_none()))
        });
        RateLimitHeaders { wait, requests, tokens }
    }

    /// Whether the provider says when to come back.
    pub(in super::super) fn has_wait(&self) -> bool {
        self.wait.is_some()
    }
}

fn retry_after(headers: &HeaderMap, now: i64) -> Option<Duration> {
    let millis = header_text(headers, "retry-after-ms").and_then(parse_decimal);
    let wait = millis.map(|millis| clamp_seconds(millis / 1000.0));
    wait.or_else(|| {
        let text = header_text(headers, header::RETRY_AFTER.as_str())?;
        parse_decimal(text).map(clamp_seconds).or_else(|| Some(time_until(date::parse_http_date(text)?, now)))
    })
}

/// Of several counts of the same thing, the one of which least is left.
fn tightest(headers: &HeaderMap, names: &[HeaderNames], now: i64) -> QuotaStatus {
    let read = |[limit, remaining, reset]: &HeaderNames| QuotaStatus {
        limit: header_text(headers, limit).and_then(parse_count),
        remaining: header_text(headers, remaining).and_then(parse_count),
        reset: header_text(headers, reset).and_then(|text| parse_reset(text, now)),
    };
    let reported = names.iter().map(read).filter(|allowance| *allowance != QuotaStatus::default());
    // A limit of nothing is none, and any other goes before it.
    let order = |reported: &QuotaStatus| (reported.limit == Some(0), reported.remaining.unwrap_or(u64::MAX));
    reported.min_by_key(order).unwrap_or_default()
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn parse_count(text: &str) -> Option<u64> {
    parse_decimal(text).map(|number| number as u64)
}

/// The time until a moment, however it is written: `1s`, `6m0s`, `120ms`, seconds, a date or a count since 1970.
fn parse_reset(text: &str, now: i64) -> Option<Duration> {
    match parse_decimal(text) {
        Some(millis) if millis >= MIN_UNIX_MILLIS => Some(time_until(millis as i64, now)),
        Some(seconds) if seconds >= MIN_UNIX_SECONDS => Some(time_until((seconds * 1000.0) as i64, now)),
        Some(seconds) => Some(clamp_seconds(seconds)),
        None => parse_duration(text).or_else(|| {
            Some(time_until(date::parse_rfc3339(text).or_else(|| date::parse_http_date(text))?, now))
        }),
    }
}

/// A number with digits and at most one point: no sign, no exponent, no words.
fn parse_decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse::<f64>().ok())?.filter(|number| number.is_finite())
}

/// `1h2m3.5s` and the like.
fn parse_duration(text: &str) -> Option<Duration> {
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
        seconds += parse_decimal(number)? * factor;
        rest = after;
    }
    (!text.is_empty()).then(|| clamp_seconds(seconds))
}

fn time_until(moment: i64, now: i64) -> Duration {
    let millis = moment.saturating_sub(now);
    Duration::from_millis(u64::try_from(millis).unwrap_or(0)).min(MAX_WAIT)
}

fn clamp_seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(MAX_WAIT).min(MAX_WAIT)
}
