//! Resources and position that a session states when it passes work on.

use brigade_core::state::Ledger;
use brigade_core::{Budget, Limit};

use crate::resolved_agent::AgentKind;

/// Resources that a session of this kind may still lend. The reserve of the current call is available to the
/// session that takes up the work.
pub(crate) fn lendable_rest(kind: &AgentKind, ledger: &Ledger) -> Budget {
    let left = ledger.granted().minus(ledger.committed().minus(ledger.reserved()));
    match kind {
        AgentKind::Local(_) => left,
        AgentKind::External(external) => external.limits.advertised(left),
    }
}

/// Depth of the session that takes up the work in the other process. A call is made by a session in place of
/// the sender, and an external agent is itself the child. A root has started no session for the work yet, so it adds
/// one level. Otherwise a loop of external agents would never end.
pub(crate) fn depth_of_work(kind: &AgentKind, depth: u32, is_root: bool) -> u32 {
    match kind {
        AgentKind::External(_) if is_root => depth.saturating_add(1),
        AgentKind::External(_) | AgentKind::Local(_) => depth,
    }
}

/// Loan of one of `calls` calls that each need one: an equal share of the free budget. The session keeps one share
/// for itself, because after a crash the use of the other shares is unknown.
pub(crate) fn share(free: Budget, calls: u64) -> Budget {
    let parts = calls.max(1) + 1;
    // Agents cannot be divided, so the first calls get one each instead of all getting none.
    let agents = match free.agents {
        Limit::AtMost(agents) => Limit::AtMost(agents.div_ceil(parts)),
        Limit::Unlimited => Limit::Unlimited,
    };
    Budget { agents, ..free.share(parts) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_keeps_one_part_for_the_session_and_rounds_agents_up() {
        let free = Budget { tokens: Limit::AtMost(90), usd: Limit::Unlimited, agents: Limit::AtMost(4) };
        let shared = |calls| share(free, calls);
        assert_eq!((shared(2).tokens, shared(2).usd), (Limit::AtMost(30), Limit::Unlimited));
        assert_eq!([shared(0), shared(1)].map(|share| share.tokens), [Limit::AtMost(45); 2]);
        assert_eq!([shared(1), shared(2)].map(|share| share.agents), [Limit::AtMost(2); 2]);
    }
}
