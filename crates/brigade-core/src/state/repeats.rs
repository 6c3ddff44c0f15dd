//! Detection of consecutive turns with the same calls and results.

use crate::id::Hash;

/// Number of consecutive repetitions of the last exchange of calls and results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Repeats {
    exchange: Option<Hash>,
    count: u32,
    is_warned: bool,
}

impl Repeats {
    /// Records the calls and results of a completed turn.
    pub(super) fn turn_ended(&mut self, exchange: Option<Hash>) {
        if exchange.is_some() && self.exchange == exchange {
            self.count = self.count.saturating_add(1);
        } else {
            *self = Repeats { exchange, count: 1, is_warned: false };
        }
    }

    /// Records that the runtime warned the agent.
    pub(super) fn mark_warned(&mut self) {
        self.is_warned |= self.count > 1;
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn is_warned(&self) -> bool {
        self.is_warned
    }
}
