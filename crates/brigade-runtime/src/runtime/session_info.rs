//! Definitions of stored sessions.

use std::path::PathBuf;
use std::sync::Arc;

use brigade_core::delegation_styles::PASSTHROUGH_PREFIX;
use brigade_core::permission::Mode;
use brigade_core::{Agent, Authority, Delegation, Event, Hash, SessionId};
use serde::de::DeserializeOwned;

use super::Runtime;
use crate::store::{Store, StoreError};

/// Definition of the last round of a stored session.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// Agent, if its definition can be read.
    pub agent: Option<Agent>,
    /// Authority, if it can be read.
    pub authority: Option<Authority>,
    /// Task and context of the round.
    pub delegation: Arc<Delegation>,
    /// Depth in the tree.
    pub depth: u32,
    /// Whether the round was imported.
    pub is_imported: bool,
}

impl SessionInfo {
    /// Reads the definition of a session. Returns `None` if no round of it can be read.
    pub async fn read(store: &dyn Store, session: &SessionId) -> Result<Option<SessionInfo>, StoreError> {
        let (records, _) = store.read_prefix(session).await?;
        let started = records.iter().rev().find_map(|record| match &record.event {
            Event::Started { delegation, agent, grant, depth, .. } => {
                Some((record.pos, delegation.clone(), *agent, grant.authority, *depth))
            }
            _ => None,
        });
        let Some((pos, delegation, agent, authority, depth)) = started else { return Ok(None) };
        let mark = store.imported(&session.root_id()).await?;
        Ok(Some(SessionInfo {
            agent: definition(store, agent).await?,
            authority: definition(store, authority).await?,
            delegation,
            depth,
            is_imported: mark.is_some_and(|mark| !store.is_after(pos, mark)),
        }))
    }

    /// Model of the agent.
    pub fn model(&self) -> Option<&str> {
        self.agent.as_ref().and_then(|agent| agent.model.as_deref())
    }

    /// Permission mode of the round.
    pub fn mode(&self) -> Option<Mode> {
        self.authority.as_ref().map(|authority| authority.permissions.mode)
    }

    /// Working directory of the round. That of an imported round is on another machine.
    pub fn workspace(&self) -> Option<PathBuf> {
        let authority = self.authority.as_ref().filter(|_| !self.is_imported)?;
        Some(PathBuf::from(&authority.workspace)).filter(|folder| !folder.as_os_str().is_empty())
    }

    /// Whether the session only makes a call for another program. Messages to such a session reach no model.
    pub fn is_passthrough(&self) -> bool {
        self.model().is_some_and(|model| model.starts_with(PASSTHROUGH_PREFIX))
    }
}

async fn definition<T: DeserializeOwned>(store: &dyn Store, hash: Hash) -> Result<Option<T>, StoreError> {
    Ok(store.blob(hash).await?.and_then(|body| serde_json::from_str(&body).ok()))
}

impl Runtime {
    /// Returns the definition of the last round of a stored session, or `None` if no round of it can be read.
    pub async fn session_info(&self, session: &SessionId) -> Result<Option<SessionInfo>, StoreError> {
        SessionInfo::read(self.store().as_ref(), session).await
    }
}
