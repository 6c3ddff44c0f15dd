//! State shared by a runtime and all its trees.

use std::sync::Arc;

use brigade_core::{Agent, Backend};

use crate::external::{ExternalAgents, ExternalError};
use crate::model::{EndpointOverride, ModelHandle, Models};
use crate::resolved_agent::ResolveError;
use crate::runtime::SessionCache;
use crate::settings::Settings;
use crate::store::Store;

/// State shared by a runtime and all its trees.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Models,
    pub(crate) settings: Settings,
    /// Sessions that this process ran before.
    pub(crate) session_cache: Arc<SessionCache>,
}

impl Core {
    /// Returns the model of this name with the agent's own address and key, if it has any.
    pub(crate) fn model_for(&self, agent: &Agent, name: &str) -> Result<ModelHandle, ResolveError> {
        let key = match &agent.key_of {
            None => None,
            Some(id) => {
                let key = self.settings.agents.api_key(id)?;
                Some(key.ok_or_else(|| ResolveError::KeyRemoved { id: id.clone() })?)
            }
        };
        let own = EndpointOverride { base_url: agent.api_base.clone(), key };
        Ok(self.models.choose_for(name, &own)?)
    }

    /// Fails if the model of an agent, or the program that runs it, does not exist.
    pub(crate) fn check_model(&self, agent: &Agent) -> Result<(), ResolveError> {
        match &agent.backend {
            Backend::Acp(place) => drop(self.external()?.model(place)?),
            Backend::Here | Backend::Remote => {
                drop(self.model_for(agent, agent.model.as_deref().unwrap_or_default())?)
            }
        }
        Ok(())
    }

    /// Returns the external agents.
    pub(super) fn external(&self) -> Result<&Arc<dyn ExternalAgents>, ExternalError> {
        self.settings.external.as_ref().ok_or(ExternalError::NotConfigured)
    }

    /// Returns a fallback model. The agent's own address and key are used only with its own provider.
    pub(super) fn fallback_for(&self, agent: &Agent, name: &str) -> Option<ModelHandle> {
        let provider = |name: &str| name.split_once('/').map(|(provider, _)| provider.to_owned());
        let is_own = provider(name) == agent.model.as_deref().and_then(provider);
        // A fallback that is unavailable here is skipped.
        if is_own { self.model_for(agent, name).ok() } else { self.models.choose(name).ok() }
    }
}
