//! Plausibility checks of reported usage.

use brigade_core::Usage;

use super::Chunk;
use super::http::ChunkBuffer;

/// Approximate bytes per token.
const BYTES_PER_TOKEN: usize = 4;
/// Maximum plausible average of bytes per token.
const MAX_BYTES_PER_TOKEN: usize = 16;

/// Usage of a reply, and how much of it is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckedUsage {
    pub(super) usage: Usage,
    estimated: u64,
}

impl CheckedUsage {
    /// Checks reported usage. A count that is absent or implausibly low for this many bytes is replaced by an
    /// estimate, so that budgets are enforced whatever a server reports.
    pub(super) fn new(counted: Usage, request_bytes: usize, reply_bytes: usize) -> CheckedUsage {
        let cached = counted.cache_read.saturating_add(counted.cache_write);
        let input = plausible(counted.input_total(), request_bytes).saturating_sub(cached);
        let usage = Usage { input, output: plausible(counted.output, reply_bytes), ..counted };
        let changed = |booked: u64, counted: u64| if booked == counted { 0 } else { booked };
        let estimated =
            changed(usage.input, counted.input).saturating_add(changed(usage.output, counted.output));
        CheckedUsage { usage, estimated }
    }

    /// Emits the usage of a complete reply.
    pub(super) fn emit(self, chunks: &mut ChunkBuffer) {
        chunks.extend((self.estimated > 0).then_some(Chunk::Estimated(self.estimated)));
        chunks.push(Chunk::Usage(self.usage));
    }
}

fn plausible(counted: u64, bytes: usize) -> u64 {
    let least = bytes.div_ceil(MAX_BYTES_PER_TOKEN) as u64;
    if counted < least { bytes.div_ceil(BYTES_PER_TOKEN) as u64 } else { counted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(usage: Usage, request_bytes: usize, reply_bytes: usize) -> (Usage, u64) {
        let counted = CheckedUsage::new(usage, request_bytes, reply_bytes);
        (counted.usage, counted.estimated)
    }

    #[test]
    fn plausible_counts_are_kept() {
        let usage = Usage { input: 25, output: 5, ..Usage::default() };
        assert_eq!(counted(usage, 400, 80), (usage, 0));
        let cached = Usage { cache_read: 25, ..Usage::default() };
        assert_eq!(counted(cached, 400, 0), (cached, 0), "all of it may come from the cache");
    }

    #[test]
    fn absent_counts_are_estimated() {
        let estimate = Usage { input: 100, output: 21, ..Usage::default() };
        assert_eq!(counted(Usage::default(), 400, 81), (estimate, 121));
    }

    #[test]
    fn counts_below_a_sixteenth_of_the_bytes_are_estimated_separately() {
        let low = Usage { input: 1, output: 1, ..Usage::default() };
        let estimate = Usage { input: 10_000, output: 1, ..Usage::default() };
        assert_eq!(counted(low, 40_000, 16), (estimate, 10_000));
        let estimate = Usage { input: 1, output: 5, ..Usage::default() };
        assert_eq!(counted(low, 16, 17), (estimate, 5));
        let cached = Usage { input: 1, cache_read: 9, output: 2, ..Usage::default() };
        let estimate = Usage { input: 9_991, ..cached };
        assert_eq!(counted(cached, 40_000, 16), (estimate, 9_991));
    }
}
