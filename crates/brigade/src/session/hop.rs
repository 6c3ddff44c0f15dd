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
            depth: self.state.round().map_or(0, |round| round.depth),
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
}
