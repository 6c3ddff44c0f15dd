//! Deviation of a model's token counts from estimates by bytes.

use super::OpenCall;
use crate::money::Usage;

/// Minimum tokens per KiB that every reserve assumes: half a token for each byte.
const MIN_TOKENS_PER_KIB: u64 = 512;
/// Maximum tokens per KiB of any tokeniser: one token for each byte.
const MAX_TOKENS_PER_KIB: u64 = 1024;
/// Number of new bytes below which a difference reveals nothing about tokens per byte.
const MIN_SAMPLE_BYTES: u64 = 2048;

/// Worst values that a session has observed of its model; they enter the reserve of every later call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenEstimator {
    /// Tokens per KiB of input.
    tokens_per_kib: u64,
    /// Input tokens beyond the bytes, in a request of which the model has counted no part yet.
    first_extra: u64,
    /// The same, in a request that continues one that the model has counted.
    next_extra: u64,
    /// Output tokens above the requested maximum.
    output_extra: u64,
}

impl Default for TokenEstimator {
    fn default() -> TokenEstimator {
        TokenEstimator { tokens_per_kib: MIN_TOKENS_PER_KIB, first_extra: 0, next_extra: 0, output_extra: 0 }
    }
}

impl TokenEstimator {
    /// Returns the upper bound of a request's input tokens: `counted` by the model before, and `bytes` since.
    pub(super) fn max_input(&self, counted: u64, bytes: u64) -> u64 {
        counted.saturating_add(self.tokens_for_bytes(bytes)).saturating_add(self.extra(counted))
    }

    /// Returns the most likely input tokens of a request: a token for three bytes, or more if the session has
    /// observed more.
    pub(super) fn likely_input(&self, counted: u64, bytes: u64) -> u64 {
        let usual = bytes.div_ceil(3);
        let seen = if self.tokens_per_kib > MIN_TOKENS_PER_KIB { self.tokens_for_bytes(bytes) } else { 0 };
        counted.saturating_add(usual.max(seen)).saturating_add(self.extra(counted))
    }

    pub(super) fn output_extra(&self) -> u64 {
        self.output_extra
    }

    fn tokens_for_bytes(&self, bytes: u64) -> u64 {
        ceil_div(u128::from(bytes) * u128::from(self.tokens_per_kib), 1024)
    }

    fn extra(&self, counted: u64) -> u64 {
        if counted == 0 { self.first_extra } else { self.next_extra }
    }

    /// Compares the usage of a call with its reserve. `counted` is the part of the request that the model had
    /// counted before the call.
    pub(super) fn observe(&mut self, call: &OpenCall, counted: u64, usage: Usage) {
        // Logs of earlier versions do not contain the estimate.
        if call.input == 0 {
            return;
        }
        let asked = call.reserved.tokens.saturating_sub(call.input).saturating_sub(self.output_extra);
        self.output_extra = self.output_extra.max(usage.output.saturating_sub(asked));
        let estimated = call.input.saturating_sub(counted).saturating_sub(self.extra(counted));
        let bytes =
            u64::try_from(u128::from(estimated) * 1024 / u128::from(self.tokens_per_kib)).unwrap_or(u64::MAX);
        let seen = usage.input_total().saturating_sub(counted);
        if bytes >= MIN_SAMPLE_BYTES {
            let tokens_per_kib = ceil_div(u128::from(seen) * 1024, u128::from(bytes));
            self.tokens_per_kib = self.tokens_per_kib.max(tokens_per_kib.min(MAX_TOKENS_PER_KIB));
        }
        let unexplained = seen.saturating_sub(self.tokens_for_bytes(bytes));
        let extra = if counted == 0 { &mut self.first_extra } else { &mut self.next_extra };
        *extra = (*extra).max(unexplained);
    }
}

fn ceil_div(number: u128, by: u128) -> u64 {
    u64::try_from(number.div_ceil(by.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Resources;
    use crate::state::Purpose;

    fn call(input: u64, output: u64) -> OpenCall {
        let reserved = Resources { tokens: input + output, ..Resources::default() };
        OpenCall { turn: 1, attempt: 1, purpose: Purpose::Turn, reserved, input }
    }

    fn usage(input: u64, output: u64) -> Usage {
        Usage { input, output, ..Usage::default() }
    }

    #[test]
    fn dense_tokenizer_raises_tokens_per_kib() {
        let mut estimator = TokenEstimator::default();
        assert_eq!(estimator.max_input(0, 8192), 4096);
        estimator.observe(&call(4096, 100), 0, usage(7168, 50));
        assert_eq!(estimator.max_input(0, 8192), 7168);
        assert_eq!(estimator.max_input(7218, 1024), 7218 + 896);
        assert_eq!(estimator.likely_input(0, 8192), 7168);
    }

    #[test]
    fn prompt_added_by_a_proxy_is_a_fixed_extra() {
        let mut estimator = TokenEstimator::default();
        estimator.observe(&call(2048, 100), 0, usage(20_000, 50));
        assert_eq!(estimator.max_input(0, 4096), 20_000, "one token a byte, and the rest is fixed");
        assert_eq!(estimator.max_input(20_050, 0), 20_050, "what the model has counted has the extra in it");
    }

    #[test]
    fn small_differences_do_not_change_tokens_per_byte() {
        let mut estimator = TokenEstimator::default();
        estimator.observe(&call(1005, 100), 1000, usage(1030, 5));
        assert_eq!(estimator.max_input(2000, 100_000), 2000 + 50_000 + 25);
    }

    #[test]
    fn output_above_the_maximum_is_counted_once() {
        let mut estimator = TokenEstimator::default();
        estimator.observe(&call(1000, 100), 0, usage(900, 350));
        assert_eq!(estimator.output_extra(), 250);
        // The next reserve includes the extra, so the same overshoot changes nothing.
        estimator.observe(&call(1000, 350), 0, usage(900, 350));
        assert_eq!(estimator.output_extra(), 250);
    }

    #[test]
    fn call_without_an_estimate_or_usage_changes_nothing() {
        let mut estimator = TokenEstimator::default();
        estimator.observe(&call(0, 100), 0, usage(20_000, 500));
        estimator.observe(&call(4096, 100), 0, usage(0, 0));
        assert_eq!(estimator, TokenEstimator::default());
    }

    #[test]
    fn huge_reports_do_not_overflow() {
        let mut estimator = TokenEstimator::default();
        estimator.observe(&call(u64::MAX / 2, 1), 0, usage(u64::MAX, u64::MAX));
        estimator.observe(&call(1, 1), u64::MAX, usage(u64::MAX, u64::MAX));
        assert_eq!(estimator.max_input(u64::MAX, u64::MAX), u64::MAX);
    }
}
