//! Placeholders for values that differ from run to run.

/// Text with placeholders for session ids, dates, times of day and elapsed times.
pub(crate) fn redacted(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ":.-".contains(c);
    let mut shown = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find(is_part) {
        let (before, from) = rest.split_at(begin);
        let length = from.find(|c| !is_part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(length);
        shown.push_str(before);
        let (value, end) = word.split_at(word.trim_end_matches([':', '.', '-']).len());
        shown.push_str(&placeholder(value).unwrap_or_else(|| with_ids_replaced(value)));
        shown.push_str(end);
        rest = after;
    }
    shown + rest
}

fn placeholder(word: &str) -> Option<String> {
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let are_numbers = |separator: char, count: usize| {
        word.split(separator).count() == count && word.split(separator).all(are_digits)
    };
    if word.len() == 10 && word.starts_with("20") && are_numbers('-', 3) {
        return Some("DATE".to_owned());
    }
    let is_timestamp = word.len() == 20 && word.starts_with("20") && word.ends_with('Z');
    if is_timestamp && word.as_bytes()[10] == b'T' {
        return Some("TIME".to_owned());
    }
    if word.len() == 8 && are_numbers(':', 3) {
        return Some("TIME".to_owned());
    }
    let is_elapsed =
        |seconds: &str| seconds.split_once('.').is_some_and(|(a, b)| are_digits(a) && are_digits(b));
    let seconds = word.strip_suffix('s')?;
    let is_minutes =
        seconds.split_once('m').is_some_and(|(a, b)| are_digits(a) && b.len() == 2 && are_digits(b));
    (is_elapsed(seconds) || is_minutes).then(|| "TIME".to_owned())
}

/// The ids of children end in `.1-0` and the like, which stays.
fn with_ids_replaced(word: &str) -> String {
    let parts = word.split_inclusive([':', '.', '-']).map(|part| {
        let (name, end) = part.split_at(part.trim_end_matches([':', '.', '-']).len());
        if is_session_id(name) { format!("ID{end}") } else { part.to_owned() }
    });
    parts.collect()
}

/// A random id need not contain a digit, but it is never one letter repeated, as the unknown ids of tests are.
fn is_session_id(word: &str) -> bool {
    let is_base32 = word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'));
    word.len() == 26 && is_base32 && word.bytes().collect::<std::collections::BTreeSet<u8>>().len() >= 5
}

#[test]
fn redacted_text_has_placeholders_for_ids_and_times_only() {
    let id = "abcdefghijklmnopqrstuvwxyz";
    for (text, expected) in [
        (format!("brigade sessions show {id}"), "brigade sessions show ID"),
        (format!("({id}.1-0.2-1): 2026-11-16 10:02:33 UTC"), "(ID.1-0.2-1): DATE TIME UTC"),
        (format!("session={id}: done in 10.3s."), "session=ID: done in TIME."),
        ("stored 2026-11-16T10:02:33Z by lead".to_owned(), "stored TIME by lead"),
        ("after 1m02s, at most 10s or 300ms".to_owned(), "after TIME, at most 10s or 300ms"),
        (format!("no session {}", "a".repeat(26)), "no session aaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ("version 0.1.0 at http://127.0.0.1:9/v1".to_owned(), "version 0.1.0 at http://127.0.0.1:9/v1"),
    ] {
        assert_eq!(redacted(&text), expected);
    }
}
