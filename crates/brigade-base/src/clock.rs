//! Wall clock. The time is read nowhere else.

/// Returns the current UTC time in milliseconds.
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
