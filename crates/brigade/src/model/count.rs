//! What nobody counted.

use brigade_core::Usage;

/// About how many bytes a token has.
const TOKEN_BYTES: usize = 4;

/// What a server counted, and an estimate from the bytes of request and reply for what it did not: servers that do not
/// count leave the number out, or say 0.
pub(super) fn or_estimate(counted: Usage, asked_bytes: usize, said_bytes: usize) -> Usage {
    let input = if counted.input_total() == 0 { tokens(asked_bytes) } else { counted.input };
    let output = if counted.output == 0 { tokens(said_bytes) } else { counted.output };
    Usage { input, output, ..counted }
}

/// About how many tokens so many bytes are. Work that a server does not count is not free: budgets are to end somewhere.
fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(TOKEN_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_is_estimated() {
        let counted = Usage { input: 7, output: 3, ..Usage::default() };
        assert_eq!(or_estimate(counted, 400, 80), counted);
        assert_eq!(
            or_estimate(Usage::default(), 400, 81),
            Usage { input: 100, output: 21, ..Usage::default() }
        );
        let cached = Usage { cache_read: 9, ..Usage::default() };
        assert_eq!(or_estimate(cached, 400, 0), cached, "all of it may come from the cache");
    }
}
