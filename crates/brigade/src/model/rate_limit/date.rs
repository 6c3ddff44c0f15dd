//! Dates in headers, as Unix milliseconds.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Parses an HTTP date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn parse_http_date(text: &str) -> Option<i64> {
    let (_, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let day = number(parts.next()?, 2)?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as i64 + 1;
    let year = number(parts.next()?, 4)?;
    let time = time(parts.next()?)?;
    (parts.next()? == "GMT" && parts.next().is_none()).then_some(())?;
    Some(days(year, month, day)? * 86_400_000 + time)
}

/// Parses an RFC 3339 date such as `2026-01-31T12:00:00Z`.
pub(super) fn parse_rfc3339(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let (year, month, day) =
        (number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    parts.next().is_none().then_some(())?;
    let zone = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = (rest.get(..zone)?, rest.get(zone..)?);
    Some(days(year, month, day)? * 86_400_000 + time(clock)? - offset(zone)?)
}

fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes) * 60_000)
}

/// Parses a time such as `08:49:37`, with or without a fraction.
fn time(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = whole.split(':');
    let (hours, minutes, seconds) =
        (number(parts.next()?, 2)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let fits = parts.next().is_none() && hours < 24 && minutes < 60 && seconds <= 60;
    let digits = fraction.bytes().all(|byte| byte.is_ascii_digit()) && !fraction.is_empty();
    (fits && digits).then_some(())?;
    let millis = number(&format!("{fraction:0<3}").chars().take(3).collect::<String>(), 3)?;
    Some(((hours * 60 + minutes) * 60 + seconds) * 1000 + millis)
}

/// Days since 1970-01-01 in the Gregorian calendar. Years are counted from March, so that a leap day is the
/// last of a year.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    ((1..=12).contains(&month) && (1..=31).contains(&day)).then_some(())?;
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468)
}

/// Parses a number of exactly this many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let fits = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok())?
}
