//! Selects the part of a text that matches a query. SQLite's own function takes time quadratic in the number of
//! hits: one entry that repeats a word would delay every search for seconds.

use brigade_core::text::truncate_bytes;

/// Length of a snippet.
const SNIPPET_BYTES: usize = 360;
/// Length of the text before the first match.
const LEAD_BYTES: usize = 60;
/// Maximum number of query words: one bit each.
const MAX_TERMS: usize = 32;

/// Returns the part of the text with the most distinct words of the query, or its beginning if none matches.
pub(super) fn snippet(text: &str, query: &str) -> String {
    let terms: Vec<String> = words(query).take(MAX_TERMS).map(|(_, word)| word.to_lowercase()).collect();
    let hits: Vec<(usize, u32)> = words(text)
        .filter_map(|(at, word)| {
            let word = word.to_lowercase();
            let bits = terms.iter().enumerate().filter(|(_, term)| word.starts_with(term.as_str()));
            let bits = bits.fold(0, |bits, (index, _)| bits | 1u32 << index);
            (bits != 0).then_some((at, bits))
        })
        .collect();
    excerpt_at(text, best_window(&hits))
}

/// Finds the start of the window with the most distinct words, which is the first of them. Each hit enters and
/// leaves once.
fn best_window(hits: &[(usize, u32)]) -> usize {
    let mut counts = [0u32; MAX_TERMS];
    let (mut most, mut place, mut end) = (0, 0, 0);
    for (index, (at, bits)) in hits.iter().enumerate() {
        while let Some((_, entering)) =
            hits.get(end).filter(|(other, _)| *other < at + SNIPPET_BYTES - LEAD_BYTES)
        {
            for_each_bit(*entering, |bit| counts[bit] += 1);
            end += 1;
        }
        let different = counts.iter().filter(|count| **count > 0).count();
        if different > most {
            (most, place) = (different, *at);
        }
        if index < end {
            for_each_bit(*bits, |bit| counts[bit] -= 1);
        }
    }
    place
}

fn for_each_bit(bits: u32, mut visit: impl FnMut(usize)) {
    (0..MAX_TERMS).filter(|bit| bits >> bit & 1 == 1).for_each(&mut visit);
}

fn excerpt_at(text: &str, place: usize) -> String {
    let mut start = place.saturating_sub(LEAD_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let part = truncate_bytes(&text[start..], SNIPPET_BYTES);
    let before = if start > 0 { "… " } else { "" };
    let after = if start + part.len() < text.len() { " …" } else { "" };
    format!("{before}{}{after}", part.trim())
}

/// Yields runs of letters and digits, with their offsets.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippet_shows_the_window_with_the_most_query_words() {
        let hay = "hay and straw, ".repeat(100);
        let text = format!("{hay}one red{hay}Two RED, äpfel{hay}");
        assert!(snippet(&text, "red two").contains("Two RED, äpfel"));
        assert!(snippet(&text, "one red two").contains("one red"), "of two equal parts the first");
        assert!(snippet(&text, "äpf").contains("äpfel"));
        assert!(snippet(&text, "zebra").starts_with("hay and straw"));
        assert_eq!(snippet("short", "or"), "short");
        assert_eq!(snippet("", "or"), "");
        assert_eq!(snippet("\u{301}ü\u{1f600}", "***"), "\u{301}ü\u{1f600}");
    }

    #[test]
    fn snippet_is_cut_at_char_boundaries() {
        let text = "ü".repeat(500) + " word " + &"ö".repeat(500);
        let shown = snippet(&text, "word");
        assert!(shown.contains("word") && shown.starts_with("… ü") && shown.ends_with("ö …"), "{shown}");
    }
}
