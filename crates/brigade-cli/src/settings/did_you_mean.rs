//! Suggestions for mistyped names.

use strsim::osa_distance;

/// Candidate with the smallest edit distance. Ties are resolved by equal length, then by order.
pub(crate) fn closest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<(usize, &'a str)> {
    candidates
        .into_iter()
        .map(|candidate| (osa_distance(name, candidate), candidate))
        .min_by_key(|(distance, candidate)| (*distance, name.len().abs_diff(candidate.len())))
}

/// Candidate that is likely meant. `None` if there is no close one.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = match name.chars().count() {
        0..=2 => 1,
        3..=7 => 2,
        _ => 3,
    };
    closest(name, candidates).filter(|(distance, _)| *distance <= max_distance).map(|(_, near)| near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_suggest_the_closest_name() {
        assert_eq!(closest("max_dept", ["max_depth"]), Some((1, "max_depth")));
        assert_eq!(closest("", ["abc"]), Some((3, "abc")));
        assert_eq!(closest("mdoel", ["store", "model"]), Some((1, "model")));
        assert_eq!(closest("x", []), None);
        assert_eq!(closest("modle", ["mode", "model"]), Some((1, "model")), "swapped letters are likelier");
        assert_eq!(did_you_mean("antropic", ["openai", "anthropic"]), Some("anthropic"));
        assert_eq!(did_you_mean("foo", ["groq", "vllm"]), None, "that would be a guess");
    }
}
