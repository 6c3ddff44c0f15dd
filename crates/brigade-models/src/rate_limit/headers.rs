//! Rate-limit headers of a reply.

use std::time::Duration;

use hyper::header::{self, HeaderMap};

use super::date;

/// Longer waits are capped to a day.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// Larger numbers are Unix times, in seconds and in milliseconds.
const MIN_UNIX_SECONDS: f64 = 1e9;
const MIN_UNIX_MILLIS: f64 = 1e12;

/// Substring of every header name below.
const HEADER_MARKER: &str = "ratelimit";

/// Header names in order of precedence. `*` is one of `limit`, `remaining` and `reset`.
const REQUEST_HEADERS: [&str; 4] =
    ["anthropic-ratelimit-requests-*", "x-ratelimit-*-requests", "x-ratelimit-*", "ratelimit-*"];
const TOKEN_HEADERS: [&str; 4] = [
    "anthropic-ratelimit-tokens-*",
    "anthropic-ratelimit-input-tokens-*",
    "anthropic-ratelimit-output-tokens-*",
    "x-ratelimit-*-tokens",
];

/// Rate-limit information from the headers of a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct RateLimitHeaders {
    /// Time to wait before the next request.
    pub(super) wait: Option<Duration>,
    /// Remaining requests.
    pub(super) requests: QuotaStatus,
    /// Remaining tokens.
    pub(super) tokens: QuotaStatus,
}

/// Remaining amount of a quota that the provider counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QuotaStatus {
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) reset: Option<Duration>,
}

impl RateLimitHeaders {
    /// Parses the headers. `now` is in Unix milliseconds and is used for replies without a date.
    pub(in super::super) fn read(headers: &HeaderMap, now: u64) -> RateLimitHeaders {
        // Times in the other headers are relative to the clock of the server that wrote them.
        let date = header_text(headers, header::DATE.as_str()).and_then(date::parse_http_date);
        let now = date.unwrap_or(i64::try_from(now).unwrap_or(i64::MAX));
        // Most servers send no quotas, so individual names are looked up only if one can be present.
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

    /// Whether the provider says when to retry.
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

/// Returns the quota with the least remaining, out of several for the same resource.
fn tightest(headers: &HeaderMap, names: &[&str], now: i64) -> QuotaStatus {
    let read = |name: &&str| {
        let text = |value: &str| header_text(headers, &name.replace('*', value));
        QuotaStatus {
            limit: text("limit").and_then(parse_count),
            remaining: text("remaining").and_then(parse_count),
            reset: text("reset").and_then(|text| parse_reset(text, now)),
        }
    };
    let reported = names.iter().map(read).filter(|allowance| *allowance != QuotaStatus::default());
    // A limit of 0 means no limit. Any other quota takes precedence.
    let order = |reported: &QuotaStatus| (reported.limit == Some(0), reported.remaining.unwrap_or(u64::MAX));
    reported.min_by_key(order).unwrap_or_default()
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn parse_count(text: &str) -> Option<u64> {
    parse_decimal(text).map(|number| number as u64)
}

/// Parses the time until a reset: `1s`, `6m0s`, `120ms`, seconds, a date or a Unix time.
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

/// Parses a number made of digits and at most one point, without sign or exponent.
fn parse_decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse::<f64>().ok())?.filter(|number| number.is_finite())
}

/// Parses durations such as `1h2m3.5s`.
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
