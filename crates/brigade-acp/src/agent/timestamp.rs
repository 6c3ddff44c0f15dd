//! Timestamps of the protocol.

const DAY_MILLIS: u64 = 86_400_000;
/// The last timestamp with a four-digit year.
const MAX_MILLIS: u64 = 253_402_300_799_999;

/// Formats a timestamp as `2026-11-16T05:51:32Z`.
pub(super) fn rfc3339(millis: u64) -> String {
    let millis = millis.min(MAX_MILLIS);
    let (mut year, mut day) = (1970, millis / DAY_MILLIS);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    while day >= days_in_month(year, month) {
        day -= days_in_month(year, month);
        month += 1;
    }
    let second = millis % DAY_MILLIS / 1000;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1, day + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Number of days in a month, counted from 0.
fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        1 => 28 + u64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_has_full_date_and_time() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(1_709_210_096_123), "2024-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_798_761_599_999), "2026-12-31T23:59:59Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59Z");
    }
}
