//! What travels with work that leaves this process.

use brigade_core::{Budget, Hop, Limit};
use tokio::time::Instant;

use super::Driver;
use crate::clock;
use crate::external::Terms;

impl Driver {
    /// Where this session stands and what is left for it.
    pub(super) fn hop(&self) -> Hop {
        let ledger = self.state.ledger();
        // What is set aside for the call that carries this is there for whoever takes it up.
        let left = ledger.granted().less(ledger.committed().minus(ledger.reserved()));
        let left = self.kit.terms.map_or(left, |terms| self.lent_outside(terms, left));
        let number = |limit: Limit| match limit {
            Limit::AtMost(number) => Some(number),
            Limit::Unlimited => None,
        };
        let mut lineage = self.tree.above.clone();
        lineage.push(self.state.session().to_string());
        Hop {
            lineage,
            depth: self.state.round().map_or(0, |round| round.depth),
            deepest: Some(self.kit.authority.deepest),
            deadline: self.deadline.map(|deadline| {
                let left = deadline.saturating_duration_since(Instant::now()).as_millis();
                clock::now().saturating_add(u64::try_from(left).unwrap_or(u64::MAX))
            }),
            tokens: number(left.tokens),
            usd: number(left.usd),
            agents: number(left.agents),
            mode: Some(self.kit.authority.permissions.mode),
        }
    }

    /// What binds an external agent: what it is lent, where it is lent something at all. It pays for the rest itself,
    /// and starts agents of its own, which are as many as its caller could start.
    fn lent_outside(&self, terms: Terms, left: Budget) -> Budget {
        let is_child = self.state.round().is_some_and(|round| round.parent.is_some());
        Budget {
            tokens: if terms.tokens == 0 { Limit::Unlimited } else { left.tokens },
            usd: if terms.usd == 0 { Limit::Unlimited } else { left.usd },
            agents: if is_child { self.agents_above } else { left.agents },
        }
    }
}
