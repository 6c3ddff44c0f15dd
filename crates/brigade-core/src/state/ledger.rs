//! Ledger of a round: spent + reserved + lent never exceed the grant.

use crate::delegation::LimitKind;
use crate::grant::{Budget, Limit};
use crate::money::{Price, Resources, Spent};

/// Output tokens that a session always reserves for its wrap-up call.
const RESERVED_WRAP_UP_TOKENS: u64 = 1024;
/// Output tokens that a wrap-up call or a report requests, if they are free.
pub(super) const WRAP_UP_OUTPUT_TOKENS: u64 = 4096;
/// Share of the free budget for the output of one call, so that a call with an unknown outcome does not end the
/// session.
const OUTPUT_BUDGET_DIVISOR: u64 = 4;
/// Minimum output that makes a turn worth its input.
const MIN_OUTPUT_TOKENS: u64 = 64;
/// Output that is requested even if the window seems to be full, because its fill level is an estimate.
const MIN_WINDOW_OUTPUT_TOKENS: u64 = 1024;

/// Expected cost of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel {
    /// Price of the model.
    pub price: Price,
    /// Bytes that every request contains: system prompt and tools.
    pub fixed_bytes: u64,
    /// Maximum number of output tokens that a turn requests.
    pub max_output: u64,
    /// Maximum number of tokens of a request and its reply together, if known.
    pub window: Option<u64>,
}

/// Worst-case cost of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorstCase {
    /// Resources to reserve.
    pub amount: Resources,
    /// Input tokens in it.
    pub input: u64,
    /// Maximum output to request, clamped to the rest of the budget.
    pub max_output: u64,
}

/// Budget that does not cover the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortfall {
    /// Limit that prevents the call.
    pub which: LimitKind,
    /// Resources needed for the call and for the session's own reserve.
    pub needed: Resources,
}

/// Estimated size of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    /// Upper bound of the input tokens.
    pub(super) input: u64,
    /// Most likely number of input tokens.
    pub(super) likely_input: u64,
    /// Output tokens above the requested maximum, as observed in this session.
    pub(super) output_extra: u64,
}

/// Output that a call requests.
#[derive(Debug, Clone, Copy)]
struct OutputTokens {
    wanted: u64,
    min: u64,
    extra: u64,
}

/// Ledger of one round.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    granted: Budget,
    spent: Spent,
    reserved: Resources,
    /// Resources that stay reserved between two calls of an external agent.
    held_back: Resources,
    lent: Resources,
}

impl Ledger {
    pub(super) fn new(granted: Budget) -> Ledger {
        Ledger { granted, ..Ledger::default() }
    }

    /// Returns the granted budget.
    pub fn granted(&self) -> Budget {
        self.granted
    }

    /// Returns the usage so far, returned children included. The overrun in an event is the view of its writer; this
    /// ledger decides what its grant does not cover.
    pub fn spent(&self) -> Spent {
        Spent { overrun: self.overrun(), ..self.spent }
    }

    /// Returns the usage that the grant does not cover. A returned loan may still cover it.
    pub fn overrun(&self) -> Resources {
        self.granted.exceeded_by(self.used())
    }

    /// Returns the resources reserved for the open call.
    pub fn reserved(&self) -> Resources {
        self.reserved
    }

    /// Returns the resources lent to children.
    pub fn lent(&self) -> Resources {
        self.lent
    }

    /// Returns spent + reserved + held back + lent, without the overrun.
    pub fn committed(&self) -> Resources {
        self.used().minus(self.overrun())
    }

    fn used(&self) -> Resources {
        self.spent.amount().plus(self.reserved).plus(self.held_back).plus(self.lent)
    }

    /// Returns the usage if the round ends now: resources that are still held back count as unconfirmed.
    pub fn spent_at_end(&self) -> Spent {
        self.spent().plus(Spent::unconfirmed(self.held_back))
    }

