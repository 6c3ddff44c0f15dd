//! Turns that make the same calls and get the same results, one after the other.

use crate::id::Hash;

/// How often the last exchange of calls and results has happened in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Repeats {
    exchange: Option<Hash>,
    count: u32,
    is_warned: bool,
}

impl Repeats {
    /// Takes the calls and results of a turn whose calls are all answered.
    pub(super) fn turn_ended(&mut self, exchange: Option<Hash>) {
        if exchange.is_some() && self.exchange == exchange {
            self.count = self.count.saturating_add(1);
        } else {
            *self = Repeats { exchange, count: 1, is_warned: false };
        }
    }

    /// The runtime has said something to the agent.
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
