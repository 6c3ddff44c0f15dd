//! Authority that only shrinks, and budgets that are lent.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::Hash;
use crate::money::Resources;
use crate::permission::{Mode, Permissions, Rule};

/// A number that may not be exceeded, or none. An absent field of an old log reads as zero: the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// At most this many.
    AtMost(u64),
    /// Any number.
    Unlimited,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit::AtMost(0)
    }
}

impl Limit {
    /// The number as such, where no limit is the largest number.
    pub fn number(self) -> u64 {
        match self {
            Limit::AtMost(number) => number,
            Limit::Unlimited => u64::MAX,
        }
    }

    /// What is left of it after `used`.
    pub fn minus(self, used: u64) -> Limit {
        match self {
            Limit::AtMost(number) => Limit::AtMost(number.saturating_sub(used)),
            Limit::Unlimited => Limit::Unlimited,
        }
    }

    /// The narrower of two.
    pub fn min(self, other: Limit) -> Limit {
        match (self, other) {
            (Limit::AtMost(a), Limit::AtMost(b)) => Limit::AtMost(a.min(b)),
            (Limit::AtMost(a), Limit::Unlimited) | (Limit::Unlimited, Limit::AtMost(a)) => Limit::AtMost(a),
            (Limit::Unlimited, Limit::Unlimited) => Limit::Unlimited,
        }
    }

    fn share(self, of: u64) -> Limit {
        match self {
            Limit::AtMost(number) => Limit::AtMost(number / of.max(1)),
            Limit::Unlimited => Limit::Unlimited,
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::AtMost(number) => serializer.serialize_u64(*number),
            Limit::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RawLimit {
            Number(u64),
            Keyword(Keyword),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Keyword {
            Unlimited,
        }
        Ok(match RawLimit::deserialize(deserializer)? {
            RawLimit::Number(number) => Limit::AtMost(number),
            RawLimit::Keyword(Keyword::Unlimited) => Limit::Unlimited,
        })
    }
}

/// What may be used up: of a tree at the root, of a loan below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Tokens, input and output together.
    pub tokens: Limit,
    /// Nano-dollars.
    pub usd: Limit,
    /// Agents that may be started below.
    pub agents: Limit,
}

impl Budget {
    /// No limit at all.
    pub const UNLIMITED: Budget =
        Budget { tokens: Limit::Unlimited, usd: Limit::Unlimited, agents: Limit::Unlimited };

    /// At most so many tokens and nano-dollars, and any number of agents; none if neither is limited.
    pub fn of(tokens: Option<u64>, usd: Option<u64>) -> Option<Budget> {
        let limit = |number: Option<u64>| number.map_or(Limit::Unlimited, Limit::AtMost);
        let budget = Budget { tokens: limit(tokens), usd: limit(usd), agents: Limit::Unlimited };
        (budget != Budget::UNLIMITED).then_some(budget)
    }

    /// What is left of it after `used`.
    pub fn minus(self, used: Resources) -> Budget {
        Budget {
            tokens: self.tokens.minus(used.tokens),
            usd: self.usd.minus(used.usd),
            agents: self.agents.minus(used.agents),
        }
    }

    /// Nothing of what it limits.
    pub fn exhausted(self) -> Budget {
        self.minus(Resources { tokens: u64::MAX, usd: u64::MAX, agents: u64::MAX })
    }

    /// The narrower of two, field by field.
    pub fn min(self, other: Budget) -> Budget {
        Budget {
            tokens: self.tokens.min(other.tokens),
            usd: self.usd.min(other.usd),
            agents: self.agents.min(other.agents),
        }
    }

    /// An equal part of it.
    pub fn share(self, of: u64) -> Budget {
        Budget { tokens: self.tokens.share(of), usd: self.usd.share(of), agents: self.agents.share(of) }
    }

    /// Whether `amount` fits into it.
    pub fn fits(&self, amount: Resources) -> bool {
        amount.tokens <= self.tokens.number()
            && amount.usd <= self.usd.number()
            && amount.agents <= self.agents.number()
    }

    /// How many times `amount` fits into it, at least 1.
    pub fn times_covered(&self, amount: Resources) -> u64 {
        let times = |limit: Limit, amount: u64| match limit {
            Limit::AtMost(number) if amount > 0 => number / amount,
            Limit::AtMost(_) | Limit::Unlimited => u64::MAX,
        };
        times(self.tokens, amount.tokens).min(times(self.usd, amount.usd)).max(1)
    }

