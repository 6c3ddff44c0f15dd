//! What travels with work that leaves this process.

use brigade_core::{Hop, Limit};

use super::Driver;

impl Driver {
    /// Where this session stands and what is left for it.
    pub(super) fn hop(&self) -> Hop {
        let ledger = self.state.ledger();
        // What is set aside for the call that carries this is there for whoever takes it up.
        let left = ledger.granted().less(ledger.committed().minus(ledger.reserved()));
        let left = self.kit.terms.map_or(left, |terms| terms.told(left));
        let mut lineage = self.tree.above.clone();
        lineage.push(self.state.session().to_string());
        Hop {
            lineage,
            depth: self.far_depth(),
            deepest: Some(self.kit.authority.deepest),
            // Early enough that what came of it is heard.
            deadline: match self.child_deadline() {
                Limit::AtMost(deadline) => Some(deadline),
                Limit::Unlimited => None,
            },
            mode: Some(self.kit.authority.permissions.mode),
            ..Hop::default()
        }
        .lending(left)
    }

    /// The depth of the session that takes work up elsewhere. A call has one that makes it in our place, and an external
    /// agent one that is the agent. At the top nobody was started for it yet, so it is one deeper: else a loop of external
    /// agents would have no end.
    fn far_depth(&self) -> u32 {
        let (depth, is_root) =
            self.state.round().map_or((0, true), |round| (round.depth, round.parent.is_none()));
        let is_new = is_root && self.kit.terms.is_some();
        depth.saturating_add(u32::from(is_new))
    }
}
