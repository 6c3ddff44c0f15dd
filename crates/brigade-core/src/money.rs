//! Resources: tokens, money and agents.

use serde::{Deserialize, Serialize};

/// Amount of the three conserved resources: tokens, nano-dollars and agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// Tokens, input and output together.
    pub tokens: u64,
    /// Nano-dollars.
    #[serde(skip_serializing_if = "is_zero")]
    pub usd: u64,
    /// Agents that may be started.
    #[serde(skip_serializing_if = "is_zero")]
    pub agents: u64,
}

pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Resources {
    /// Whether every field is zero.
    pub fn is_zero(&self) -> bool {
        *self == Resources::default()
    }

    /// Returns the sum, saturating.
    pub fn plus(self, other: Resources) -> Resources {
        Resources {
            tokens: self.tokens.saturating_add(other.tokens),
            usd: self.usd.saturating_add(other.usd),
            agents: self.agents.saturating_add(other.agents),
        }
    }

    /// Returns the difference, saturating at zero.
    pub fn minus(self, other: Resources) -> Resources {
        Resources {
            tokens: self.tokens.saturating_sub(other.tokens),
            usd: self.usd.saturating_sub(other.usd),
            agents: self.agents.saturating_sub(other.agents),
        }
    }
}

/// Token usage that a model reports for one reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to a cache.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Input tokens written to the provider's cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write: u64,
}

impl Usage {
    /// Returns all input and output tokens.
    pub fn total(&self) -> u64 {
        self.input_total().saturating_add(self.output)
    }

    /// Returns all input tokens, cached or not.
    pub fn input_total(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    fn plus(self, other: Usage) -> Usage {
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

/// Price in nano-dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from a cache.
    pub cache_read: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
}

impl Price {
    /// Returns the cost of this usage, rounded up.
    pub fn of(&self, usage: Usage) -> u64 {
        let parts = [
            (usage.input, self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
        ];
        let products = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price));
        let sum = products.fold(0, u128::saturating_add);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Returns the highest possible cost of `input` and `output` tokens, however they are cached.
    pub fn worst_case(&self, input: u64, output: u64) -> u64 {
        let highest = Price { input: self.input.max(self.cache_write).max(self.cache_read), ..*self };
        highest.of(Usage { input, output, ..Usage::default() })
    }
}

/// Usage of a call or of a whole session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Reported tokens.
    pub usage: Usage,
    /// Nano-dollars for the reported tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub usd: u64,
    /// Agents that were started below.
    #[serde(skip_serializing_if = "is_zero")]
    pub agents: u64,
    /// Model calls that were answered.
    #[serde(skip_serializing_if = "is_zero")]
    pub turns: u64,
    /// Reserves of calls whose reply never arrived: their maximum possible cost.
    #[serde(skip_serializing_if = "Resources::is_zero")]
    #[serde(rename = "in_doubt")]
    pub unconfirmed: Resources,
    /// Usage that the grant of the session does not cover. The parent is charged for it when the child returns.
    #[serde(skip_serializing_if = "Resources::is_zero")]
    pub overrun: Resources,
    /// Tokens above the reserves of their calls, whether the rest of the grant covered them or not.
    #[serde(skip_serializing_if = "is_zero")]
    pub excess: u64,
    /// Rounds of external agents that reported no cost.
    #[serde(skip_serializing_if = "is_zero")]
    pub cost_unreported: u64,
    /// Model calls with an unknown price. They are not included in `usd`.
    #[serde(skip_serializing_if = "is_zero")]
    pub unpriced: u64,
    /// Tokens of `usage` that are an estimate, because the provider reported implausibly few.
    #[serde(skip_serializing_if = "is_zero")]
    pub estimated: u64,
    /// Part of the reserve that stays reserved after the call, because an external agent continues its work. The
    /// next call takes it over; at the end of the round it is unconfirmed. It is not included in any sum.
    #[serde(skip_serializing_if = "Resources::is_zero")]
    #[serde(rename = "held")]
    pub held_back: Resources,
    /// Usage that external agents report. It is billed to their own account, so no budget is charged for it.
    #[serde(skip_serializing_if = "Resources::is_zero")]
    pub reported: Resources,
}

impl Spent {
    /// Whether nothing was used.
    pub fn is_zero(&self) -> bool {
        *self == Spent::default()
    }

    /// Returns the sum.
    pub fn plus(self, other: Spent) -> Spent {
        Spent {
            usage: self.usage.plus(other.usage),
            usd: self.usd.saturating_add(other.usd),
            agents: self.agents.saturating_add(other.agents),
            turns: self.turns.saturating_add(other.turns),
            unconfirmed: self.unconfirmed.plus(other.unconfirmed),
            overrun: self.overrun.plus(other.overrun),
            excess: self.excess.saturating_add(other.excess),
            cost_unreported: self.cost_unreported.saturating_add(other.cost_unreported),
            unpriced: self.unpriced.saturating_add(other.unpriced),
            estimated: self.estimated.saturating_add(other.estimated),
            held_back: Resources::default(),
            reported: self.reported.plus(other.reported),
        }
    }

    /// Returns the resources to charge to a budget: reported and unconfirmed usage.
    pub fn amount(&self) -> Resources {
        let certain = Resources { tokens: self.usage.total(), usd: self.usd, agents: self.agents };
        certain.plus(self.unconfirmed)
    }

    /// Creates the usage of a call that was sent and whose reply never arrived.
    pub fn unconfirmed(reserved: Resources) -> Spent {
        Spent { unconfirmed: reserved, ..Spent::default() }
    }
}
