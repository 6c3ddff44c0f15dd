//! An agent with everything that is derived from its definition.

use std::sync::Arc;

use brigade_core::grant::Authority;
use brigade_core::state::CostModel;
use brigade_core::{Agent, Budget, Hash, Limit, ToolSpec};

use crate::external::ExternalLimits;
use crate::model::ModelHandle;
use crate::tool::Files;

/// Everything derived from an agent, its authority and its depth. Identical siblings share it.
pub(crate) struct ResolvedAgent {
    pub(crate) agent: Agent,
    pub(crate) agent_hash: Hash,
    pub(crate) authority: Authority,
    pub(crate) authority_hash: Hash,
    pub(super) primary: ModelOption,
    /// Fallback models, in order.
    pub(super) fallbacks: Vec<ModelOption>,
    pub(crate) system: Arc<str>,
    pub(crate) specs: Arc<[ToolSpec]>,
    pub(crate) files: Files,
    /// Limits of the agent, if another program runs it.
    pub(crate) external_limits: Option<ExternalLimits>,
}

/// A model of an agent's fallback chain, with its costs.
pub(crate) struct ModelOption {
    pub(crate) name: String,
    pub(crate) model: ModelHandle,
    pub(crate) cost_model: CostModel,
    /// Whether its price is known.
    pub(crate) is_priced: bool,
}

impl ResolvedAgent {
    /// Refuses a budget in dollars for a model with an unknown price, because it could not be enforced.
    pub(crate) fn check_budget(&self, budget: &Budget) -> Result<(), String> {
        let mut options = std::iter::once(&self.primary).chain(&self.fallbacks);
        match options.find(|model_option| !model_option.is_priced) {
            Some(ModelOption { name, .. }) if budget.usd != Limit::Unlimited => Err(format!(
                "cannot enforce a budget in dollars: the price of the model '{name}' is unknown. Set `input` and `output`, \
                 in dollars per million tokens, under [prices.\"{name}\"] in your configuration, or replace \
                 --budget-usd and budget.usd with a budget in tokens."
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the model in use after this many fallbacks.
    pub(crate) fn model_option(&self, fallback_index: usize) -> &ModelOption {
        match fallback_index {
            0 => &self.primary,
            number => self.fallbacks.get(number - 1).or(self.fallbacks.last()).unwrap_or(&self.primary),
        }
    }

    /// Returns the next fallback after this many.
    pub(crate) fn next_fallback(&self, fallback_index: usize) -> Option<&ModelOption> {
        self.fallbacks.get(fallback_index)
    }
}