    /// Whether `amount` can be committed in addition.
    pub fn can_commit(&self, amount: Resources) -> bool {
        self.granted.fits(self.committed().plus(amount))
    }

    /// Whether a call can reserve `amount`. It takes over the held-back resources.
    pub(super) fn can_reserve(&self, amount: Resources) -> bool {
        self.granted.fits(self.committed().minus(self.held_back).plus(amount))
    }

    /// Returns the maximum that a call can reserve.
    pub fn reservable(&self) -> Budget {
        self.granted.minus(self.committed().minus(self.held_back))
    }

    pub(super) fn reserve(&mut self, amount: Resources) {
        self.reserved = amount;
        self.held_back = Resources::default();
    }

    pub(super) fn close(&mut self) {
        self.spent = self.spent.plus(Spent::unconfirmed(self.held_back));
        self.held_back = Resources::default();
    }

    /// Charges the cost of a call and releases its reserve.
    pub(super) fn settle(&mut self, reserved: Resources, spent: Spent) {
        self.reserved = self.reserved.minus(reserved);
        self.held_back = spent.held_back;
        self.book(spent);
    }

    /// Charges usage, whether the grant covers it or not.
    fn book(&mut self, spent: Spent) {
        self.spent = self.spent.plus(spent);
    }

    /// Returns the part of `spent` that the grant will not cover when it replaces `set_aside`.
    pub fn uncovered(&self, set_aside: Resources, spent: &Spent) -> Resources {
        let used = self.used().minus(set_aside).plus(spent.amount()).plus(spent.held_back);
        self.granted.exceeded_by(used).minus(self.overrun())
    }

    pub(super) fn lend(&mut self, amount: Resources) {
        self.lent = self.lent.plus(amount);
    }

    /// Takes a loan back and charges its usage.
    pub(super) fn return_loan(&mut self, loan: Resources, spent: Spent) {
        self.lent = self.lent.minus(loan);
        self.book(spent);
    }

    /// Returns the resources that are neither spent nor reserved nor lent.
    pub fn free(&self) -> Budget {
        self.granted.minus(self.committed())
    }

    pub(super) fn lendable(&self, cost_model: &CostModel, request: &Estimate) -> Budget {
        self.free().minus(wrap_up_reserve(cost_model, request.input, request.output_extra))
    }

    /// Returns the worst-case cost of a turn, which leaves the session's own reserve untouched.
    pub(super) fn worst_turn(
        &self,
        cost_model: &CostModel,
        request: &Estimate,
    ) -> Result<WorstCase, Shortfall> {
        // A request that exceeds the window needs no budget either.
        let fitting =
            cost_model.window.map_or(u64::MAX, |window| window.saturating_sub(request.likely_input));
        let wanted = cost_model.max_output.min(fitting.max(MIN_WINDOW_OUTPUT_TOKENS));
        self.worst_beyond_reserve(cost_model, request, request.input, wanted)
    }

    /// Returns the worst-case cost of a wrap-up call or a report. The session's own reserve covers it, because even
    /// a short reply is better than none. `max_output` is the output to request, if it is free.
    pub(super) fn worst_wrap_up(
        &self,
        cost_model: &CostModel,
        request: &Estimate,
        wanted_output: u64,
    ) -> Result<WorstCase, Shortfall> {
        let fitting =
            cost_model.window.map_or(u64::MAX, |window| window.saturating_sub(request.likely_input));
        let wanted = wanted_output.min(cost_model.max_output).min(fitting.max(MIN_WINDOW_OUTPUT_TOKENS));
        let output = OutputTokens { wanted, min: 1, extra: request.output_extra };
        worst_case(cost_model, self.free(), request.input, output).map_err(|which| {
            let needed = cost(cost_model, request.input, output.min.saturating_add(output.extra));
            Shortfall { which, needed }
        })
    }

