//! Suggestions for mistyped names.

/// Candidate with the smallest edit distance. Ties are resolved by equal length, then by order.
pub(crate) fn closest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<(usize, &'a str)> {
    candidates
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
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

/// Number of characters that have to be added, removed, changed or swapped with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (row, a) in from.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, b) in to.iter().enumerate() {
            let changed = above[column] + usize::from(a != b);
            let mut least = changed.min(above[column + 1] + 1).min(current[column] + 1);
            if row > 0 && column > 0 && *a == to[column - 1] && from[row - 1] == *b {
                least = least.min(before[column - 1] + 1);
            }
            current.push(least);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_suggest_the_closest_name() {
        assert_eq!(distance("max_dept", "max_depth"), 1);
        assert_eq!(distance("enabeld", "enabled"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(closest("mdoel", ["store", "model"]), Some((1, "model")));
        assert_eq!(closest("x", []), None);
        assert_eq!(closest("modle", ["mode", "model"]), Some((1, "model")), "swapped letters are likelier");
        assert_eq!(did_you_mean("antropic", ["openai", "anthropic"]), Some("anthropic"));
        assert_eq!(did_you_mean("foo", ["groq", "vllm"]), None, "that would be a guess");
    }
}
