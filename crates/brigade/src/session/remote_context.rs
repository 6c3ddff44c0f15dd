//! What travels with work that leaves this process.

use brigade_core::{Limit, RemoteContext};

use super::Driver;

impl Driver {
    /// Where this session stands and what is left for it.
    pub(super) fn hop(&self) -> RemoteContext {
        let ledger = self.state.ledger();
        // What is set aside for the call that carries this is there for whoever takes it up.
        let left = ledger.granted().minus(ledger.committed().minus(ledger.reserved()));
        let left =
            self.resolved.external_limits.map_or(left, |external_limits| external_limits.advertised(left));
        let mut lineage = self.tree.remote_ancestors.clone();
        lineage.push(self.state.session().to_string());
        RemoteContext {
            lineage,
            depth: self.remote_depth(),
            max_depth: Some(self.resolved.authority.max_depth),
            // Early enough that what came of it is heard.
            deadline: match self.child_deadline() {
                Limit::AtMost(deadline) => Some(deadline),
                Limit::Unlimited => None,
            },
            mode: Some(self.resolved.authority.permissions.mode),
            ..RemoteContext::default()
        }
        .with_budget(left)
    }

    /// The depth of the session that takes work up elsewhere. A call has one that makes it in our place, and an external
    /// agent one that is the agent. At the top nobody was started for it yet, so it is one deeper: else a loop of external
    /// agents would have no end.
    fn remote_depth(&self) -> u32 {
        let (depth, is_root) =
            self.state.round().map_or((0, true), |round| (round.depth, round.parent.is_none()));
        let is_new = is_root && self.resolved.external_limits.is_some();
        depth.saturating_add(u32::from(is_new))
    }
}
