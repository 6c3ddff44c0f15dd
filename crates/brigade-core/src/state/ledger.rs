//! The books of a round: spent + reserved + lent never exceed what was granted.

use crate::delegation::Which;
use crate::grant::{Budget, Limit};
use crate::money::{Amount, Price, Spent};
use crate::state::Purpose;

/// The output that the grace call asks for, at most.
pub(super) const GRACE_OUTPUT: u64 = 1024;
/// The least output that makes a turn worth its input.
pub(super) const LEAST_OUTPUT: u64 = 64;
/// The output that is asked for even where the window seems to be full: how full it is, is an estimate.
const LEAST_FITTING: u64 = 1024;

/// What a model call costs, as far as it is known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meter {
    /// The price of the model.
    pub price: Price,
    /// Bytes that every request carries: system prompt and tools.
    pub fixed_bytes: u64,
    /// The most output tokens that a turn asks for.
    pub max_output: u64,
    /// How many tokens a request and its reply may have together, where it is known.
    pub window: Option<u64>,
}

/// The most that a call can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worst {
    /// What has to be set aside.
    pub amount: Amount,
    /// The output that it may ask for, clamped to what is left.
    pub max_output: u64,
}

/// The books of one round.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    granted: Budget,
    spent: Spent,
    reserved: Amount,
    /// What stays set aside between two calls of an external agent.
    held: Amount,
    lent: Amount,
}

impl Ledger {
    pub(super) fn new(granted: Budget) -> Ledger {
        Ledger { granted, ..Ledger::default() }
    }

    /// What was granted.
    pub fn granted(&self) -> Budget {
        self.granted
    }

    /// What is gone, children that returned included.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// What is set aside for the open call.
    pub fn reserved(&self) -> Amount {
        self.reserved
    }

    /// What children hold.
    pub fn lent(&self) -> Amount {
        self.lent
    }

    /// spent + reserved + held + lent.
    pub fn committed(&self) -> Amount {
        self.spent.amount().plus(self.reserved).plus(self.held).plus(self.lent)
    }

    /// What the round has used up if it ends now: nobody knows what became of what is still held.
    pub fn spent_at_end(&self) -> Spent {
        self.spent.plus(Spent::doubtful(self.held))
    }

    /// Whether `amount` can be committed on top.
    pub fn can_commit(&self, amount: Amount) -> bool {
        self.granted.fits(self.committed().plus(amount))
    }

    /// Whether a call can set `amount` aside. It takes over what is held.
    pub(super) fn can_reserve(&self, amount: Amount) -> bool {
        self.granted.fits(self.committed().minus(self.held).plus(amount))
    }

    /// What a call can set aside at most.
    pub fn reservable(&self) -> Budget {
        self.granted.less(self.committed().minus(self.held))
    }

    pub(super) fn reserve(&mut self, amount: Amount) {
        self.reserved = amount;
        self.held = Amount::default();
    }

    pub(super) fn close(&mut self) {
        self.spent = self.spent_at_end();
        self.held = Amount::default();
    }

    /// Books what a call cost and frees its reserve. Says whether it cost more than was reserved.
    pub(super) fn settle(&mut self, reserved: Amount, spent: Spent) -> bool {
        self.reserved = self.reserved.minus(reserved);
        self.held = spent.held;
        self.spent = self.spent.plus(spent);
        spent.overrun != Amount::default()
    }

    pub(super) fn lend(&mut self, amount: Amount) {
        self.lent = self.lent.plus(amount);
    }

    pub(super) fn give_back(&mut self, loan: Amount, spent: Spent) {
        self.lent = self.lent.minus(loan);
        self.spent = self.spent.plus(spent);
    }

    /// What is neither spent nor reserved nor lent.
    pub fn free(&self) -> Budget {
        self.granted.less(self.committed())
    }

    pub(super) fn lendable(&self, meter: &Meter, input: u64) -> Budget {
        self.free().less(own_reserve(meter, input))
    }

    /// `input` is the most that the request can have, `size` what it is likely to have.
    pub(super) fn worst_case(
        &self,
        meter: &Meter,
        input: u64,
        size: u64,
        purpose: Purpose,
    ) -> Result<Worst, Which> {
        match purpose {
            Purpose::Turn | Purpose::Compaction => {
                let least = LEAST_OUTPUT.min(meter.max_output);
                // What does not fit into the window is not paid for either.
                let fitting = meter.window.map_or(u64::MAX, |window| window.saturating_sub(size));
                let wanted = meter.max_output.min(fitting.max(LEAST_FITTING));
                worst(meter, self.lendable(meter, input), input, wanted, least)
            }
            // The own reserve pays: even one word is better than none.
            Purpose::Grace | Purpose::Summary => {
                worst(meter, self.free(), input, GRACE_OUTPUT.min(meter.max_output), 1)
            }
        }
    }

    /// A summary is asked for with a request of its own, and leaves the reserve for the next usual one untouched.
    pub(super) fn worst_summary(&self, meter: &Meter, usual: u64, input: u64) -> Result<Worst, Which> {
        let least = LEAST_OUTPUT.min(meter.max_output);
        worst(meter, self.lendable(meter, usual), input, meter.max_output, least)
    }
}

fn worst(meter: &Meter, free: Budget, input: u64, wanted: u64, least: u64) -> Result<Worst, Which> {
    let by_tokens = free.tokens.number().saturating_sub(input);
    if by_tokens < least {
        return Err(Which::Tokens);
    }
    let max_output = wanted.min(by_tokens).min(affordable_output(meter, free.usd, input));
    if max_output < least {
        return Err(Which::Usd);
    }
    let usd = meter.price.worst(input, max_output);
    Ok(Worst { amount: Amount { tokens: input.saturating_add(max_output), usd, agents: 0 }, max_output })
}

/// What a session keeps for its last word: one call with its whole input.
fn own_reserve(meter: &Meter, input: u64) -> Amount {
    let output = GRACE_OUTPUT.min(meter.max_output);
    Amount { tokens: input.saturating_add(output), usd: meter.price.worst(input, output), agents: 0 }
}

impl Meter {
    /// The least that makes sense to lend to a child whose first request has this many bytes: its first call and
    /// the reserve for its last word.
    pub fn least_loan(&self, first_request_bytes: u64) -> Amount {
        let input = self.fixed_bytes.saturating_add(first_request_bytes).div_ceil(2);
        let reserve = own_reserve(self, input);
        let output = LEAST_OUTPUT.min(self.max_output);
        let first =
            Amount { tokens: input.saturating_add(output), usd: self.price.worst(input, output), agents: 0 };
        reserve.plus(first)
    }
}

fn affordable_output(meter: &Meter, usd: Limit, input: u64) -> u64 {
    let Limit::AtMost(usd) = usd else { return u64::MAX };
    let input_cost = meter.price.worst(input, 0);
    if input_cost > usd {
        return 0;
    }
    if meter.price.output == 0 {
        return u64::MAX;
    }
    let millionths = u128::from(usd - input_cost).saturating_sub(1) * 1_000_000;
    u64::try_from(millionths / u128::from(meter.price.output)).unwrap_or(u64::MAX)
}
