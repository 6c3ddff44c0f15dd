//! Path patterns of permission rules, and paths prepared for comparison.

use globset::{Glob, GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};
use unicode_normalization::UnicodeNormalization;

use super::{Match, RuleError};

/// Maximum length of a path on any file system; a longer one is not compared.
const MAX_PATH_BYTES: usize = 4096;

pub(super) struct PathRule {
    /// Pattern as `allow` reads it.
    exact: GlobMatcher,
    /// Whether the pattern itself is about paths outside the workspace.
    outside: bool,
    /// Patterns as `deny` and `ask` read them.
    generous: GlobSet,
    /// The same patterns, normalised for comparison with the normalised path.
    folded: GlobSet,
}

impl PathRule {
    /// Compiles a pattern.
    pub(super) fn parse(pattern: &str) -> Result<Self, RuleError> {
        let invalid =
            |reason: &str| RuleError::Path { pattern: pattern.to_owned(), reason: reason.to_owned() };
        let unreadable = |error: globset::Error| invalid(&error.kind().to_string());
        if pattern.chars().any(char::is_control) {
            return Err(invalid("it contains a control character"));
        }
        if pattern.starts_with('!') {
            return Err(invalid("a rule cannot be negated"));
        }
        if matches_separator(pattern) {
            return Err(invalid("a character class must not match `/`; a negated class does"));
        }
        let mut normalized = normalize(pattern);
        let dots = |text: &str| text.split('/').filter(|part| *part == "..").count();
        if dots(pattern) != dots(&normalized) {
            return Err(invalid("`..` is allowed only at the start"));
        }
        if normalized.is_empty() {
            // The rule names the workspace itself, as in `read_file(.)`.
            normalized.push_str("**");
        }
        let below = pattern.ends_with('/');
        let generous = generous_patterns(&normalized, below);
        let folded: Vec<String> = generous.iter().map(|text| fold(text)).collect();
        let is_anchored = pattern.starts_with("./") || normalized.contains('/');
        let exact = match (below, is_anchored) {
            (true, _) => format!("{}/**", normalized.trim_end_matches('/')),
            (false, true) => normalized.clone(),
            (false, false) => format!("**/{normalized}"),
        };
        Ok(PathRule {
            exact: glob(&exact).map_err(unreadable)?.compile_matcher(),
            outside: is_outside(&normalized),
            generous: set(&generous).map_err(unreadable)?,
            folded: set(&folded).map_err(unreadable)?,
        })
    }

    /// Returns the pattern as `allow` reads it.
    pub(super) fn pattern(&self) -> &str {
        self.exact.glob().glob()
    }

    /// Whether an `allow` rule covers the path. A pattern for the workspace never covers a path outside it.
    pub(super) fn allows(&self, target: &NormalizedPath) -> bool {
        target.is_valid && self.outside == target.is_outside() && self.exact.is_match(&target.path)
    }

    /// Whether a `deny` or `ask` rule covers the path.
    pub(super) fn binds(&self, target: &NormalizedPath) -> Match {
        if !target.is_valid {
            return Match::Maybe;
        }
        let outside = target.is_outside();
        let found = names(&target.path, outside).any(|path| self.generous.is_match(path))
            || names(&target.folded, outside).any(|path| self.folded.is_match(path));
        if found { Match::Yes } else { Match::No }
    }
}

/// Returns a pattern that matches only this path; `None` if the path has the form of a folder.
pub(super) fn literal(path: &str) -> Option<String> {
    if path.ends_with('/') || normalize(path).is_empty() {
        return None;
    }
    // Otherwise a bare name would match in every folder.
    let mut pattern = if path.contains('/') { String::new() } else { "./".to_owned() };
    for letter in path.chars() {
        if "*?[]{}\\!".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    Some(pattern)
}

/// Returns the patterns of a `deny` or `ask` rule.
fn generous_patterns(normalized: &str, below: bool) -> Vec<String> {
    let base = normalized.trim_end_matches('/');
    let mut all = vec![normalized.to_owned()];
    // A leading slash may have been meant as the root of the workspace, as in a `.gitignore`.
    if let Some(inner) = normalized.strip_prefix('/') {
        all.push(inner.to_owned());
    }
    if !base.contains('/') {
        all.push(format!("**/{base}"));
    }
    let last = base.rsplit('/').next().unwrap_or(base);
    for index in 0..all.len() {
        let Some(text) = all.get(index).cloned() else { continue };
        if let Some(directory) = text.strip_suffix("/**") {
            // Listing a directory reads its content.
            all.push(directory.to_owned());
        }
        if below || !last.contains(['*', '?', '[', ']', '{', '}', '\\']) {
            all.push(format!("{}/**", text.trim_end_matches('/')));
        }
    }
    all
}

/// Whether a character class would match the separator, which would let an `allow` rule cross directories.
fn matches_separator(pattern: &str) -> bool {
    let letters: Vec<char> = pattern.chars().collect();
    let spans = |window: &[char]| matches!(window, [from, '-', to] if (from..=to).contains(&&'/'));
    pattern.contains("[!")
        || pattern.contains("[^")
        || (pattern.contains('[') && letters.windows(3).any(spans))
}

fn glob(pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build()
}

fn set(patterns: &[String]) -> Result<GlobSet, globset::Error> {
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        builder.add(glob(pattern)?);
    }
    builder.build()
}

/// Path, prepared to be compared with many patterns.
pub(super) struct NormalizedPath {
    path: String,
    folded: String,
    /// Whether a file system could accept the text as a path.
    is_valid: bool,
}

impl NormalizedPath {
    pub(super) fn new(path: &str) -> Self {
        let is_valid = path.len() <= MAX_PATH_BYTES && !path.contains('\0');
        let path = if is_valid { normalize(path) } else { String::new() };
        NormalizedPath { folded: fold(&path), path, is_valid }
    }

    /// Returns the path without `.` and `..`.
    pub(super) fn text(&self) -> &str {
        &self.path
    }

    /// Whether the path leads out of the workspace, or may do so.
    pub(super) fn is_outside(&self) -> bool {
        !self.is_valid || is_outside(&self.path)
    }
}

/// Yields every name that the path may have in the workspace. An absolute path, or one that climbs out, may lead
/// back into the workspace, and only the tool knows where that is. So each of its suffixes is compared as well.
fn names(path: &str, outside: bool) -> impl Iterator<Item = &str> {
    let tails = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
    std::iter::once(path).chain(tails.take(if outside { usize::MAX } else { 0 }))
}

fn is_outside(path: &str) -> bool {
    path.starts_with('/') || path == ".." || path.starts_with("../")
}

/// Removes `.` and empty components and resolves `..` lexically.
fn normalize(path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if absolute { format!("/{joined}") } else { joined }
}

/// Maps names that some file system treats as the same file to one text. Upper case comes first because letters
/// such as the long s share a capital with another letter but no small letter.
pub(super) fn fold(path: &str) -> String {
    path.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfc().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalize_resolves_dots_without_leaving_the_root() {
        for (path, expected) in [
            ("/../etc/./x//y", "/etc/x/y"),
            ("/a/../../b", "/b"),
            ("../a/..", ".."),
            ("a/../../b", "../b"),
            ("a/b/..", "a"),
            ("./", ""),
            ("/", "/"),
        ] {
            assert_eq!(normalize(path), expected, "{path}");
        }
    }
}
