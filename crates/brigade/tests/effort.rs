//! Size of the tests that repeat something many times.

/// Returns `all` if the variable `THOROUGH` is set, as `scripts/test` does, and otherwise `some`.
#[expect(clippy::disallowed_methods, reason = "the environment says how thorough the tests are")]
pub(crate) fn some_or_all<T>(some: T, all: T) -> T {
    if std::env::var_os("THOROUGH").is_some() { all } else { some }
}
