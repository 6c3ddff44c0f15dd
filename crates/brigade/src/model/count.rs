//! What nobody counted.

/// About how many bytes a token has.
const TOKEN_BYTES: usize = 4;

/// About how many tokens so many bytes are. Work that a server does not count is not free: budgets are to end somewhere.
pub(super) fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(TOKEN_BYTES) as u64
}
