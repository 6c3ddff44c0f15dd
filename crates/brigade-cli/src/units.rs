//! Parsing and formatting of durations, money and counts. Money is never parsed as a float.

use std::fmt::Display;
use std::time::Duration;

use brigade_core::Spent;
pub(crate) use brigade_core::amount::{dollars_as_f64, exact_dollars, parse_count, parse_dollars};

use crate::clock;

const BILLION: u64 = 1_000_000_000;

/// Text that is not a duration or a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidTime {
    /// Not a duration.
    #[error("'{0}' is not a duration. Use a form such as 500ms, 30s, 10m, 2h, 1h30m or 2d")]
    Duration(String),
    /// Duration of 0.
    #[error("'{0}' is too short. Use at least 1ms")]
    Zero(String),
    /// Neither a duration nor a day.
    #[error("'{0}' is not a time. Use an age such as 30m, 12h or 2d, or a day such as 2026-11-16")]
    Since(String),
}

/// Parses a duration: `500ms`, `30s`, `10m`, `2h`, `1h30m`, `2d`. A plain number is seconds.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, InvalidTime> {
    let refuse = || InvalidTime::Duration(text.to_owned());
    let mut rest = text.trim();
    let mut millis: u64 = 0;
    if rest.is_empty() {
        return Err(refuse());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().map_err(|_| refuse())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let factor = match &rest[..letters] {
            "ms" => 1,
            "s" => 1000,
            "" if rest.is_empty() && millis == 0 => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(refuse()),
        };
        rest = &rest[letters..];
        millis = number.checked_mul(factor).and_then(|more| millis.checked_add(more)).ok_or_else(refuse)?;
    }
    if millis == 0 {
        return Err(InvalidTime::Zero(text.to_owned()));
    }
    Ok(Duration::from_millis(millis))
}

/// Start of a time range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// Duration before now.
    Ago(Duration),
    /// Time in UTC milliseconds.
    At(u64),
}

