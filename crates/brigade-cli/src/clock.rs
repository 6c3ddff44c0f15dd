//! Current time, for ages and elapsed times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::civil::{Date, date};
use tokio::time::{Interval, MissedTickBehavior};

const EPOCH: Date = date(1970, 1, 1);

/// UTC milliseconds, as in the log.
#[expect(clippy::disallowed_methods, reason = "this module is the clock of the command")]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a time for display: `2026-11-16 05:51:32 UTC`. A time that the calendar cannot represent is
/// shown as the last one that it can.
pub(crate) fn format_utc(moment: u64) -> String {
    let time = i64::try_from(moment).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Ticks at an interval. Ticks that were missed are skipped.
pub(crate) fn ticks(interval: Duration) -> Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// Start of a day such as `2026-11-16`, in UTC milliseconds.
pub(crate) fn midnight(day: &str) -> Option<u64> {
    let date = day.parse::<Date>().ok().filter(|date| date.to_string() == day)?;
    u64::try_from(date.duration_since(EPOCH).as_millis()).ok()
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
