//! The books of a round: spent + reserved + lent never exceed what was granted.

use crate::delegation::LimitKind;
use crate::grant::{Budget, Limit};
use crate::money::{Price, Resources, Spent};

/// Output tokens that a session always keeps free for its wrap-up call.
const RESERVED_WRAP_UP_TOKENS: u64 = 1024;
/// Output tokens that a wrap-up call or a report asks for, if they are free.
pub(super) const WRAP_UP_OUTPUT_TOKENS: u64 = 4096;
/// The part of the free budget that the output of one call takes, so that a call whose outcome is unknown does not end
/// the session.
const OUTPUT_BUDGET_DIVISOR: u64 = 4;
/// The least output that makes a turn worth its input.
const MIN_OUTPUT_TOKENS: u64 = 64;
/// The output that is asked for even where the window seems to be full: how full it is, is an estimate.
const MIN_WINDOW_OUTPUT_TOKENS: u64 = 1024;

/// What a model call costs, as far as it is known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel {
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
pub struct WorstCase {
    /// What has to be set aside.
    pub amount: Resources,
    /// The input tokens in it.
    pub input: u64,
    /// The output that it may ask for, clamped to what is left.
    pub max_output: u64,
}

/// A budget that does not cover the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortfall {
    /// The limit that is in the way.
    pub which: LimitKind,
    /// What had to be free for the call and for the session's own reserve.
    pub needed: Resources,
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
struct OutputTokens {
    wanted: u64,
    min: u64,
    extra: u64,
}

/// The books of one round.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    granted: Budget,
    spent: Spent,
    reserved: Resources,
    /// What stays set aside between two calls of an external agent.
    held_back: Resources,
    lent: Resources,
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
    pub fn overrun(&self) -> Resources {
        self.granted.exceeded_by(self.used())
    }

    /// What is set aside for the open call.
    pub fn reserved(&self) -> Resources {
        self.reserved
    }

    /// What children hold.
    pub fn lent(&self) -> Resources {
        self.lent
    }

    /// spent + reserved + held + lent, without the overrun.
    pub fn committed(&self) -> Resources {
        self.used().minus(self.overrun())
    }

    fn used(&self) -> Resources {
        self.spent.amount().plus(self.reserved).plus(self.held_back).plus(self.lent)
    }

    /// What the round has used up if it ends now: nobody knows what became of what is still held.
    pub fn spent_at_end(&self) -> Spent {
        self.spent().plus(Spent::unconfirmed(self.held_back))
    }

    /// Whether `amount` can be committed on top.
    pub fn can_commit(&self, amount: Resources) -> bool {
        self.granted.fits(self.committed().plus(amount))
    }

    /// Whether a call can set `amount` aside. It takes over what is held.
    pub(super) fn can_reserve(&self, amount: Resources) -> bool {
        self.granted.fits(self.committed().minus(self.held_back).plus(amount))
    }

    /// What a call can set aside at most.
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

    /// Books what a call cost and frees its reserve.
    pub(super) fn settle(&mut self, reserved: Resources, spent: Spent) {
        self.reserved = self.reserved.minus(reserved);
        self.held_back = spent.held_back;
        self.book(spent);
    }

    /// Books usage, whatever part of it the grant covers. The overrun that a fact names is the view of whoever wrote
    /// it; the books of this round decide.
    fn book(&mut self, spent: Spent) {
        self.spent = self.spent.plus(Spent { overrun: Resources::default(), ..spent });
    }

    /// The part of `spent` that the grant will not cover when it takes the place of `set_aside`.
    pub fn uncovered(&self, set_aside: Resources, spent: &Spent) -> Resources {
        let used = self.used().minus(set_aside).plus(spent.amount()).plus(spent.held_back);
        self.granted.exceeded_by(used).minus(self.overrun())
    }

    pub(super) fn lend(&mut self, amount: Resources) {
        self.lent = self.lent.plus(amount);
    }

    /// Takes a loan back and books what was used.
    pub(super) fn return_loan(&mut self, loan: Resources, spent: Spent) {
        self.lent = self.lent.minus(loan);
        self.book(spent);
    }

    /// What is neither spent nor reserved nor lent.
    pub fn free(&self) -> Budget {
        self.granted.minus(self.committed())
    }

    pub(super) fn lendable(&self, cost_model: &CostModel, request: &Estimate) -> Budget {
        self.free().minus(wrap_up_reserve(cost_model, request.input, request.output_extra))
    }

    /// The most that a turn costs. It leaves the session's own reserve untouched.
    pub(super) fn worst_turn(
        &self,
        cost_model: &CostModel,
        request: &Estimate,
    ) -> Result<WorstCase, Shortfall> {
        // What does not fit into the window is not paid for either.
        let fitting =
            cost_model.window.map_or(u64::MAX, |window| window.saturating_sub(request.likely_input));
        let wanted = cost_model.max_output.min(fitting.max(MIN_WINDOW_OUTPUT_TOKENS));
        self.worst_beyond_reserve(cost_model, request, request.input, wanted)
    }

    /// The most that a wrap-up call or a report costs. The session's own reserve pays: even one word is better than
    /// none. `room` is the output that is asked for, if it is free.
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

    /// A summary is asked for with a request of its own, and leaves the reserve for the next usual one untouched.
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

/// The output that a budget pays for beside so much input.
fn output_within(cost_model: &CostModel, free: &Budget, input: u64) -> u64 {
    tokens_within(free, input).min(affordable_output(cost_model, free.usd, input))
}

/// The tokens that a budget leaves beside so much input.
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

/// What a session keeps for its wrap-up call: its whole input and a short reply.
fn wrap_up_reserve(cost_model: &CostModel, input: u64, output_extra: u64) -> Resources {
    cost(cost_model, input, RESERVED_WRAP_UP_TOKENS.min(cost_model.max_output).saturating_add(output_extra))
}

impl CostModel {
    /// The least that makes sense to lend to a child whose first request has this many bytes: its first call and
    /// the reserve for its wrap-up call.
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
