//! Agents that other programs run: the seam between the driver and whatever speaks to them.
//!
//! An external agent is a [`Model`]: it is asked, it replies in pieces, and what it wants done by us are calls in its
//! reply. The driver judges and runs those calls as it does those of any model.

use std::sync::Arc;

use brigade_core::{Budget, Limit, Resources, SessionId, Spent, Usage};
use futures::future::BoxFuture;

use crate::model::Model;
use crate::tool::AnyTool;

/// Why a session ends that was under way in another program when the runner ended.
pub const INTERRUPTED: &str = "interrupted, outcome unknown: the runner ended while the external agent worked, and what \
it has done by then is not known; it is not asked again";

/// The external agents that a runtime can reach.
///
/// # Contract
///
/// * A place is `server` or `server/agent`. A place that is not known is an error that names those that are.
/// * A model of it never asks to be called again after a fault: what an external agent has done by then is not known.
/// * Whatever it keeps for a session is given up when the session is [ended](External::end).
pub trait ExternalAgents: Send + Sync + 'static {
    /// The model that stands for the agent at this place.
    fn model(&self, place: &str) -> Result<Arc<dyn Model>, String>;

    /// What an agent at this place is lent.
    fn limits(&self, place: &str) -> ExternalLimits;

    /// The tool of this name as external agents use it, where that is another one than that of our own agents.
    fn tool(&self, name: &str) -> Option<&ExternalTool>;

    /// Tells the agent of a session to stop and waits a short time for its account of what it used since the last one.
    /// None if there is no such agent.
    fn stop<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Option<ReportedUsage>>;

    /// Gives up what is kept for a session.
    fn end(&self, session: &SessionId);
}

/// A tool that carries out what an external agent asks of us.
pub struct ExternalTool {
    /// The tool.
    pub tool: Arc<dyn AnyTool>,
    /// Tools of which the agent's authority has to have one; none where any agent may ask for this.
    pub needs: &'static [&'static str],
}

/// What an external agent is lent beside one agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExternalLimits {
    /// How often it may ask something of us, where its definition does not say.
    pub turns: Option<u32>,
    /// How long it may take in milliseconds, where its definition does not say.
    pub timeout: Option<u64>,
    /// Tokens. Where there are none, those that it reports count for nothing.
    pub tokens: u64,
    /// Nano-dollars. Where there are none, those that it reports count for nothing.
    pub usd: u64,
    /// Agents that it may start in its turn, where it is a Brigade.
    pub agents: u64,
}

/// What an external agent says that it used up since it was last asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Tokens, if it says.
    pub usage: Option<Usage>,
    /// Nano-dollars, if it says.
    pub usd: Option<u64>,
    /// Agents that it started in its turn, if it says.
    pub agents: Option<u64>,
    /// What it does not know itself.
    pub unconfirmed: Resources,
    /// Whether it is done with what it was asked: there is no more to come.
    pub is_over: bool,
}

impl ReportedUsage {
    /// What it takes out of a budget at most, by its own account.
    pub fn amount(&self) -> Resources {
        let tokens = self.usage.map_or(0, |usage| usage.total());
        let report = Resources { tokens, usd: self.usd.unwrap_or(0), agents: self.agents.unwrap_or(0) };
        report.plus(self.unconfirmed)
    }
}

impl ExternalLimits {
    /// The loan.
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            tokens: Limit::AtMost(self.tokens),
            usd: Limit::AtMost(self.usd),
            agents: Limit::AtMost(self.agents),
        }
    }

    /// What an agent is told of the loan of which this is left. Tokens and money that it is not lent it pays for
    /// itself; agents are those of the tree, whoever pays for them.
    pub(crate) fn advertised(&self, left: Budget) -> Budget {
        Budget {
            tokens: if self.tokens == 0 { Limit::Unlimited } else { left.tokens },
            usd: if self.usd == 0 { Limit::Unlimited } else { left.usd },
            agents: left.agents,
        }
    }

    /// What a call cost by the agent's own account. It counts as far as there is a loan that it can count against. What
    /// it has not accounted for stays set aside while it works, and is in doubt where it will never say.
    pub(crate) fn cost(&self, report: ReportedUsage, reserved: Resources) -> Spent {
        let (usage, usd, agents) =
            (report.usage.unwrap_or_default(), report.usd.unwrap_or(0), report.agents.unwrap_or(0));
        let reported = Resources { tokens: usage.total(), usd, agents };
        let usage = if self.tokens == 0 { Usage::default() } else { usage };
        let usd = if self.usd == 0 { 0 } else { usd };
        // No more than it was lent: a Brigade keeps to that, and what else it may mean by the word is its own affair.
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

    /// What is set aside for a call: all that is left of the loan, since nobody knows what the agent will use.
    pub(crate) fn reserve(&self, free: Budget) -> Resources {
        Resources {
            tokens: self.tokens.min(free.tokens.number()),
            usd: self.usd.min(free.usd.number()),
            agents: self.agents.min(free.agents.number()),
        }
    }
}

/// Ends what is kept for a session when its driver goes.
pub(crate) struct ExternalSessionGuard {
    pub(crate) external: Arc<dyn ExternalAgents>,
    pub(crate) session: SessionId,
    /// The newest write of the tree when the session began.
    pub(crate) since: u64,
}

impl Drop for ExternalSessionGuard {
    fn drop(&mut self) {
        self.external.end(&self.session);
    }
}
