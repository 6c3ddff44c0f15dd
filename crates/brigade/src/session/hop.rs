//! What travels with work that leaves this process.

use brigade_core::{Hop, Limit};
use tokio::time::Instant;

use super::Driver;
use crate::clock;

impl Driver {
    /// Where this session stands and what is left for it.
    pub(super) fn hop(&self) -> Hop {
        let free = self.state.ledger().free();
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
            tokens: number(free.tokens),
            usd: number(free.usd),
            agents: number(free.agents),
            mode: Some(self.kit.authority.permissions.mode),
        }
    }
}
