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

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(tokens: u64, usd: u64, agents: u64) -> Resources {
        Resources { tokens, usd, agents }
    }

    fn tokens(input: u64) -> Usage {
        Usage { input, ..Usage::default() }
    }

    const LIMITS: ExternalLimits =
        ExternalLimits { turns: None, timeout: None, tokens: 1000, usd: 50, agents: 4 };
    const UNLENT: ExternalLimits = ExternalLimits { tokens: 0, usd: 0, ..LIMITS };

    #[test]
    fn loan_has_exactly_the_limits() {
        let at_most = |tokens, usd, agents| Budget {
            tokens: Limit::AtMost(tokens),
            usd: Limit::AtMost(usd),
            agents: Limit::AtMost(agents),
        };
        assert_eq!(LIMITS.budget(), at_most(1000, 50, 4));
        assert_eq!(LIMITS.advertised(at_most(7, 8, 9)), at_most(7, 8, 9));
        let own_account = Budget { agents: Limit::AtMost(9), ..Budget::UNLIMITED };
        assert_eq!(UNLENT.advertised(at_most(7, 8, 9)), own_account);
        assert_eq!(LIMITS.worst_case(at_most(7, 80, 9)).amount, resources(7, 50, 4));
        assert_eq!(LIMITS.worst_case(at_most(7000, 8, 1)).amount, resources(1000, 8, 1));
        assert_eq!(LIMITS.worst_case(Budget::UNLIMITED).amount, resources(1000, 50, 4));
    }

    #[test]
    fn reported_usage_is_charged_and_the_rest_stays_reserved_while_the_agent_works() {
        let report = ReportedUsage {
            usage: Some(tokens(100)),
            usd: Some(5),
            agents: Some(1),
            unconfirmed: resources(10, 2, 1),
            is_over: false,
        };
        let spent = LIMITS.cost(report, resources(1000, 50, 4));
        let expected = Spent {
            usage: tokens(100),
            usd: 5,
            agents: 1,
            unconfirmed: resources(10, 2, 1),
            held_back: resources(890, 43, 2),
            reported: resources(100, 5, 1),
            ..Spent::default()
        };
        assert_eq!(spent, expected);
        let over = LIMITS.cost(ReportedUsage { is_over: true, ..report }, resources(1000, 50, 4));
        assert_eq!(over, Spent { held_back: Resources::default(), ..expected });
        assert_eq!(report.amount(), resources(110, 7, 2));
    }

    #[test]
    fn unreported_usage_is_unconfirmed_at_the_end() {
        let silent = ReportedUsage { is_over: true, ..ReportedUsage::default() };
        let spent = LIMITS.cost(silent, resources(1000, 50, 4));
        let expected = Spent { unconfirmed: resources(1000, 50, 4), cost_unreported: 1, ..Spent::default() };
        assert_eq!(spent, expected);
        let only_cost = ReportedUsage { usd: Some(5), ..silent };
        let spent = LIMITS.cost(only_cost, resources(1000, 50, 4));
        assert_eq!((spent.unconfirmed, spent.cost_unreported), (resources(1000, 0, 4), 0));
        let working = ReportedUsage { is_over: false, ..silent };
        let spent = LIMITS.cost(working, resources(1000, 50, 4));
        assert_eq!((spent.unconfirmed, spent.held_back), (Resources::default(), resources(1000, 50, 4)));
        assert_eq!(spent.cost_unreported, 0);
        assert_eq!(silent.amount(), Resources::default());
    }

    #[test]
    fn usage_on_the_account_of_the_agent_is_reported_but_not_charged() {
        let report = ReportedUsage {
            usage: Some(tokens(100)),
            usd: Some(5),
            agents: Some(9),
            is_over: true,
            ..ReportedUsage::default()
        };
        let spent = UNLENT.cost(report, resources(0, 0, 4));
        let expected = Spent { agents: 4, reported: resources(100, 5, 9), ..Spent::default() };
        assert_eq!(spent, expected, "agents count up to the loan");
    }

    #[test]
    fn report_of_a_brigade_process_is_read_completely() {
        let report = UsageReport {
            input_tokens: 1,
            output_tokens: 2,
            usd: 3,
            agents: 4,
            unconfirmed_tokens: 5,
            unconfirmed_usd: 6,
            unconfirmed_agents: 7,
            ..UsageReport::default()
        };
        let expected = ReportedUsage {
            usage: Some(Usage { input: 1, output: 2, ..Usage::default() }),
            usd: Some(3),
            agents: Some(4),
            unconfirmed: resources(5, 6, 7),
            is_over: false,
        };
        assert_eq!(ReportedUsage::from(&report), expected);
    }
}
