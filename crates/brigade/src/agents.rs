//! The agents that can be named: definitions, and where they come from.

use brigade_core::Agent;

/// The definitions that a runtime knows, by id.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    agents: Vec<Agent>,
}

/// Why a definition cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// There is none of this id.
    #[error("Agent '{0}' not found")]
    NotFound(String),
}

impl Catalogue {
    /// No definitions.
    pub fn new() -> Catalogue {
        Catalogue::default()
    }

    /// Adds a definition; one of the same id is replaced.
    pub fn with(mut self, agent: Agent) -> Catalogue {
        self.agents.retain(|other| other.id != agent.id);
        let place = self.agents.partition_point(|other| other.id < agent.id);
        self.agents.insert(place, agent);
        self
    }

    /// All definitions, by id, as they were found.
    pub fn list(&self) -> &[Agent] {
        &self.agents
    }

    /// A definition as it is now: one that came from a file is read again.
    pub fn load(&self, id: &str) -> Result<Agent, LoadError> {
        let found = self.agents.iter().find(|agent| agent.id == id);
        found.cloned().ok_or_else(|| LoadError::NotFound(id.to_owned()))
    }
}
