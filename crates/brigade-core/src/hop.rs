//! What travels with work that leaves the process: over MCP and ACP, and back into Brigade.
//!
//! Whoever hands work on says where it stands and what is left. Whoever takes it up stays within that, so that a loop
//! through another program meets the same limits as one inside.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::grant::{Authority, Budget, Limit};
use crate::money::Amount;
use crate::permission::Mode;

/// The key of `_meta` that a hop stands under.
pub const KEY: &str = "brigade/hop";

/// The most sessions that are named.
const LONGEST_LINEAGE: usize = 64;
/// The longest name of one.
const LONGEST_NAME: usize = 512;

/// Where work comes from, and what is left for it. A field that is absent limits nothing: another program may know
/// nothing of it, and what the taker's own settings say counts in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hop {
    /// The sessions above, from the first; of each process the one that handed the work on.
    pub lineage: Vec<String>,
    /// The depth of the session that takes it up. One that stands for its caller, or for an agent that its caller
    /// started, is as deep as that.
    pub depth: u32,
    /// The depth of the deepest session that there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deepest: Option<u32>,
    /// When it has to be over, in UTC milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// Tokens that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Nano-dollars that are left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<u64>,
    /// Agents that may still be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<u64>,
    /// How freely the caller works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
}

impl Hop {
    /// The hop that a `_meta` object carries, if it carries one. One that cannot be read is an error: to go on without
    /// it would be to go on without limits.
    pub fn in_meta(meta: &Map<String, Value>) -> Result<Option<Hop>, String> {
        let Some(value) = meta.get(KEY) else { return Ok(None) };
        let hop: Hop =
            serde_json::from_value(value.clone()).map_err(|cause| format!("`_meta.{KEY}`: {cause}"))?;
        if hop.lineage.len() > LONGEST_LINEAGE {
            return Err(format!("`_meta.{KEY}`: more than {LONGEST_LINEAGE} sessions in the lineage"));
        }
        let is_name = |name: &String| {
            (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !hop.lineage.iter().all(is_name) {
            return Err(format!("`_meta.{KEY}`: the lineage names something that is no session"));
        }
        Ok(Some(hop))
    }

    /// Puts the hop into a `_meta` object.
    pub fn put(&self, meta: &mut Map<String, Value>) {
        if let Ok(value) = serde_json::to_value(self) {
            meta.insert(KEY.to_owned(), value);
        }
    }

    /// The authority of the session that takes the work up, never wider than `own`.
    pub fn narrow(&self, mut own: Authority) -> Authority {
        own.deepest = self.deepest.map_or(own.deepest, |deepest| deepest.min(own.deepest));
        if let Some(mode) = self.mode {
            own.permissions = own.permissions.narrowed_to(mode.min(own.permissions.mode));
        }
        own
    }

    /// The hop that stays within both. It comes from the deeper of the two; from `later` where they stand alike.
    #[must_use]
    pub fn and(&self, later: &Hop) -> Hop {
        let from = if later.depth >= self.depth { later } else { self };
        Hop {
            lineage: from.lineage.clone(),
            depth: from.depth,
            deepest: narrower(self.deepest, later.deepest),
            deadline: narrower(self.deadline, later.deadline),
            tokens: narrower(self.tokens, later.tokens),
            usd: narrower(self.usd, later.usd),
            agents: narrower(self.agents, later.agents),
            mode: narrower(self.mode, later.mode),
        }
    }

    /// The same with this much to use up.
    #[must_use]
    pub fn lending(self, budget: Budget) -> Hop {
        let number = |limit: Limit| match limit {
            Limit::AtMost(number) => Some(number),
            Limit::Unlimited => None,
        };
        Hop { tokens: number(budget.tokens), usd: number(budget.usd), agents: number(budget.agents), ..self }
    }

    /// What is left of it after `used`.
    #[must_use]
    pub fn less(&self, used: Amount) -> Hop {
        let left = |number: Option<u64>, used: u64| number.map(|number| number.saturating_sub(used));
        Hop {
            tokens: left(self.tokens, used.tokens),
            usd: left(self.usd, used.usd),
            agents: left(self.agents, used.agents),
            ..self.clone()
        }
    }

    /// What the session that takes the work up may use up.
    pub fn within(&self, own: Budget) -> Budget {
        let limit = |number: Option<u64>| number.map_or(Limit::Unlimited, Limit::AtMost);
        own.min(Budget { tokens: limit(self.tokens), usd: limit(self.usd), agents: limit(self.agents) })
    }
}

/// The narrower of two limits, either of which may limit nothing.
fn narrower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(hop: Value) -> Map<String, Value> {
        Map::from_iter([(KEY.to_owned(), hop)])
    }

    #[test]
    fn a_hop_that_is_put_is_found_again() {
        let hop = Hop {
            lineage: vec!["abc".to_owned(), "abc.1-1".to_owned()],
            depth: 3,
            deepest: Some(5),
            deadline: Some(7),
            tokens: Some(11),
            usd: None,
            agents: Some(0),
            mode: Some(Mode::Edit),
        };
        let mut meta = Map::new();
        assert_eq!(Hop::in_meta(&meta), Ok(None));
        hop.put(&mut meta);
        assert_eq!(Hop::in_meta(&meta), Ok(Some(hop)));
    }

    #[test]
    fn what_cannot_be_read_is_no_licence() {
        for bad in [
            json!("deep"),
            json!({"depth": -1}),
            json!({"depth": 4_294_967_296_u64}),
            json!({"lineage": ["a b"]}),
            json!({"lineage": [""]}),
            json!({"lineage": vec!["a"; 65]}),
            json!({"tokens": "many"}),
            json!({"mode": "root"}),
        ] {
            assert!(Hop::in_meta(&meta(bad.clone())).is_err(), "{bad}");
        }
        assert_eq!(Hop::in_meta(&meta(json!({}))), Ok(Some(Hop::default())));
        assert!(Hop::in_meta(&meta(json!({"later": 1}))).is_ok());
    }

    #[test]
    fn two_bind_together() {
        let one = Hop {
            lineage: vec!["one".to_owned()],
            depth: 2,
            deepest: Some(9),
            deadline: Some(100),
            tokens: Some(10),
            usd: None,
            agents: Some(3),
            mode: Some(Mode::Plan),
        };
        let two = Hop {
            lineage: vec!["two".to_owned()],
            depth: 1,
            deepest: Some(4),
            deadline: Some(200),
            tokens: None,
            usd: Some(7),
            agents: Some(5),
            mode: Some(Mode::Auto),
        };
        let both = Hop { deepest: Some(4), usd: Some(7), ..one.clone() };
        assert_eq!((one.and(&two), two.and(&one)), (both.clone(), both));
        assert_eq!(one.and(&Hop::default()), one);
        assert_eq!(Hop::default().and(&one), one);
        let alike = Hop { depth: 2, ..two.clone() };
        assert_eq!(one.and(&alike).lineage, alike.lineage);
    }

    #[test]
    fn what_is_used_up_is_gone() {
        let hop = Hop { tokens: Some(10), agents: Some(1), depth: 3, ..Hop::default() };
        let left = hop.less(Amount { tokens: 4, usd: 5, agents: 2 });
        assert_eq!(left, Hop { tokens: Some(6), agents: Some(0), ..hop });
    }

    #[test]
    fn it_only_narrows() {
        let own = Authority { deepest: 4, ..Authority::default() };
        let wide = Hop { deepest: Some(9), mode: Some(Mode::Auto), ..Hop::default() };
        assert_eq!(wide.narrow(own.clone()), own);
        let deep = Hop { deepest: Some(2), ..Hop::default() };
        assert_eq!(deep.narrow(own).deepest, 2);
        let budget = Budget { tokens: Limit::AtMost(10), ..Budget::UNLIMITED };
        let hop = Hop { tokens: Some(20), agents: Some(1), ..Hop::default() };
        let within = hop.within(budget);
        assert_eq!((within.tokens, within.agents), (Limit::AtMost(10), Limit::AtMost(1)));
    }
}
