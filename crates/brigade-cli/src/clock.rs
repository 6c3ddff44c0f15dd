//! Current time, for ages and elapsed times.

use std::time::{SystemTime, UNIX_EPOCH};

/// UTC milliseconds, as in the log.
#[expect(clippy::disallowed_methods, reason = "this module is the clock of the command")]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

const DAY_MS: u64 = 86_400_000;

/// Formats a time for display: `2026-11-16 05:51:32 UTC`.
pub(crate) fn format_utc(moment: u64) -> String {
    let (year, month, day) = date(moment / DAY_MS);
    let second = moment % DAY_MS / 1000;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Start of a day such as `2026-11-16`, in UTC milliseconds.
pub(crate) fn midnight(day: &str) -> Option<u64> {
    let parts: Vec<u64> = day.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [year, month, of_month] = parts[..] else { return None };
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    // A day of up to 31 may not exist in a shorter month. Converting the result back shows whether it does.
    let first = (0..month - 1).map(|before| days_in_month(year, before)).sum::<u64>() + days_before(year);
    let moment = (first + of_month.checked_sub(1)?).checked_mul(DAY_MS)?;
    format_utc(moment).starts_with(day).then_some(moment).filter(|_| day.len() == 10)
}

/// Days from 1970 to the start of a year.
fn days_before(year: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Days in a month, which is counted from 0.
fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        1 => 28 + u64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// Year, month and day of the month of a day since 1970.
fn date(day: u64) -> (u64, u64, u64) {
    // No year is longer than 366 days, so this starts at or before the right year.
    let mut year = 1970 + day / 366;
    while days_before(year + 1) <= day {
        year += 1;
    }
    let mut left = day - days_before(year);
    let mut month = 0;
    while left >= days_in_month(year, month) {
        left -= days_in_month(year, month);
        month += 1;
    }
    (year, month + 1, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_formatted_as_utc_dates() {
        let format_utc: Vec<String> =
            [0, 951_782_400_000, 1_709_164_799_999, 4_107_542_399_000].map(format_utc).into();
        let expected = [
            "1970-01-01 00:00:00 UTC",
            "2000-02-29 00:00:00 UTC",
            "2024-02-28 23:59:59 UTC",
            "2100-02-28 23:59:59 UTC",
        ];
        assert_eq!(format_utc, expected);
    }

    #[test]
    fn days_are_parsed() {
        assert_eq!(midnight("2000-02-29"), Some(951_782_400_000));
        assert_eq!(midnight("2024-12-31").map(super::format_utc).as_deref(), Some("2024-12-31 00:00:00 UTC"));
        for wrong in
            ["2023-02-29", "2023-04-31", "1969-01-01", "2023-00-01", "2023-01-00", "2023-1-01", "2023"]
        {
            assert_eq!(midnight(wrong), None, "{wrong}");
        }
    }
}
