//! Authority that only shrinks, and budgets that are lent.

mod budget_builder;

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::Hash;
use crate::money::Resources;
use crate::permission::{Mode, Permissions, Rule};
use crate::sandbox::SandboxMode;
pub use budget_builder::{BudgetBuilder, InvalidBudget};

/// Upper limit, or none. A field that is absent in an old log reads as zero: the narrowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Maximum value.
    AtMost(u64),
    /// No limit.
    Unlimited,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit::AtMost(0)
    }
}

impl Limit {
    /// Returns the limit as a number; `Unlimited` is the largest one.
    pub fn number(self) -> u64 {
        match self {
            Limit::AtMost(number) => number,
            Limit::Unlimited => u64::MAX,
        }
    }

    /// Largest permitted number, if there is one.
    pub fn at_most(self) -> Option<u64> {
        match self {
            Limit::AtMost(number) => Some(number),
            Limit::Unlimited => None,
        }
    }

    /// Returns the rest after `used`.
    pub fn minus(self, used: u64) -> Limit {
        match self {
            Limit::AtMost(number) => Limit::AtMost(number.saturating_sub(used)),
            Limit::Unlimited => Limit::Unlimited,
        }
    }

    /// Returns the narrower of two limits.
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

impl From<Option<u64>> for Limit {
    fn from(number: Option<u64>) -> Limit {
        number.map_or(Limit::Unlimited, Limit::AtMost)
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

/// Budget: of a tree at the root, of a loan below it.
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
    /// Budget without limits.
    pub const UNLIMITED: Budget =
        Budget { tokens: Limit::Unlimited, usd: Limit::Unlimited, agents: Limit::Unlimited };

    /// Creates a budget with these limits on tokens and nano-dollars, and any number of agents; `None` if neither
    /// is limited.
    pub fn of(tokens: Option<u64>, usd: Option<u64>) -> Option<Budget> {
        let budget = Budget { tokens: tokens.into(), usd: usd.into(), agents: Limit::Unlimited };
        (budget != Budget::UNLIMITED).then_some(budget)
    }

    /// Returns the rest after `used`.
    pub fn minus(self, used: Resources) -> Budget {
        Budget {
            tokens: self.tokens.minus(used.tokens),
            usd: self.usd.minus(used.usd),
            agents: self.agents.minus(used.agents),
        }
    }

    /// Returns the budget with every limited field at zero.
    pub fn exhausted(self) -> Budget {
        self.minus(Resources { tokens: u64::MAX, usd: u64::MAX, agents: u64::MAX })
    }

    /// Returns the narrower of two budgets, field by field.
    pub fn min(self, other: Budget) -> Budget {
        Budget {
            tokens: self.tokens.min(other.tokens),
            usd: self.usd.min(other.usd),
            agents: self.agents.min(other.agents),
        }
    }

    /// Returns an equal share.
    pub fn share(self, of: u64) -> Budget {
        Budget { tokens: self.tokens.share(of), usd: self.usd.share(of), agents: self.agents.share(of) }
    }

    /// Whether `amount` fits into the budget.
    pub fn fits(&self, amount: Resources) -> bool {
        amount.tokens <= self.tokens.number()
            && amount.usd <= self.usd.number()
            && amount.agents <= self.agents.number()
    }

    /// Returns how many times `amount` fits into the budget, at least 1.
    pub fn times_covered(&self, amount: Resources) -> u64 {
        let times = |limit: Limit, amount: u64| match limit {
            Limit::AtMost(number) if amount > 0 => number / amount,
            Limit::AtMost(_) | Limit::Unlimited => u64::MAX,
        };
        times(self.tokens, amount.tokens).min(times(self.usd, amount.usd)).max(1)
    }

    /// Returns the part of `amount` that does not fit into the budget.
    pub fn exceeded_by(&self, amount: Resources) -> Resources {
        Resources {
            tokens: amount.tokens.saturating_sub(self.tokens.number()),
            usd: amount.usd.saturating_sub(self.usd.number()),
            agents: amount.agents.saturating_sub(self.agents.number()),
        }
    }

    /// Returns the resources that this loan takes from the lender's budget: only the fields that the lender limits,
    /// and the agent itself.
    pub fn as_loan(&self, lender: &Budget) -> Resources {
        self.charged_to(lender).plus(Resources { agents: 1, ..Resources::default() })
    }

    /// Returns the resources that this takes from the lender's budget: only the fields that the lender limits.
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

/// Authority and budget of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Hash of the [`Authority`], which is the same for many sessions and stored once.
    pub authority: Hash,
    /// Budget of the round.
    #[serde(default)]
    pub budget: Budget,
    /// Maximum number of model calls in the round, without the wrap-up call.
    #[serde(default)]
    pub turns: u32,
    /// Deadline in UTC milliseconds, before time without a runner is added.
    #[serde(default)]
    pub deadline: Limit,
}

/// Authority of a session. A child's authority is never wider than its parent's in any field. A field that is
/// absent in an old log reads as the narrowest value, except `sandbox`. An unknown field is an error, because dropping it could widen
/// what it was meant to narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Authority {
    /// Tools that the agent may use.
    pub tools: BTreeSet<String>,
    /// Tools that the agent may lend to children.
    pub lend: BTreeSet<String>,
    /// Rules that decide single calls.
    pub permissions: Permissions,
    /// Maximum depth of any session on this path.
    #[serde(rename = "deepest")]
    pub max_depth: u32,
    /// Agent definitions that it may start by name.
    pub agents: Names,
    /// Models that it may use.
    pub models: Names,
    /// Folder that its tools work in. A resume from another folder continues there.
    pub workspace: String,
    /// Folders of the workspace that its tools may access, relative to the root; `""` is the whole workspace.
    pub paths: BTreeSet<String>,
    /// Whether its tools may use the network.
    pub network: Access,
    /// Whether it may send messages to the user.
    pub speak: Access,
    /// Widest sandbox of its commands. If it is absent, as in older logs, the configuration decides alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxMode>,
}

/// Set of names, possibly unrestricted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// Any name.
    Any,
    /// Exactly these names.
    Only(BTreeSet<String>),
}