    /// The part of `amount` that does not fit into it.
    pub fn exceeded_by(&self, amount: Resources) -> Resources {
        Resources {
            tokens: amount.tokens.saturating_sub(self.tokens.number()),
            usd: amount.usd.saturating_sub(self.usd.number()),
            agents: amount.agents.saturating_sub(self.agents.number()),
        }
    }

    /// How much of the lender's budget this takes away while it is lent: only what the lender counts, and the
    /// agent itself.
    pub fn as_loan(&self, lender: &Budget) -> Resources {
        self.charged_to(lender).plus(Resources { agents: 1, ..Resources::default() })
    }

    /// How much of the lender's budget this is: only what the lender counts.
    pub fn charged_to(&self, lender: &Budget) -> Resources {
        let counted = |limit: Limit, lender: Limit| match (limit, lender) {
            (Limit::AtMost(number), Limit::AtMost(_)) => number,
            (Limit::Unlimited, Limit::AtMost(_)) => u64::MAX,
            (_, Limit::Unlimited) => 0,
        };
        Resources {
            tokens: counted(self.tokens, lender.tokens),
            usd: counted(self.usd, lender.usd),
            agents: counted(self.agents, lender.agents),
        }
    }
}

/// What one round of a session may do and use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The [`Authority`], by hash: it is the same for many sessions and stored once.
    pub authority: Hash,
    /// What may be used up.
    #[serde(default)]
    pub budget: Budget,
    /// The most model calls of the round, without the grace call.
    #[serde(default)]
    pub turns: u32,
    /// When it has to be over, in UTC milliseconds, before time without a runner is added.
    #[serde(default)]
    pub deadline: Limit,
}

/// What a session may do. A child's is never wider than its parent's in any field. A field that an old log does not
/// have reads as the narrowest value; a field that this version does not know is an error, because dropping it could
/// widen what it was meant to narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Authority {
    /// Tools that the agent may use.
    pub tools: BTreeSet<String>,
    /// Tools that it may give to children.
    pub lend: BTreeSet<String>,
    /// The rules that decide single calls.
    pub permissions: Permissions,
    /// The depth of the deepest session that may exist on this path.
    #[serde(rename = "deepest")]
    pub max_depth: u32,
    /// Agent definitions that it may start by name.
    pub agents: Names,
    /// Models that it may use.
    pub models: Names,
    /// The folder that its tools work in. A resume from elsewhere goes on there.
    pub workspace: String,
    /// Folders of the workspace that its tools may touch, relative to the root; `""` is all of it.
    pub paths: BTreeSet<String>,
    /// Whether its tools may reach the network.
    pub network: Access,
    /// Whether it may speak to the person.
    pub speak: Access,
}

/// A set of names that may be open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// Every name.
    Any,
    /// Just these.
    Only(BTreeSet<String>),
}

impl Default for Names {
    fn default() -> Names {
        Names::Only(BTreeSet::new())
    }
}

impl Names {
    /// Whether the set has this name.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Names::Any => true,
            Names::Only(names) => names.contains(name),
        }
    }

    fn is_within(&self, wider: &Names) -> bool {
        match (self, wider) {
            (_, Names::Any) => true,
            (Names::Any, Names::Only(_)) => false,
            (Names::Only(mine), Names::Only(theirs)) => mine.is_subset(theirs),
        }
    }
}

/// Yes or no, where no is the narrower.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Not allowed.
    #[default]
    Denied,
    /// Allowed.
    Allowed,
}

/// What a delegation asks for, before it is cut down to what the parent may give. `None` is "as the default says".
#[derive(Debug, Clone, Default)]
pub struct AuthorityRequest {
    /// Tools to use: an explicit whitelist, or the parent's own.
    pub tools: Option<Vec<String>>,
    /// Tools that a definition of the user names for this child. Only these are lent beside the parent's own.
    pub defined: Vec<String>,
    /// Tools that the call requested and the definition does not have. They are reported, not lent.
    pub not_in_definition: Vec<String>,
    /// Tools to lend on: an explicit list, or the child's own.
    pub lend: Option<Vec<String>>,
    /// The deepest level that the face allows.
    pub max_depth: u32,
    /// The mode, where it is to be narrower.
    pub mode: Option<Mode>,
    /// Calls that it never makes.
    pub deny: Vec<Rule>,
    /// The model that it is to use, where it differs from the parent's.
    pub model: Option<String>,
    /// Tools that are never lent: delegation tools of the runtime, which follow from depth alone.
    pub excluded: Vec<String>,
}

