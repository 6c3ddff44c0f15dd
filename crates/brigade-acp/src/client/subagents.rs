//! Sub-agents that an external agent announces.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use agent_client_protocol_schema::MaybeUndefined;
use agent_client_protocol_schema::v1::{IdleStopReason, StateUpdate, SubagentUpdate};

use super::agent_update::AgentUpdate;
use super::sanitize;
use super::session::ExternalSession;

/// Maximum number of known sub-agents per session. Further ones are neither shown nor counted.
const MAX_SUB_AGENTS: usize = 1000;
/// Maximum length of a sub-agent's id and of its directory path.
const MAX_ID_BYTES: usize = 256;
const MAX_PATH_BYTES: usize = 4096;

/// The sub-agents of one session, at any depth below it.
#[derive(Default)]
pub(super) struct SubAgents {
    known: BTreeMap<String, SubAgent>,
}

#[derive(Default)]
struct SubAgent {
    title: Option<String>,
    task: Option<String>,
    state: Option<String>,
    directory: Option<PathBuf>,
}

impl SubAgents {
    /// Applies an announcement or a change. Returns the update to record, and whether it contains something
    /// new to show.
    pub(super) fn learn(&mut self, update: SubagentUpdate) -> Option<(AgentUpdate, bool)> {
        let id = update.session_id.0.to_string();
        let is_new = !self.known.contains_key(&id);
        if is_new && (self.known.len() >= MAX_SUB_AGENTS || id.len() > MAX_ID_BYTES) {
            return None;
        }
        let sub_agent = self.known.entry(id.clone()).or_default();
        let before = (sub_agent.title.clone(), sub_agent.state.clone());
        apply_patch(&mut sub_agent.title, update.title, |title| sanitize(&title));
        apply_patch(&mut sub_agent.task, update.description, |task| sanitize(&task));
        apply_patch(&mut sub_agent.directory, update.cwd, |directory| directory);
        sub_agent.directory.take_if(|directory| directory.as_os_str().len() > MAX_PATH_BYTES);
        apply_patch(&mut sub_agent.state, update.state, |state| state_label(&state));
        let is_news = is_new || before != (sub_agent.title.clone(), sub_agent.state.clone());
        let update = AgentUpdate::SubAgent {
            sub_agent: self.label(&id),
            task: self.known.get(&id).and_then(|sub_agent| sub_agent.task.clone()),
            state: self.known.get(&id).and_then(|sub_agent| sub_agent.state.clone()),
        };
        Some((update, is_news))
    }

    /// Number of announced sub-agents, or `None` if the agent never announced one.
    pub(super) fn count(&self) -> Option<u64> {
        (!self.known.is_empty()).then_some(self.known.len() as u64)
    }

    /// The name of a sub-agent: the title that its parent gave it, or its id.
    pub(super) fn label(&self, id: &str) -> String {
        let title = self.known.get(id).and_then(|sub_agent| sub_agent.title.clone());
        title.filter(|title| !title.is_empty()).unwrap_or_else(|| sanitize(id))
    }

    /// The directory of a sub-agent, if it differs from its parent's.
    pub(super) fn directory(&self, id: &str) -> Option<&Path> {
        self.known.get(id).and_then(|sub_agent| sub_agent.directory.as_deref())
    }
}

/// Sessions on one process, by the ids of their sub-agents.
#[derive(Default)]
pub(super) struct Owners(HashMap<String, Weak<ExternalSession>>);

impl Owners {
    /// Records the session of a sub-agent, which then decides about its requests. The first session to
    /// announce an id owns it.
    pub(super) fn announce(&mut self, session: &Arc<ExternalSession>, id: &str) {
        let owner = Arc::downgrade(session);
        let count = || self.0.values().filter(|other| other.ptr_eq(&owner)).count();
        if id.len() <= MAX_ID_BYTES && !self.0.contains_key(id) && count() < MAX_SUB_AGENTS {
            self.0.insert(id.to_owned(), owner);
        }
    }

