//! Context of work that is delegated to another process.

use brigade_core::{Limit, RemoteContext};

use super::Driver;

impl Driver {
    /// Depth and remaining limits of this session.
    pub(super) fn remote_context(&self) -> RemoteContext {
        let ledger = self.state().ledger();
        // The reserve of the current call is available to the session that takes up the work.
        let left = ledger.granted().minus(ledger.committed().minus(ledger.reserved()));
        let left =
            self.resolved.external_limits.map_or(left, |external_limits| external_limits.advertised(left));
        let mut lineage = self.tree.remote_ancestors.clone();
        lineage.push(self.state().session().to_string());
        RemoteContext {
            lineage,
            depth: self.remote_depth(),
            max_depth: Some(self.resolved.authority.max_depth),
            // Early enough for the result to arrive in time.
            deadline: match self.child_deadline() {
                Limit::AtMost(deadline) => Some(deadline),
                Limit::Unlimited => None,
            },
            mode: Some(self.resolved.authority.permissions.mode),
            ..RemoteContext::default()
        }
        .with_budget(left)
    }

    /// Depth of the session that takes up the work in the other process. A call is made by a session in place of
    /// this one, and an external agent is itself the child. A root has started no session for the work yet, so it
    /// adds one level. Otherwise a loop of external agents would never end.
    fn remote_depth(&self) -> u32 {
        let (depth, is_root) =
            self.state().round().map_or((0, true), |round| (round.depth, round.parent.is_none()));
        let is_new = is_root && self.resolved.external_limits.is_some();
        depth.saturating_add(u32::from(is_new))
    }
}
