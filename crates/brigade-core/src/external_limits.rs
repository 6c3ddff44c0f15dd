//! Loans to external agents, and the usage that they report.

use crate::state::WorstCase;
use crate::usage_report::UsageReport;
use crate::{Budget, Limit, Resources, Spent, Usage};

/// Limits of an external agent, in addition to one agent of the budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExternalLimits {
    /// Maximum number of requests to the runtime, if its definition sets none.
    pub turns: Option<u32>,
    /// Time limit in milliseconds, if its definition sets none.
    pub timeout: Option<u64>,
    /// Tokens. If zero, the tokens that it reports are not counted.
    pub tokens: u64,
    /// Nano-dollars. If zero, the cost that it reports is not counted.
    pub usd: u64,
    /// Agents that it may start itself, if it is a Brigade process.
    pub agents: u64,
}

impl ExternalLimits {
    /// Budget of the loan.
    pub fn budget(&self) -> Budget {
        Budget {
            tokens: Limit::AtMost(self.tokens),
            usd: Limit::AtMost(self.usd),
            agents: Limit::AtMost(self.agents),
        }
    }

    /// Part of the remaining loan that is reported to the agent. Tokens and money that it is not lent are its own
    /// to pay. Agents count for the tree, regardless of who pays for them.
    pub fn advertised(&self, left: Budget) -> Budget {
        Budget {
            tokens: if self.tokens == 0 { Limit::Unlimited } else { left.tokens },
            usd: if self.usd == 0 { Limit::Unlimited } else { left.usd },
            agents: left.agents,
        }
    }

    /// Cost of a call by the agent's own report. It counts up to the amount of the loan. What the agent has not
    /// reported stays reserved while it works, and is unconfirmed if no report will follow.
    pub fn cost(&self, report: ReportedUsage, reserved: Resources) -> Spent {
        let (usage, usd, agents) =
            (report.usage.unwrap_or_default(), report.usd.unwrap_or(0), report.agents.unwrap_or(0));
        let reported = Resources { tokens: usage.total(), usd, agents };
        let usage = if self.tokens == 0 { Usage::default() } else { usage };
        let usd = if self.usd == 0 { 0 } else { usd };
        // At most the loan: a Brigade process stays within it, and other programs may count agents differently.
        let agents = agents.min(reserved.agents);
        let used = Resources { tokens: usage.total(), usd, agents };
        let left = reserved.minus(used);
        let unconfirmed = left.minus(left.minus(report.unconfirmed));
        let left = left.minus(unconfirmed);
        let unreported = Resources {
            tokens: if report.usage.is_none() { left.tokens } else { 0 },
            usd: if report.usd.is_none() { left.usd } else { 0 },
            agents: if report.agents.is_none() { left.agents } else { 0 },
        };
        let (unconfirmed, held_back) = match report.is_over {
            true => (unconfirmed.plus(unreported), Resources::default()),
            false => (unconfirmed, left),
        };
        let cost_unreported = u64::from(report.is_over && report.usd.is_none());
        Spent { usage, usd, agents, unconfirmed, held_back, reported, cost_unreported, ..Spent::default() }
    }

    /// Reserve of a call: the rest of the loan, since the agent's usage cannot be predicted.
    pub fn worst_case(&self, free: Budget) -> WorstCase {
        let amount = Resources {
            tokens: self.tokens.min(free.tokens.number()),
            usd: self.usd.min(free.usd.number()),
            agents: self.agents.min(free.agents.number()),
        };
        WorstCase { amount, input: 0, max_output: 0 }
    }
}

/// Usage that an external agent reports since its last report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Tokens, if reported.
    pub usage: Option<Usage>,
    /// Nano-dollars, if reported.
    pub usd: Option<u64>,
    /// Agents that it started itself, if reported.
    pub agents: Option<u64>,
    /// Part of the usage that the agent itself could not confirm.
    pub unconfirmed: Resources,
    /// Whether the agent has finished, so that this is its last report.
    pub is_over: bool,
}

impl ReportedUsage {
    /// Maximum amount that this usage takes from a budget, by the agent's own report.
    pub fn amount(&self) -> Resources {
        let tokens = self.usage.map_or(0, |usage| usage.total());
        let report = Resources { tokens, usd: self.usd.unwrap_or(0), agents: self.agents.unwrap_or(0) };
        report.plus(self.unconfirmed)
    }
}

impl From<&UsageReport> for ReportedUsage {
    fn from(report: &UsageReport) -> ReportedUsage {
        ReportedUsage {
            usage: Some(Usage {
                input: report.input_tokens,
                output: report.output_tokens,
                ..Usage::default()
            }),
            usd: Some(report.usd),
            agents: Some(report.agents),
            unconfirmed: Resources {
                tokens: report.unconfirmed_tokens,
                usd: report.unconfirmed_usd,
                agents: report.unconfirmed_agents,
            },
            is_over: false,
        }
    }
}