    pub(super) fn of(&self, id: &str) -> Option<Arc<ExternalSession>> {
        self.0.get(id)?.upgrade()
    }

    /// Removes the sub-agents of a session.
    pub(super) fn remove_session(&mut self, session: &Arc<ExternalSession>) {
        let owner = Arc::downgrade(session);
        self.0.retain(|_, other| !other.ptr_eq(&owner));
    }
}

/// Applies a patch: an absent field changes nothing, and `null` removes the value.
fn apply_patch<T, U>(value: &mut Option<U>, patch: MaybeUndefined<T>, read: impl FnOnce(T) -> U) {
    match patch {
        MaybeUndefined::Undefined => {}
        MaybeUndefined::Null => *value = None,
        MaybeUndefined::Value(new) => *value = Some(read(new)),
    }
}

fn state_label(state: &StateUpdate) -> String {
    match state {
        StateUpdate::Running(_) => "running".to_owned(),
        StateUpdate::RequiresAction(_) => "waiting for the user".to_owned(),
        StateUpdate::Idle(idle) => match &idle.stop_reason {
            None => "idle".to_owned(),
            Some(IdleStopReason::EndTurn) => "done".to_owned(),
            Some(IdleStopReason::MaxTokens) => "incomplete: tokens".to_owned(),
            Some(IdleStopReason::MaxTurnRequests) => "incomplete: turns".to_owned(),
            Some(IdleStopReason::Refusal) => "refused".to_owned(),
            Some(IdleStopReason::Cancelled) => "cancelled".to_owned(),
            Some(IdleStopReason::Error(reason)) => match &reason.error {
                Some(error) => format!("failed: {}", sanitize(&error.message)),
                None => "failed".to_owned(),
            },
            Some(_) => "ended".to_owned(),
        },
        _ => "state unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn learn(sub_agents: &mut SubAgents, value: Value) -> Option<(String, bool)> {
        let update = serde_json::from_value(value).unwrap();
        sub_agents.learn(update).map(|(update, is_news)| (update.to_string(), is_news))
    }

    #[test]
    fn sub_agent_is_announced_changed_and_counted_once() {
        let mut all = SubAgents::default();
        assert_eq!(all.count(), None);
        let steps = [
            (json!({"sessionId": "c1"}), "sub-agent c1", true),
            (
                json!({"sessionId": "c1", "title": "Scout", "description": "find it", "state": {"state": "running"}}),
                "sub-agent Scout: find it (running)",
                true,
            ),
            (
                json!({"sessionId": "c1", "description": "find all"}),
                "sub-agent Scout: find all (running)",
                false,
            ),
            (
                json!({"sessionId": "c1", "state": {"state": "idle", "stopReason": "end_turn"}}),
                "sub-agent Scout: find all (done)",
                true,
            ),
            (
                json!({"sessionId": "c1", "description": null, "state": {"state": "idle", "stopReason": "error",
                    "error": {"code": 1, "message": "no\u{7} disk"}}}),
                "sub-agent Scout (failed: no  disk)",
                true,
            ),
        ];
        for (update, expected, is_news) in steps {
            assert_eq!(learn(&mut all, update), Some((expected.to_owned(), is_news)));
        }
        assert_eq!(all.count(), Some(1));
    }

    #[test]
    fn known_sub_agents_are_bounded() {
        let mut all = SubAgents::default();
        for number in 0..1500 {
            let cwd = format!("/{}", "d".repeat(5000));
            learn(&mut all, json!({"sessionId": number.to_string(), "title": "t".repeat(5000), "cwd": cwd}));
        }
        assert!(all.label("0").chars().count() < 310 && all.directory("0").is_none());
        assert_eq!(all.count(), Some(MAX_SUB_AGENTS as u64));
        assert_eq!(learn(&mut SubAgents::default(), json!({"sessionId": "i".repeat(300)})), None);
    }
}
