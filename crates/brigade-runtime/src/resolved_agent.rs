//! An agent with all that it needs to run: its models or its program, its prompt, tools and limits.

use std::sync::Arc;

use brigade_core::state::CostModel;
use brigade_core::{Agent, Authority, Budget, Hash, Limit, Resources, ToolSpec};

use crate::agents::LoadError;
use crate::external::{ExternalAgents, ExternalError, ExternalLimits};
use crate::model::{ModelHandle, UnknownModel};
use crate::tool::Files;

/// Everything derived from an agent, its authority and its depth. Identical siblings share it.
pub(crate) struct ResolvedAgent {
    pub(crate) agent: Agent,
    pub(crate) agent_hash: Hash,
    pub(crate) authority: Authority,
    pub(crate) authority_hash: Hash,
    pub(crate) system: Arc<str>,
    pub(crate) specs: Arc<[ToolSpec]>,
    pub(crate) files: Files,
    pub(crate) kind: AgentKind,
}

/// Whether this process or another program runs an agent.
pub(crate) enum AgentKind {
    /// Run by this process, which calls models.
    Local(LocalAgent),
    /// Run by another program.
    External(ExternalAgent),
}

/// Models of an agent that this process runs.
pub(crate) struct LocalAgent {
    pub(crate) primary: ModelOption,
    /// Fallback models, in order.
    pub(crate) fallbacks: Vec<ModelOption>,
}

/// An agent that another program runs.
pub(crate) struct ExternalAgent {
    /// The program as a model. It has no cost here.
    pub(crate) model: ModelOption,
    pub(crate) limits: ExternalLimits,
    /// Connection to the external agents of the runtime.
    pub(crate) agents: Arc<dyn ExternalAgents>,
}

/// A model of an agent's fallback chain, with its costs.
pub(crate) struct ModelOption {
    pub(crate) name: String,
    pub(crate) model: ModelHandle,
    pub(crate) cost_model: CostModel,
    /// Whether its price is known.
    pub(crate) is_priced: bool,
}

/// Reason why an agent cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error(transparent)]
    Definition(#[from] LoadError),
    #[error("cannot run the agent '{id}': its file no longer contains `api_key`. Add it again.")]
    KeyRemoved { id: String },
    #[error(transparent)]
    Model(#[from] UnknownModel),
    #[error(transparent)]
    External(#[from] ExternalError),
}

/// Error for a budget in dollars that cannot be enforced, because the price of a model is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot enforce a budget in dollars: the price of the model '{name}' is unknown. Set its price, or use a budget in tokens."
)]
pub struct UnpricedModel {
    /// The model.
    pub name: String,
}

impl ResolvedAgent {
    /// Refuses a budget in dollars for a model with an unknown price, because it could not be enforced.
    pub(crate) fn check_budget(&self, budget: &Budget) -> Result<(), UnpricedModel> {
        let AgentKind::Local(local) = &self.kind else { return Ok(()) };
        let mut options = std::iter::once(&local.primary).chain(&local.fallbacks);
        match options.find(|model_option| !model_option.is_priced) {
            Some(ModelOption { name, .. }) if budget.usd != Limit::Unlimited => {
                Err(UnpricedModel { name: name.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether another program runs the agent.
    pub(crate) fn is_external(&self) -> bool {
        matches!(self.kind, AgentKind::External(_))
    }

    /// Returns the model in use after this many fallbacks.
    pub(crate) fn model_option(&self, fallback_index: usize) -> &ModelOption {
        match &self.kind {
            AgentKind::Local(local) => local.model_option(fallback_index),
            AgentKind::External(external) => &external.model,
        }
    }

    /// Returns the next fallback after this many.
    pub(crate) fn next_fallback(&self, fallback_index: usize) -> Option<&ModelOption> {
        match &self.kind {
            AgentKind::Local(local) => local.fallbacks.get(fallback_index),
            AgentKind::External(_) => None,
        }
    }

    /// Returns the minimum loan for a task of this size. An external agent may have its own means.
    pub(crate) fn min_loan(&self, task_bytes: u64) -> Resources {
        match &self.kind {
            AgentKind::Local(local) => local.primary.cost_model.min_loan(task_bytes),
            AgentKind::External(_) => Resources::default(),
        }
    }

    /// Returns the time limit in milliseconds, if the agent has one.
    pub(crate) fn timeout(&self) -> Option<u64> {
        self.agent.timeout.or(match &self.kind {
            AgentKind::Local(_) => None,
            AgentKind::External(external) => external.limits.timeout,
        })
    }

    /// Returns the turn limit, if the agent has one.
    pub(crate) fn max_turns(&self) -> Option<u32> {
        self.agent.max_turns.or(match &self.kind {
            AgentKind::Local(_) => None,
            AgentKind::External(external) => external.limits.turns,
        })
    }
}

impl LocalAgent {
    pub(crate) fn model_option(&self, fallback_index: usize) -> &ModelOption {
        match fallback_index {
            0 => &self.primary,
            number => self.fallbacks.get(number - 1).or(self.fallbacks.last()).unwrap_or(&self.primary),
        }
    }
}
