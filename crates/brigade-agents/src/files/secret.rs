//! API keys in the text of a definition, which must not appear in messages.

/// Finds the values after `api_key` in a text, even if the rest of it is malformed.
pub(super) fn find_secrets(text: &str) -> Vec<String> {
    let mut found: Vec<String> = text.lines().filter_map(secret_of).collect();
    // Longer keys come first, because a longer key may contain a shorter one.
    found.sort_by_key(|key| std::cmp::Reverse(key.len()));
    found
}

fn secret_of(line: &str) -> Option<String> {
    let starts = line.bytes().enumerate().filter(|(_, byte)| byte.eq_ignore_ascii_case(&b'a'));
    let named = starts.filter_map(|(at, _)| line.get(at..)).find(|rest| names_a_key(rest))?;
    let rest = named.split_once([':', '='])?.1;
    let quotes = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '{' | '}' | '&' | '|' | '>');
    let key = rest.trim_matches(quotes);
    (key.len() >= 4).then(|| key.to_owned())
}

fn names_a_key(text: &str) -> bool {
    let letters = text.chars().take(8).filter(|c| !matches!(c, '_' | '-'));
    let mut letters = letters.map(|c| c.to_ascii_lowercase());
    "apikey".chars().all(|letter| letters.next() == Some(letter))
}

/// Removes the secrets from a text.
pub(super) fn redact(secrets: &[String], text: String) -> String {
    secrets.iter().fold(text, |text, secret| match text.contains(secret.as_str()) {
        true => text.replace(secret.as_str(), "(api_key)"),
        false => text,
    })
}
