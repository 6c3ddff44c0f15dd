//! The part of a text that fits a query. SQLite has a function for it, but that one takes time with the square of the
//! hits: one entry that repeats a word would keep every search busy for seconds.

use brigade_core::text::truncate_bytes;

/// How much of a text is shown.
const SNIPPET_BYTES: usize = 360;
/// How much of it comes before the first word that fits.
const LEAD_BYTES: usize = 60;
/// How many words of a query are looked for: one bit each.
const MAX_TERMS: usize = 32;

/// The part of the text with the most different words of the query; its beginning where none is found.
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

/// Where the window begins that holds the most different words: the first of them. Each hit enters and leaves once.
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

/// Runs of letters and digits, with their places.
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
