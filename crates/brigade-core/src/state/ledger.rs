//! The books of a round: spent + reserved + lent never exceed what was granted.

use crate::delegation::Which;
use crate::grant::{Budget, Limit};
use crate::money::{Amount, Price, Spent};

/// Output tokens that a session always keeps free for its wrap-up call.
const KEPT_OUTPUT: u64 = 1024;
/// Output tokens that a wrap-up call or a report asks for, if they are free.
pub(super) const WRAP_UP_OUTPUT: u64 = 4096;
/// The part of the free budget that the output of one call takes, so that a call whose outcome is unknown does not end
/// the session.
const OUTPUT_SHARE: u64 = 4;
/// The least output that makes a turn worth its input.
const LEAST_OUTPUT: u64 = 64;
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

/// The most that a call is expected to cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worst {
    /// What has to be set aside.
    pub amount: Amount,
    /// The input tokens in it.
    pub input: u64,
    /// The output that it may ask for, clamped to what is left.
    pub max_output: u64,
}

/// A budget that does not cover the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortfall {
    /// The limit that is in the way.
    pub which: Which,
    /// What had to be free for the call and for the session's own reserve.
    pub needed: Amount,
}

/// How large a request is expected to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    /// Input tokens at most.
    pub(super) input: u64,
    /// Input tokens most likely.
    pub(super) likely_input: u64,
    /// Output tokens above the requested maximum, as the session has seen them.
    pub(super) output_extra: u64,
}

/// The output that a call asks for.
#[derive(Debug, Clone, Copy)]
struct Output {
    wanted: u64,
    least: u64,
    extra: u64,
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
        Spent { overrun: self.overrun(), ..self.spent }
    }

    /// Usage that the grant does not cover. A loan that comes back may still cover it.
    pub fn overrun(&self) -> Amount {
        self.granted.exceeded_by(self.used())
    }

    /// What is set aside for the open call.
    pub fn reserved(&self) -> Amount {
        self.reserved
    }

    /// What children hold.
    pub fn lent(&self) -> Amount {
        self.lent
    }

    /// spent + reserved + held + lent, without the overrun.
    pub fn committed(&self) -> Amount {
        self.used().minus(self.overrun())
    }

    fn used(&self) -> Amount {
        self.spent.amount().plus(self.reserved).plus(self.held).plus(self.lent)
    }

    /// What the round has used up if it ends now: nobody knows what became of what is still held.
    pub fn spent_at_end(&self) -> Spent {
        self.spent().plus(Spent::doubtful(self.held))
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
        self.spent = self.spent.plus(Spent::doubtful(self.held));
        self.held = Amount::default();
    }

    /// Books what a call cost and frees its reserve.
    pub(super) fn settle(&mut self, reserved: Amount, spent: Spent) {
        self.reserved = self.reserved.minus(reserved);
        self.held = spent.held;
        self.book(spent);
    }

    /// Books usage, whatever part of it the grant covers. The overrun that a fact names is the view of whoever wrote
    /// it; the books of this round decide.
    fn book(&mut self, spent: Spent) {
        self.spent = self.spent.plus(Spent { overrun: Amount::default(), ..spent });
    }

    /// The part of `spent` that the grant will not cover when it takes the place of `set_aside`.
    pub fn uncovered(&self, set_aside: Amount, spent: &Spent) -> Amount {
        let used = self.used().minus(set_aside).plus(spent.amount()).plus(spent.held);
        self.granted.exceeded_by(used).minus(self.overrun())
    }

    pub(super) fn lend(&mut self, amount: Amount) {
        self.lent = self.lent.plus(amount);
    }

    /// Takes a loan back and books what was used.
    pub(super) fn give_back(&mut self, loan: Amount, spent: Spent) {
        self.lent = self.lent.minus(loan);
        self.book(spent);
    }

    /// What is neither spent nor reserved nor lent.
    pub fn free(&self) -> Budget {
        self.granted.less(self.committed())
    }

    pub(super) fn lendable(&self, meter: &Meter, request: &Estimate) -> Budget {
        self.free().less(own_reserve(meter, request.input, request.output_extra))
    }

    /// The most that a turn costs. It leaves the session's own reserve untouched.
    pub(super) fn worst_turn(&self, meter: &Meter, request: &Estimate) -> Result<Worst, Shortfall> {
        // What does not fit into the window is not paid for either.
        let fitting = meter.window.map_or(u64::MAX, |window| window.saturating_sub(request.likely_input));
        let wanted = meter.max_output.min(fitting.max(LEAST_FITTING));
        self.worst_besides_reserve(meter, request, request.input, wanted)
    }

    /// The most that a wrap-up call or a report costs. The session's own reserve pays: even one word is better than
    /// none. `room` is the output that is asked for, if it is free.
    pub(super) fn worst_wrap_up(
        &self,
        meter: &Meter,
        request: &Estimate,
        room: u64,
    ) -> Result<Worst, Shortfall> {
        let fitting = meter.window.map_or(u64::MAX, |window| window.saturating_sub(request.likely_input));
        let wanted = room.min(meter.max_output).min(fitting.max(LEAST_FITTING));
        let output = Output { wanted, least: 1, extra: request.output_extra };
        worst(meter, self.free(), request.input, output).map_err(|which| {
            let needed = cost(meter, request.input, output.least.saturating_add(output.extra));
            Shortfall { which, needed }
        })
    }

    /// A summary is asked for with a request of its own, and leaves the reserve for the next usual one untouched.
    pub(super) fn worst_summary(
        &self,
        meter: &Meter,
        usual: &Estimate,
        input: u64,
    ) -> Result<Worst, Shortfall> {
        self.worst_besides_reserve(meter, usual, input, meter.max_output)
    }

    fn worst_besides_reserve(
        &self,
        meter: &Meter,
        usual: &Estimate,
        input: u64,
        wanted: u64,
    ) -> Result<Worst, Shortfall> {
        let least = LEAST_OUTPUT.min(meter.max_output);
        let free = self.lendable(meter, usual);
        let share = output_within(meter, &free, input) / OUTPUT_SHARE;
        let output =
            Output { wanted: wanted.min(share.max(WRAP_UP_OUTPUT)), least, extra: usual.output_extra };
        worst(meter, free, input, output).map_err(|which| {
            let call = cost(meter, input, least.saturating_add(output.extra));
            Shortfall { which, needed: call.plus(own_reserve(meter, usual.input, usual.output_extra)) }
        })
    }
}