    /// Returns the worst-case cost of a summary, which has a request of its own and leaves the reserve of the next
    /// regular one untouched.
    pub(super) fn worst_case_summary(
        &self,
        cost_model: &CostModel,
        usual: &Estimate,
        input: u64,
    ) -> Result<WorstCase, Shortfall> {
        self.worst_beyond_reserve(cost_model, usual, input, cost_model.max_output)
    }

    fn worst_beyond_reserve(
        &self,
        cost_model: &CostModel,
        usual: &Estimate,
        input: u64,
        wanted: u64,
    ) -> Result<WorstCase, Shortfall> {
        let min = MIN_OUTPUT_TOKENS.min(cost_model.max_output);
        let free = self.lendable(cost_model, usual);
        let share = output_within(cost_model, &free, input) / OUTPUT_BUDGET_DIVISOR;
        let output = OutputTokens {
            wanted: wanted.min(share.max(WRAP_UP_OUTPUT_TOKENS)),
            min,
            extra: usual.output_extra,
        };
        worst_case(cost_model, free, input, output).map_err(|which| {
            let call = cost(cost_model, input, min.saturating_add(output.extra));
            Shortfall {
                which,
                needed: call.plus(wrap_up_reserve(cost_model, usual.input, usual.output_extra)),
            }
        })
    }
}

fn worst_case(
    cost_model: &CostModel,
    free: Budget,
    input: u64,
    output: OutputTokens,
) -> Result<WorstCase, LimitKind> {
    if tokens_within(&free, input).saturating_sub(output.extra) < output.min {
        return Err(LimitKind::Tokens);
    }
    let max_output = output.wanted.min(output_within(cost_model, &free, input).saturating_sub(output.extra));
    if max_output < output.min {
        return Err(LimitKind::Usd);
    }
    let amount = cost(cost_model, input, max_output.saturating_add(output.extra));
    Ok(WorstCase { amount, input, max_output })
}

/// Returns the output that a budget covers next to this input.
fn output_within(cost_model: &CostModel, free: &Budget, input: u64) -> u64 {
    tokens_within(free, input).min(affordable_output(cost_model, free.usd, input))
}

/// Returns the tokens that a budget leaves next to this input.
fn tokens_within(free: &Budget, input: u64) -> u64 {
    match free.tokens {
        Limit::AtMost(tokens) => tokens.saturating_sub(input),
        Limit::Unlimited => u64::MAX,
    }
}

fn cost(cost_model: &CostModel, input: u64, output: u64) -> Resources {
    Resources {
        tokens: input.saturating_add(output),
        usd: cost_model.price.worst_case(input, output),
        agents: 0,
    }
}

/// Returns the reserve of a session for its wrap-up call: its whole input and a short reply.
fn wrap_up_reserve(cost_model: &CostModel, input: u64, output_extra: u64) -> Resources {
    cost(cost_model, input, RESERVED_WRAP_UP_TOKENS.min(cost_model.max_output).saturating_add(output_extra))
}

impl CostModel {
    /// Returns the minimum useful loan for a child whose first request has this many bytes: its first call and the
    /// reserve for its wrap-up call.
    pub fn min_loan(&self, first_request_bytes: u64) -> Resources {
        let input = self.fixed_bytes.saturating_add(first_request_bytes).div_ceil(2);
        wrap_up_reserve(self, input, 0).plus(cost(self, input, MIN_OUTPUT_TOKENS.min(self.max_output)))
    }
}

fn affordable_output(cost_model: &CostModel, usd: Limit, input: u64) -> u64 {
    let Limit::AtMost(usd) = usd else { return u64::MAX };
    let input_cost = cost_model.price.worst_case(input, 0);
    if input_cost > usd {
        return 0;
    }
    if cost_model.price.output == 0 {
        return u64::MAX;
    }
    let millionths = u128::from(usd - input_cost).saturating_sub(1) * 1_000_000;
    u64::try_from(millionths / u128::from(cost_model.price.output)).unwrap_or(u64::MAX)
}
