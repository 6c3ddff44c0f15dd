//! State shared by a runtime and all its trees.

use std::sync::Arc;

use brigade_core::{Agent, Backend};

use crate::external::ExternalAgents;
use crate::model::{EndpointOverride, ModelHandle, Models};
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
    pub(crate) fn model_for(&self, agent: &Agent, name: &str) -> Result<ModelHandle, String> {
        let key = match &agent.key_of {
            None => None,
            Some(id) => {
                let key = self.settings.agents.api_key(id).map_err(|error| error.to_string())?;
                let gone = || {
                    format!(
                        "cannot run the agent '{id}': its file no longer contains `api_key`. Add it again."
                    )
                };
                Some(key.ok_or_else(gone)?)
            }
        };
        let own = EndpointOverride { base_url: agent.api_base.clone(), key };
        self.models.choose_for(name, &own).map_err(|error| error.to_string())
    }

    /// Fails if the model of an agent, or the program that runs it, does not exist.
    pub(crate) fn check_model(&self, agent: &Agent) -> Result<(), String> {
        match &agent.backend {
            Backend::Acp(place) => self.external()?.model(place).map(|_| ()),
            Backend::Here | Backend::Remote => {
                self.model_for(agent, agent.model.as_deref().unwrap_or_default()).map(|_| ())
            }
        }
    }

    /// Returns the external agents.
    pub(super) fn external(&self) -> Result<&Arc<dyn ExternalAgents>, String> {
        let none = || "no external agents are configured. Add one under `[acp.servers.NAME]`.".to_owned();
        self.settings.external.as_ref().ok_or_else(none)
    }

    /// Returns a fallback model. The agent's own address and key are used only with its own provider.
    pub(super) fn fallback_for(&self, agent: &Agent, name: &str) -> Option<ModelHandle> {
        let provider = |name: &str| name.split_once('/').map(|(provider, _)| provider.to_owned());
        let is_own = provider(name) == agent.model.as_deref().and_then(provider);
        // A fallback that is unavailable here is skipped.
        if is_own { self.model_for(agent, name).ok() } else { self.models.choose(name).ok() }
    }
}
