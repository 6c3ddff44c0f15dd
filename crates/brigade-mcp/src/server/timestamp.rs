//! Timestamps of the protocol.

const DAY_MILLIS: u64 = 86_400_000;

/// Formats UTC milliseconds as ISO 8601: `2026-11-16T05:51:32.007Z`.
pub(crate) fn iso8601(millis: u64) -> String {
    let (year, month, day) = date(millis / DAY_MILLIS);
    let (milli, second) = (millis % 1000, millis % DAY_MILLIS / 1000);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Converts a day since 1970 to year, month and day. Internally years start in March, so the leap day is the
/// last day.
fn date(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, if month < 10 { month + 3 } else { month - 9 });
    (if month <= 2 { year + 1 } else { year }, month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millis_are_formatted_as_iso_8601() {
        assert_eq!(iso8601(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso8601(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(iso8601(1_794_808_292_007), "2026-11-16T05:51:32.007Z");
        assert_eq!(iso8601(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
    }
}
