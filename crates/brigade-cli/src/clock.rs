//! What time it is, for ages and running times that are shown.

use std::time::{SystemTime, UNIX_EPOCH};

/// UTC milliseconds, as in the log.
#[expect(clippy::disallowed_methods, reason = "this module is the clock of the command")]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
