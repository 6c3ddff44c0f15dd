//! Timestamps of the protocol.

use jiff::Timestamp;

/// Formats a timestamp as `2026-11-16T05:51:32Z`. A time that the calendar cannot represent is shown as
/// the last one that it can.
pub(super) fn rfc3339(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_has_full_date_and_time() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(1_709_210_096_123), "2024-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_798_761_599_999), "2026-12-31T23:59:59Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-30T22:00:00Z");
    }
}
