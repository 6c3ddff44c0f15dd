//! Amounts that a ledger leaves for calls and children.

use super::*;
use crate::state::ledger::Estimate;

fn amount(tokens: u64, usd: u64, agents: u64) -> Resources {
    Resources { tokens, usd, agents }
}

fn budget(tokens: u64, usd: u64, agents: u64) -> Budget {
    Budget { tokens: Limit::AtMost(tokens), usd: Limit::AtMost(usd), agents: Limit::AtMost(agents) }
}

fn spent(spent: Resources, held_back: Resources) -> Spent {
    let usage = Usage { output: spent.tokens, ..Usage::default() };
    Spent { usage, usd: spent.usd, agents: spent.agents, held_back, ..Spent::default() }
}

/// Ledger with usage, a loan, and resources held back between two calls of an external agent.
fn between_calls() -> Ledger {
    let mut ledger = Ledger::new(budget(1000, 500, 10));
    ledger.reserve(amount(160, 70, 0));
    ledger.settle(amount(160, 70, 0), spent(amount(100, 40, 1), amount(50, 25, 0)));
    ledger.lend(amount(200, 100, 3));
    ledger
}

#[test]
fn call_can_reserve_what_is_held_back() {
    let mut ledger = between_calls();
    assert_eq!(ledger.committed(), amount(350, 165, 4));
    assert_eq!((ledger.free(), ledger.reservable()), (budget(650, 335, 6), budget(700, 360, 6)));
    assert!(ledger.can_reserve(amount(700, 360, 6)) && ledger.can_commit(amount(650, 335, 6)));
    for (tokens, usd, agents) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
        assert!(!ledger.can_reserve(amount(700 + tokens, 360 + usd, 6 + agents)));
        assert!(!ledger.can_commit(amount(650 + tokens, 335 + usd, 6 + agents)));
    }
    // The reserve of the next call replaces it.
    ledger.reserve(amount(60, 30, 0));
    assert_eq!((ledger.reserved(), ledger.lent()), (amount(60, 30, 0), amount(200, 100, 3)));
    assert_eq!((ledger.free(), ledger.reservable()), (budget(640, 330, 6), budget(640, 330, 6)));
}

#[test]
fn unlimited_fields_stay_unlimited() {
    let mut ledger = Ledger::new(Budget { usd: Limit::Unlimited, ..budget(100, 0, 5) });
    ledger.lend(amount(30, 9, 1));
    let left = Budget { usd: Limit::Unlimited, ..budget(70, 0, 4) };
    assert_eq!((ledger.reservable(), ledger.free()), (left, left));
}

#[test]
fn overrun_leaves_nothing_to_reserve() {
    let mut ledger = Ledger::new(budget(100, 500, 10));
    ledger.settle(Resources::default(), spent(amount(130, 40, 0), Resources::default()));
    assert_eq!((ledger.overrun(), ledger.committed()), (amount(30, 0, 0), amount(100, 40, 0)));
    assert_eq!(ledger.reservable(), budget(0, 460, 10));
    assert_eq!(ledger.spent().overrun, amount(30, 0, 0));
}

#[test]
fn held_back_resources_are_unconfirmed_at_the_end() {
    let mut ledger = between_calls();
    let at_end = ledger.spent_at_end();
    assert_eq!((at_end.unconfirmed, at_end.amount()), (amount(50, 25, 0), amount(150, 65, 1)));
    ledger.close();
    assert_eq!((ledger.spent(), ledger.committed()), (at_end, amount(350, 165, 4)));
    assert_eq!(ledger.reservable(), budget(650, 335, 6));
}

#[test]
fn uncovered_usage_is_what_a_return_adds_to_the_overrun() {
    let mut ledger = between_calls();
    let loan = amount(200, 100, 3);
    // The loan and the free resources cover it exactly.
    assert_eq!(ledger.uncovered(loan, &spent(amount(850, 435, 9), Resources::default())), amount(0, 0, 0));
    let used = spent(amount(851, 437, 12), Resources::default());
    assert_eq!(ledger.uncovered(loan, &used), amount(1, 2, 3));
    assert_eq!(ledger.uncovered(loan, &spent(amount(850, 435, 9), amount(4, 0, 0))), amount(4, 0, 0));
    ledger.return_loan(loan, used);
    assert_eq!((ledger.lent(), ledger.overrun()), (Resources::default(), amount(1, 2, 3)));
}

#[test]
fn min_loan_covers_a_first_call_and_a_wrap_up() {
    let price = Price { input: 2_000_000, output: 10_000_000, cache_read: 0, cache_write: 3_000_000 };
    let cost_model = CostModel { price, fixed_bytes: 1000, max_output: 5000, window: None };
    // 1,101 bytes are 551 tokens; 1,024 tokens of output for the wrap-up and 64 for the first call.
    assert_eq!(cost_model.min_loan(101), amount(2 * 551 + 1024 + 64, 2 * 551 * 3 + (1024 + 64) * 10, 0));
    assert_eq!(cost_model.min_loan(100).tokens, 2 * 550 + 1024 + 64);
    // A model with short replies needs less.
    let short = CostModel { max_output: 10, ..cost_model };
    assert_eq!(short.min_loan(101), amount(2 * 551 + 10 + 10, 2 * 551 * 3 + 20 * 10, 0));
    let medium = CostModel { max_output: 100, ..cost_model };
    assert_eq!(medium.min_loan(101).tokens, 2 * 551 + 100 + 64);
}

#[test]
fn overrun_in_an_event_does_not_count_as_overrun_of_the_ledger() {
    let mut ledger = between_calls();
    let charged = Spent { overrun: amount(7, 7, 7), ..spent(amount(1, 0, 0), Resources::default()) };
    ledger.return_loan(amount(200, 100, 3), charged);
    assert_eq!((ledger.spent().overrun, ledger.overrun()), (Resources::default(), Resources::default()));
}

#[test]
fn output_without_a_price_needs_no_budget_beyond_the_input() {
    let price = Price { input: 1_000_000, output: 0, cache_read: 0, cache_write: 0 };
    let cost_model = CostModel { price, fixed_bytes: 0, max_output: 5000, window: None };
    let request = Estimate { input: 100, likely_input: 100, output_extra: 0 };
    let wrap_up = |usd| {
        let granted = Budget { usd: Limit::AtMost(usd), ..Budget::UNLIMITED };
        Ledger::new(granted).worst_wrap_up(&cost_model, &request, 4096)
    };
    assert_eq!(wrap_up(100).map(|worst| (worst.amount.usd, worst.max_output)), Ok((100, 4096)));
    assert_eq!(wrap_up(99).map_err(|shortfall| shortfall.which), Err(LimitKind::Usd));
}
