//! Character references.

use std::borrow::Cow;

/// Maximum length of a known reference name.
const MAX_NAME_BYTES: usize = 8;

/// Names of the Latin-1 characters from 160 on, in order.
const LATIN1_NAMES: [&str; 96] = [
    "nbsp", "iexcl", "cent", "pound", "curren", "yen", "brvbar", "sect", "uml", "copy", "ordf", "laquo",
    "not", "shy", "reg", "macr", "deg", "plusmn", "sup2", "sup3", "acute", "micro", "para", "middot",
    "cedil", "sup1", "ordm", "raquo", "frac14", "frac12", "frac34", "iquest", "Agrave", "Aacute", "Acirc",
    "Atilde", "Auml", "Aring", "AElig", "Ccedil", "Egrave", "Eacute", "Ecirc", "Euml", "Igrave", "Iacute",
    "Icirc", "Iuml", "ETH", "Ntilde", "Ograve", "Oacute", "Ocirc", "Otilde", "Ouml", "times", "Oslash",
    "Ugrave", "Uacute", "Ucirc", "Uuml", "Yacute", "THORN", "szlig", "agrave", "aacute", "acirc", "atilde",
    "auml", "aring", "aelig", "ccedil", "egrave", "eacute", "ecirc", "euml", "igrave", "iacute", "icirc",
    "iuml", "eth", "ntilde", "ograve", "oacute", "ocirc", "otilde", "ouml", "divide", "oslash", "ugrave",
    "uacute", "ucirc", "uuml", "yacute", "thorn", "yuml",
];

/// Other named references that pages use.
const NAMED_ENTITIES: [(&str, char); 74] = [
    ("amp", '&'),
    ("AMP", '&'),
    ("lt", '<'),
    ("LT", '<'),
    ("gt", '>'),
    ("GT", '>'),
    ("quot", '"'),
    ("QUOT", '"'),
    ("apos", '\''),
    ("ndash", '–'),
    ("mdash", '—'),
    ("lsquo", '‘'),
    ("rsquo", '’'),
    ("sbquo", '‚'),
    ("ldquo", '“'),
    ("rdquo", '”'),
    ("bdquo", '„'),
    ("hellip", '…'),
    ("bull", '•'),
    ("dagger", '†'),
    ("Dagger", '‡'),
    ("permil", '‰'),
    ("prime", '′'),
    ("Prime", '″'),
    ("lsaquo", '‹'),
    ("rsaquo", '›'),
    ("euro", '€'),
    ("trade", '™'),
    ("larr", '←'),
    ("uarr", '↑'),
    ("rarr", '→'),
    ("darr", '↓'),
    ("harr", '↔'),
    ("rArr", '⇒'),
    ("hArr", '⇔'),
    ("forall", '∀'),
    ("part", '∂'),
    ("exist", '∃'),
    ("empty", '∅'),
    ("isin", '∈'),
    ("prod", '∏'),
    ("sum", '∑'),
    ("minus", '−'),
    ("radic", '√'),
    ("infin", '∞'),
    ("cap", '∩'),
    ("cup", '∪'),
    ("int", '∫'),
    ("asymp", '≈'),
    ("ne", '≠'),
    ("equiv", '≡'),
    ("le", '≤'),
    ("ge", '≥'),
    ("sub", '⊂'),
    ("sup", '⊃'),
    ("check", '✓'),
    ("alpha", 'α'),
    ("beta", 'β'),
    ("gamma", 'γ'),
    ("delta", 'δ'),
    ("epsilon", 'ε'),
    ("lambda", 'λ'),
    ("mu", 'μ'),
    ("pi", 'π'),
    ("sigma", 'σ'),
    ("omega", 'ω'),
    ("Delta", 'Δ'),
    ("Omega", 'Ω'),
    ("ensp", ' '),
    ("emsp", ' '),
    ("thinsp", ' '),
    ("lbrack", '['),
    ("rbrack", ']'),
    ("num", '#'),
];

/// Characters of the numeric references from 128 on, which old pages use with their Windows-1252 meaning.
const WINDOWS_1252: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}',
    '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// Resolves the references in a text. An unknown name stays as it is.
pub(super) fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        decoded.push_str(before);
        match reference(after) {
            Some((letter, length)) => {
                decoded.push(letter);
                rest = after.get(length..).unwrap_or_default();
            }
            None => {
                decoded.push('&');
                rest = after;
            }
        }
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

/// Returns the character of a reference, and its length in bytes after the `&`.
fn reference(after: &str) -> Option<(char, usize)> {
    if let Some(number) = after.strip_prefix('#') {
        let (digits, radix, mark) = match number.strip_prefix(['x', 'X']) {
            Some(digits) => (digits, 16, 2),
            None => (number, 10, 1),
        };
        let length = digits.bytes().take_while(|byte| char::from(*byte).is_digit(radix)).count();
        if length == 0 {
            return None;
        }
        let semicolon = usize::from(digits.as_bytes().get(length) == Some(&b';'));
        let number = u32::from_str_radix(digits.get(..length)?, radix).unwrap_or(u32::MAX);
        return Some((numbered(number), mark + length + semicolon));
    }
    let length = after.bytes().take(MAX_NAME_BYTES + 1).take_while(u8::is_ascii_alphanumeric).count();
    let name = after.get(..length)?;
    let letter = named(name)?;
    match after.as_bytes().get(length) {
        Some(b';') => Some((letter, length + 1)),
        // Without a semicolon only the oldest references are recognised, and in the query of a URL not even those.
        next if matches!(letter, '&' | '<' | '>' | '"') && next != Some(&b'=') => Some((letter, length)),
        _ => None,
    }
}

fn named(name: &str) -> Option<char> {
    let other = NAMED_ENTITIES.iter().find(|(known, _)| *known == name).map(|(_, letter)| *letter);
    other.or_else(|| {
        let at = LATIN1_NAMES.iter().position(|known| *known == name)?;
        char::from_u32(160 + u32::try_from(at).ok()?)
    })
}

fn numbered(number: u32) -> char {
    let windows = number.checked_sub(128).and_then(|at| WINDOWS_1252.get(usize::try_from(at).ok()?));
    match windows {
        Some(letter) => *letter,
        None => {
            char::from_u32(number).filter(|letter| *letter != '\0').unwrap_or(char::REPLACEMENT_CHARACTER)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_resolves_character_references() {
        for (text, expected) in [
            ("a", "a"),
            ("Q&amp;A &lt;b&gt; &quot;x&quot; &apos;", "Q&A <b> \"x\" '"),
            ("&nbsp;&yuml;&eacute;&szlig;&times;&rarr;&mdash;", "\u{a0}ÿéß×→—"),
            ("&#65;&#x42;&#x1D11E;&#150;&#0;&#xD800;&#99999999999;", "AB\u{1d11e}–\u{fffd}\u{fffd}\u{fffd}"),
            ("AT&T & co &unknown; &; &#; &#x; &é", "AT&T & co &unknown; &; &#; &#x; &é"),
            ("a &amp b &lt", "a & b <"),
            ("?a=1&lt=2&copy=3", "?a=1&lt=2&copy=3"),
        ] {
            assert_eq!(decode(text), expected);
        }
    }
}
