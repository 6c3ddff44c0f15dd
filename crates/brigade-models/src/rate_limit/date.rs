//! Dates in headers, as Unix milliseconds.

use jiff::Timestamp;
use jiff::civil::{DateTime, date};
use jiff::fmt::strtime;

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

/// Parses an HTTP date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn parse_http_date(text: &str) -> Option<i64> {
    let time = strtime::parse("%a, %d %b %Y %H:%M:%S GMT", text).ok()?.to_datetime().ok()?;
    i64::try_from(time.duration_since(EPOCH).as_millis()).ok()
}

/// Parses an RFC 3339 date such as `2026-01-31T12:00:00Z`.
pub(super) fn parse_rfc3339(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}
