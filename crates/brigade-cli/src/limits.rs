//! Limits that stopped a run: the reason, and the flag that raises the limit.

use std::time::Duration;

use brigade_core::delegation::LimitKind;
use brigade_core::grant::Grant;
use brigade_core::{Limit, Resources, Spent};

use crate::follow::RunView;
use crate::units;

/// Budget that covers a first turn of most agents, if the required amount is unknown.
const MIN_RESUME_TOKENS: u64 = 20_000;
const MIN_RESUME_NANO_USD: u64 = 100_000_000;
/// Minimum time for a resumed round.
const MIN_RESUME_MILLIS: u64 = 10_000;

/// Sentence with the reason why a round stopped: the limit, the usage and the needs of the next call.
pub(crate) fn stop_reason(
    kind: LimitKind,
    spent: &Spent,
    view: &RunView,
    timeout: Option<Duration>,
) -> String {
    let limit = limit_value(kind, view, timeout);
    let limit =
        limit.map_or_else(|| format!("the {}", kind.label()), |of| format!("the {} of {of}", kind.label()));
    let (used, needed) = (spent.amount(), needed(view));
    match kind {
        LimitKind::Tokens if needed.tokens > 0 => format!(
            "Stopped at {limit}: {} used; the next call could use up to {}.",
            used.tokens, needed.tokens
        ),
        LimitKind::Tokens => format!("Stopped at {limit}: {} used.", used.tokens),
        LimitKind::Usd if needed.usd > 0 => format!(
            "Stopped at {limit}: {} spent; the next call could cost up to {}.",
            units::format_dollars_brief(used.usd),
            units::format_dollars_brief(needed.usd)
        ),
        LimitKind::Usd => format!("Stopped at {limit}: {} spent.", units::format_dollars_brief(used.usd)),
        LimitKind::Loop => "Stopped: the agent repeatedly made the same calls with the same results \
                        (`limits.loop_limit`)."
            .to_owned(),
        LimitKind::Permission => {
            "Stopped: the external agent ended after a permission request was denied. The result \
                              names the denied call and the setting that permits it."
                .to_owned()
        }
        LimitKind::Turns | LimitKind::Time | LimitKind::Agents => format!("Stopped at {limit}."),
    }
}

/// Flag that raises a limit enough for the next call.
pub(crate) fn raising_flag(kind: LimitKind, view: &RunView, timeout: Option<Duration>) -> String {
    let Some((grant, _)) = &view.grant else { return String::new() };
    let twice = |number: u64| number.saturating_mul(2).max(1);
    let twice_limit = |limit: Limit, needed: u64, minimum: u64| {
        Some(twice(limit.at_most()?).max(twice(needed)).max(minimum))
    };
    let needed = needed(view);
    let amount = match kind {
        LimitKind::Turns => Some(("--max-turns", grant.turns.saturating_mul(2).max(1).to_string())),
        LimitKind::Tokens => twice_limit(grant.budget.tokens, needed.tokens, MIN_RESUME_TOKENS)
            .map(|tokens| ("--budget-tokens", tokens.to_string())),
        LimitKind::Usd => twice_limit(grant.budget.usd, needed.usd, MIN_RESUME_NANO_USD)
            .map(|usd| ("--budget-usd", units::exact_dollars(usd))),
        LimitKind::Agents => {
            twice_limit(grant.budget.agents, 0, 1).map(|agents| ("--max-agents", agents.to_string()))
        }
        LimitKind::Time => granted_millis(view, timeout)
            .map(|millis| ("--timeout", units::format_duration(twice(millis).max(MIN_RESUME_MILLIS)))),
        LimitKind::Loop | LimitKind::Permission => None,
    };
    amount.map(|(flag, amount)| format!(" {flag} {amount}")).unwrap_or_default()
}

/// Value of a limit.
fn limit_value(kind: LimitKind, view: &RunView, timeout: Option<Duration>) -> Option<String> {
    let (grant, _) = view.grant.as_ref()?;
    let Grant { budget, turns, .. } = grant;
    match kind {
        LimitKind::Turns => Some(turns.to_string()),
        LimitKind::Tokens => budget.tokens.at_most().map(|tokens| tokens.to_string()),
        LimitKind::Usd => budget.usd.at_most().map(units::format_dollars_brief),
        LimitKind::Agents => budget.agents.at_most().map(|agents| agents.to_string()),
        LimitKind::Time => granted_millis(view, timeout).map(units::format_duration),
        LimitKind::Loop | LimitKind::Permission => None,
    }
}

/// Time that the round was granted, in milliseconds.
fn granted_millis(view: &RunView, timeout: Option<Duration>) -> Option<u64> {
    let (grant, at) = view.grant.as_ref()?;
    match (timeout, grant.deadline) {
        (Some(typed), _) => Some(u64::try_from(typed.as_millis()).unwrap_or(u64::MAX)),
        // The deadline was set shortly before the round began.
        (None, Limit::AtMost(until)) => Some(until.saturating_sub(*at).next_multiple_of(1000)),
        (None, Limit::Unlimited) => None,
    }
}

/// Amount that the next call of the root needed, if its budget did not cover it.
fn needed(view: &RunView) -> Resources {
    view.tree.node(&view.root).map(|node| node.needed).unwrap_or_default()
}