/// Why a delegation asks for more than its parent can give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttenuateError {
    /// The tree would get too deep.
    #[error(
        "no agent may start below depth {max_depth}: limits.max_depth and max_depth of the section that delegates (swarm, subagent, \
         dispatch, spawn) set that, here and where the work comes from"
    )]
    Depth {
        /// The deepest level there may be.
        max_depth: u32,
    },
    /// The model is not among those that may be used.
    #[error("the model '{0}' is not among the models that this agent may use")]
    Model(String),
}

/// A child's authority and the names that its whitelist asked for in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attenuated {
    /// What the child may do.
    pub authority: Authority,
    /// Names on the whitelist that are not tools that this child can be lent.
    pub unknown_tools: Vec<String>,
}

impl Authority {
    /// Tools that this agent may both use and lend: all that a child without a definition can get.
    pub fn own_tools(&self) -> BTreeSet<String> {
        self.tools.intersection(&self.lend).cloned().collect()
    }

    /// Cuts a wish down to what this authority may give to a child at `depth`. The child's tools are among the agent's
    /// own and those that a definition names, and always within what the agent may lend.
    pub fn attenuate(&self, request: &AuthorityRequest, depth: u32) -> Result<Attenuated, AttenuateError> {
        let max_depth = self.max_depth.min(request.max_depth);
        if depth > max_depth {
            return Err(AttenuateError::Depth { max_depth });
        }
        if let Some(model) = &request.model
            && !self.models.has(model)
        {
            return Err(AttenuateError::Model(model.clone()));
        }
        let lendable = |name: &&String| self.lend.contains(*name) && !request.excluded.contains(*name);
        let known = |name: &&String| {
            self.lend.contains(*name) && (self.tools.contains(*name) || request.defined.contains(*name))
        };
        let mut unknown_tools = Vec::new();
        let tools: BTreeSet<String> = match &request.tools {
            None => self.tools.iter().filter(lendable).cloned().collect(),
            Some(names) => {
                unknown_tools.extend(names.iter().filter(|name| !known(name)).cloned());
                names.iter().filter(|name| known(name) && lendable(name)).cloned().collect()
            }
        };
        let lend = match &request.lend {
            None => tools.clone(),
            Some(names) => names.iter().filter(lendable).cloned().collect(),
        };
        let mut permissions = self.permissions.narrowed_to(request.mode.unwrap_or(self.permissions.mode));
        permissions
            .deny
            .extend(request.deny.iter().filter(|rule| !self.permissions.deny.contains(rule)).cloned());
        let authority = Authority { tools, lend, permissions, max_depth, ..self.clone() };
        Ok(Attenuated { authority, unknown_tools })
    }

    /// Whether this authority is nowhere wider than what `parent` may give.
    pub fn is_within(&self, parent: &Authority) -> bool {
        self.tools.is_subset(&parent.lend)
            && self.lend.is_subset(&parent.lend)
            && self.permissions.mode <= parent.permissions.mode
            && parent.permissions.deny.iter().all(|rule| self.permissions.deny.contains(rule))
            && parent.permissions.ask.iter().all(|rule| self.permissions.ask.contains(rule))
            && self.permissions.allow.iter().all(|rule| parent.permissions.allow.contains(rule))
            && self.max_depth <= parent.max_depth
            && self.agents.is_within(&parent.agents)
            && self.models.is_within(&parent.models)
            && self.workspace == parent.workspace
            && self.paths.is_subset(&parent.paths)
            && self.network <= parent.network
            && self.speak <= parent.speak
    }

    /// The bytes that stand for this authority in a store.
    pub fn encoded(&self) -> String {
        // Sets, strings and numbers always serialise; an empty text would only fail to be found again.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The hash that grants name it by.
    pub fn hash(&self) -> Hash {
        Hash::of(self.encoded().as_bytes())
    }
}
