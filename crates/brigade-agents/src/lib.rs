//! Agent definitions and their sources.
//!
//! A definition is a file: `<id>/AGENT.md`, or a file that was written for another program. A file that cannot be
//! read is skipped and reported, and never hides the others. No file is read as requesting more authority than it
//! states. Files are read when they are needed, so an edit takes effect at the next call.

#[cfg(feature = "files")]
mod files;
mod id;
mod problem;

#[cfg(feature = "files")]
use std::collections::BTreeMap;
#[cfg(feature = "files")]
use std::path::PathBuf;

use brigade_base::Secret;
#[cfg(feature = "files")]
use brigade_base::pinned_files::PinnedFiles;
use brigade_core::Agent;

#[cfg(feature = "files")]
pub use files::{
    AgentDefinition, Discovered, FileReport, Format, KeyNote, KeyStatus, LoadFailure, discover, discover_all,
    lint, load,
};
use id::id_of_folder;
pub use id::is_id;
pub use problem::{AgentProblem, ProblemKind};

/// Reason why a definition cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// No definition has this id.
    #[error("Agent '{0}' not found")]
    NotFound(String),
    /// The file of the definition cannot be used.
    #[error("{0}")]
    Invalid(AgentProblem),
}

/// Definitions that a runtime knows, by id.
#[derive(Debug, Clone, Default)]
pub struct AgentCatalog {
    agents: Vec<Agent>,
    #[cfg(feature = "files")]
    files: BTreeMap<String, PathBuf>,
    /// Content of the files that are used only unchanged.
    #[cfg(feature = "files")]
    pinned: PinnedFiles,
}

impl AgentCatalog {
    /// Creates a catalog without definitions.
    pub fn new() -> AgentCatalog {
        AgentCatalog::default()
    }

    /// Adds a definition and replaces one of the same id.
    pub fn with(mut self, agent: Agent) -> AgentCatalog {
        #[cfg(feature = "files")]
        self.files.remove(&agent.id);
        self.insert(agent);
        self
    }

    fn insert(&mut self, agent: Agent) {
        self.agents.retain(|other| other.id != agent.id);
        let place = self.agents.partition_point(|other| other.id < agent.id);
        self.agents.insert(place, agent);
    }

    /// Resolves a name to an id. The name is the id itself, or the name of a folder such as `My Agent`.
    pub fn resolve_id(&self, name: &str) -> Option<&str> {
        let known = |id: &str| self.agents.iter().map(|agent| agent.id.as_str()).find(|known| *known == id);
        known(&id_of_folder(name)?)
    }

    /// Returns all definitions by id, as they were found.
    pub fn list(&self) -> &[Agent] {
        &self.agents
    }

    /// Loads the current definition: one that came from a file is read again.
    pub fn load(&self, id: &str) -> Result<Agent, LoadError> {
        #[cfg(feature = "files")]
        if self.files.contains_key(id) {
            return self.definition(id).map(|definition| definition.agent);
        }
        let found = self.agents.iter().find(|agent| agent.id == id);
        found.cloned().ok_or_else(|| LoadError::NotFound(id.to_owned()))
    }

    /// Loads the API key of a definition from its file, if the file contains one.
    pub fn api_key(&self, id: &str) -> Result<Option<Secret>, LoadError> {
        #[cfg(feature = "files")]
        return self.definition(id).map(|definition| definition.api_key);
        #[cfg(not(feature = "files"))]
        Err(LoadError::NotFound(id.to_owned()))
    }
}