impl Default for Names {
    fn default() -> Names {
        Names::Only(BTreeSet::new())
    }
}

impl Names {
    /// Whether the set contains this name.
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

/// Access right; `Denied` is the narrower one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Not allowed.
    #[default]
    Denied,
    /// Allowed.
    Allowed,
}

/// Authority that a delegation requests, before it is attenuated to what the parent may give. `None` selects the
/// default.
#[derive(Debug, Clone, Default)]
pub struct AuthorityRequest {
    /// Tools to use: an explicit whitelist, or the parent's own.
    pub tools: Option<Vec<String>>,
    /// Tools that a definition by the user names for this child. Only these are lent in addition to the parent's
    /// own.
    pub defined: Vec<String>,
    /// Tools that the call requested but the definition does not contain. They are reported, not lent.
    pub not_in_definition: Vec<String>,
    /// Tools that the child may lend: an explicit list, or its own.
    pub lend: Option<Vec<String>>,
    /// Maximum depth that the style permits.
    pub max_depth: u32,
    /// Mode, if it should be narrower.
    pub mode: Option<Mode>,
    /// Sandbox of its commands, if it should be narrower.
    pub sandbox: Option<SandboxMode>,
    /// Additional deny rules.
    pub deny: Vec<Rule>,
    /// Model to use, if it differs from the parent's.
    pub model: Option<String>,
    /// Tools that are never lent: delegation tools of the runtime, which follow from depth alone.
    pub excluded: Vec<String>,
}

/// Reason why a delegation requests more than its parent can give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttenuateError {
    /// The tree would become too deep.
    #[error(
        "the maximum depth ({max_depth}) is reached. Do the task yourself. The user can raise the limit with \
         `limits.max_depth`, or `max_depth` under `swarm`, `subagent` or `spawn`. If another program delegated the work, raise its limit too"
    )]
    Depth {
        /// Maximum depth.
        max_depth: u32,
    },
    /// The model is not permitted.
    #[error("this agent may not use the model '{0}'")]
    Model(String),
}

/// Attenuated authority of a child, with the unknown names of its whitelist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attenuated {
    /// Authority of the child.
    pub authority: Authority,
    /// Names on the whitelist that are not tools that this child can be lent.
    pub unknown_tools: Vec<String>,
}

/// Returns the narrower of two sandboxes, if any is set.
pub fn narrower(one: Option<SandboxMode>, other: Option<SandboxMode>) -> Option<SandboxMode> {
    one.into_iter().chain(other).min()
}

impl Authority {
    /// Returns the tools that this agent may both use and lend: all that a child without a definition can get.
    pub fn own_tools(&self) -> BTreeSet<String> {
        self.tools.intersection(&self.lend).cloned().collect()
    }

    /// Attenuates a request to what this authority may give to a child at `depth`. The child's tools are among the
    /// agent's own and those that a definition names, and always within what the agent may lend.
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
        let sandbox = narrower(self.sandbox, request.sandbox);
        let authority = Authority { tools, lend, permissions, max_depth, sandbox, ..self.clone() };
        Ok(Attenuated { authority, unknown_tools })
    }

    /// Whether this authority is in no field wider than what `parent` may give.
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
            && narrower(self.sandbox, parent.sandbox) == self.sandbox
    }

    /// Serialises the authority as it is stored.
    pub fn encoded(&self) -> String {
        // Sets, strings and numbers always serialise; an empty text would only fail to be found again.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the hash that grants refer to.
    pub fn hash(&self) -> Hash {
        Hash::of(self.encoded().as_bytes())
    }
}

#[cfg(test)]
mod tests;