fn worst(meter: &Meter, free: Budget, input: u64, output: Output) -> Result<Worst, Which> {
    if tokens_within(&free, input).saturating_sub(output.extra) < output.least {
        return Err(Which::Tokens);
    }
    let max_output = output.wanted.min(output_within(meter, &free, input).saturating_sub(output.extra));
    if max_output < output.least {
        return Err(Which::Usd);
    }
    let amount = cost(meter, input, max_output.saturating_add(output.extra));
    Ok(Worst { amount, input, max_output })
}

/// The output that a budget pays for beside so much input.
fn output_within(meter: &Meter, free: &Budget, input: u64) -> u64 {
    tokens_within(free, input).min(affordable_output(meter, free.usd, input))
}

/// The tokens that a budget leaves beside so much input.
fn tokens_within(free: &Budget, input: u64) -> u64 {
    match free.tokens {
        Limit::AtMost(tokens) => tokens.saturating_sub(input),
        Limit::Unlimited => u64::MAX,
    }
}

fn cost(meter: &Meter, input: u64, output: u64) -> Amount {
    Amount { tokens: input.saturating_add(output), usd: meter.price.worst(input, output), agents: 0 }
}

/// What a session keeps for its wrap-up call: its whole input and a short reply.
fn own_reserve(meter: &Meter, input: u64, output_extra: u64) -> Amount {
    cost(meter, input, KEPT_OUTPUT.min(meter.max_output).saturating_add(output_extra))
}

impl Meter {
    /// The least that makes sense to lend to a child whose first request has this many bytes: its first call and
    /// the reserve for its wrap-up call.
    pub fn least_loan(&self, first_request_bytes: u64) -> Amount {
        let input = self.fixed_bytes.saturating_add(first_request_bytes).div_ceil(2);
        own_reserve(self, input, 0).plus(cost(self, input, LEAST_OUTPUT.min(self.max_output)))
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