impl Since {
    /// Start time in UTC milliseconds.
    pub(crate) fn moment(self) -> u64 {
        match self {
            Since::Ago(time) => {
                clock::now().saturating_sub(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
            Since::At(moment) => moment,
        }
    }
}

/// Parses a duration before now, or a day such as `2026-11-16`, which starts at midnight UTC.
pub(crate) fn parse_since(text: &str) -> Result<Since, InvalidTime> {
    if let Some(moment) = clock::midnight(text.trim()) {
        return Ok(Since::At(moment));
    }
    parse_duration(text).map(Since::Ago).map_err(|_| InvalidTime::Since(text.to_owned()))
}

/// Formats nano-dollars for a sentence: two to four digits, rounded up.
pub(crate) fn format_dollars_brief(nano: u64) -> String {
    let parts = nano.div_ceil(100_000);
    let digits = format!("{:04}", parts % 10_000);
    let digits = match digits.trim_end_matches('0') {
        short if short.len() < 2 => &digits[..2],
        short => short,
    };
    format!("${}.{digits}", parts / 10_000)
}

/// Formats nano-dollars with four digits, rounded up so that no cost looks like zero.
pub(crate) fn format_dollars(nano: u64) -> String {
    let parts = nano.div_ceil(100_000);
    format!("${}.{:04}", parts / 10_000, parts % 10_000)
}

/// Formats the cost of a usage. A cost that an external agent did not report is not zero.
pub(crate) fn format_cost(spent: &Spent) -> String {
    match (spent.usd, spent.cost_unreported) {
        (0, 1..) => "not reported".to_owned(),
        _ => brief_cost(spent),
    }
}

/// Formats a cost for a narrow column: `-` if it is unknown, and a plus sign if only a part is known.
pub(crate) fn brief_cost(spent: &Spent) -> String {
    match (spent.usd, spent.cost_unreported.saturating_add(spent.unpriced)) {
        (0, 1..) => "-".to_owned(),
        (usd, 0) => format_dollars(usd),
        (usd, _) => format!("{}+", format_dollars(usd)),
    }
}

/// Formats the price of a million tokens exactly, with at least two digits.
pub(crate) fn format_price(nano: u64) -> String {
    let exact = exact_dollars(nano);
    let (whole, fraction) = exact.split_once('.').unwrap_or((&exact, ""));
    format!("{whole}.{fraction:0<2}")
}

/// Formats a number in at most five characters.
pub(crate) fn format_compact(number: u64) -> String {
    let with_digit =
        |unit: u64, letter: char| format!("{}.{}{letter}", number / unit, number % unit / (unit / 10));
    match number {
        0..=9_999 => number.to_string(),
        10_000..=999_999 => format!("{}k", number / 1000),
        1_000_000..=9_999_999 => with_digit(1_000_000, 'M'),
        10_000_000..=999_999_999 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / BILLION),
    }
}

/// Number with a noun, in the plural unless it is 1.
pub(crate) fn count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Formats an elapsed time.
pub(crate) fn format_elapsed(millis: u64) -> String {
    match millis / 1000 {
        0..=59 => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
        seconds @ 60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Formats an age.
pub(crate) fn format_age(millis: u64) -> String {
    match millis / 1000 {
        seconds @ 0..=59 => format!("{seconds}s"),
        seconds @ 60..=3599 => format!("{}m", seconds / 60),
        seconds @ 3600..=86_399 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Formats a duration in the form that `parse_duration` accepts.
pub(crate) fn format_duration(millis: u64) -> String {
    match millis {
        0 => "1ms".to_owned(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1000) => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        let read = |text: &str| parse_duration(text).map(|found| found.as_millis());
        assert_eq!(read("10m"), Ok(600_000));
        assert_eq!(read("1h30m"), Ok(5_400_000));
        assert_eq!(read("250ms"), Ok(250));
        assert_eq!(read("2d"), Ok(172_800_000));
        assert_eq!(read("90"), Ok(90_000));
        for wrong in ["", "m", "10x", "-1s", "1.5h", "0s", "99999999999999999999s", "10m5", "10 m"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn since_accepts_days_and_durations() {
        assert_eq!(parse_since("2d"), Ok(Since::Ago(Duration::from_secs(172_800))));
        assert_eq!(parse_since("1970-01-02"), Ok(Since::At(86_400_000)));
        for wrong in ["", "yesterday", "2026-13-01", "2026-02-30", "2026-1-1", "16.11.2026"] {
            assert!(parse_since(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn money_is_exact() {
        assert_eq!(parse_dollars("0.1"), Ok(100_000_000));
        assert_eq!(parse_dollars("$2"), Ok(2_000_000_000));
        assert_eq!(parse_dollars("0.000000001"), Ok(1));
        assert_eq!(parse_dollars(".5"), Ok(500_000_000));
        for wrong in ["", ".", "-1", "1e3", "1,5", "0.0000000001", "99999999999999999999"] {
            assert!(parse_dollars(wrong).is_err(), "{wrong}");
        }
        assert_eq!(exact_dollars(1_230_000_000), "1.23");
        assert_eq!(format_dollars(1), "$0.0001");
        assert_eq!(format_dollars(0), "$0.0000");
        let shown: Vec<String> = [3_000_000_000, 2_500_000_000, 3_625_000, 0].map(format_price).into();
        assert_eq!(shown, ["3.00", "2.50", "0.003625", "0.00"]);
    }

    #[test]
    fn cost_that_is_not_known_does_not_look_free() {
        let spent =
            |usd, cost_unreported, unpriced| Spent { usd, cost_unreported, unpriced, ..Spent::default() };
        let shown = |usd, unreported, unpriced| {
            let spent = spent(usd, unreported, unpriced);
            (format_cost(&spent), brief_cost(&spent))
        };
        let same = |text: &str| (text.to_owned(), text.to_owned());
        assert_eq!(shown(0, 0, 0), same("$0.0000"));
        assert_eq!(shown(0, 0, 2), same("-"));
        assert_eq!(shown(1, 0, 2), same("$0.0001+"));
        assert_eq!(shown(1, 1, 0), same("$0.0001+"));
        assert_eq!(shown(0, 1, 1), ("not reported".to_owned(), "-".to_owned()));
    }

    #[test]
    fn numbers_stay_short() {
        let shown: Vec<String> = [0, 9_999, 10_000, 1_234_567, 45_000_000].map(format_compact).into();
        assert_eq!(shown, ["0", "9999", "10k", "1.2M", "45M"]);
        assert_eq!(format_duration(parse_duration("90m").map_or(0, |d| d.as_millis() as u64)), "90m");
        assert_eq!(
            (format_elapsed(1_250), format_elapsed(65_000), format_age(7_200_000)),
            ("1.2s".into(), "1m05s".into(), "2h".into())
        );
    }
}
