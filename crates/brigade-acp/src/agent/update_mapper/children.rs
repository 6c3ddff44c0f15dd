//! Updates about sub-agents: as separate sessions, or as tool calls of the root session.

use acp::SessionUpdate;
use agent_client_protocol_schema::v1 as acp;
use brigade_core::view::Activity;
use brigade_core::{CallId, Delegation, Outcome, SessionId, Spent, Status};

use super::super::calls;
use super::super::round;
use super::{Replay, SubagentDisplay, UpdateMapper, chunk};

/// Maximum number of activity lines shown for the children of a call. The latest are kept.
const MAX_ACTIVITY_LINES: usize = 30;
/// Maximum number of children in a plan. The latest are kept.
const MAX_PLAN_ENTRIES: usize = 50;

impl UpdateMapper {
    pub(super) fn started(&mut self, session: &SessionId, delegation: &Delegation) {
        let task = delegation.task.as_str();
        if *session == self.root {
            if self.replay == Replay::Yes && !task.is_empty() {
                self.push_user_message(task);
            }
            return;
        }
        match (self.subagent_display, session.parent()) {
            (SubagentDisplay::Sessions, Some(parent)) => {
                let message = acp::SessionMessage::new(format!("{session}:task"))
                    .sender_session_id(acp::SessionId::new(parent.as_str()))
                    .recipient_session_id(acp::SessionId::new(session.as_str()))
                    .content(vec![acp::ContentBlock::from(task)]);
                self.push(session, SessionUpdate::SessionMessage(message));
            }
            _ => self.push_child_activity(session, "started"),
        }
    }

    /// Announces a child before any of its updates.
    pub(super) fn delegated(
        &mut self,
        session: &SessionId,
        call: CallId,
        child: &SessionId,
        delegation: &Delegation,
    ) {
        let label = self.label(child);
        let task = calls::brief(delegation.task.as_str());
        if self.subagent_display == SubagentDisplay::Sessions {
            let capabilities =
                acp::SubagentSessionCapabilities::new().cancel(acp::SessionCancelCapabilities::new());
            let update = acp::SubagentUpdate::new(child.as_str().to_owned())
                .title(label.clone())
                .description(task.clone())
                .capabilities(capabilities)
                .state(acp::StateUpdate::Running(acp::RunningStateUpdate::new()));
            self.push(session, SessionUpdate::SubagentUpdate(update));
        }
        let is_single = child.call().is_none_or(|(_, of)| of == 0);
        let title = format!("{label}: {task}");
        let mut fields = acp::ToolCallUpdateFields::new().status(acp::ToolCallStatus::InProgress);
        if is_single {
            fields = fields.title(match self.target_session(session) == *session {
                true => title,
                false => format!("[{}] {title}", self.label(session)),
            });
        }
        self.push_call_update(session, call, fields);
        self.push_plan();
    }

    pub(super) fn returned(
        &mut self,
        session: &SessionId,
        child: &SessionId,
        outcome: &Outcome,
        spent: &Spent,
    ) {
        if self.subagent_display == SubagentDisplay::Sessions {
            let idle =
                acp::IdleStateUpdate::new().stop_reason(stop_reason(outcome)).usage(round::usage(spent));
            let update =
                acp::SubagentUpdate::new(child.as_str().to_owned()).state(acp::StateUpdate::Idle(idle));
            self.push(session, SessionUpdate::SubagentUpdate(update));
        }
        self.push_plan();
    }

    pub(super) fn ended(&mut self, session: &SessionId, outcome: &Outcome) {
        self.streamed.remove(session);
        if *session == self.root {
            if let Some(note) = outcome.note() {
                self.push(session, SessionUpdate::AgentMessageChunk(chunk(&format!("\n\n{note}"))));
            }
            return;
        }
        if self.subagent_display == SubagentDisplay::ToolCalls {
            let how = match &outcome.status {
                Status::Failed { cause } | Status::Lost { cause } => {
                    format!("{}: {cause}", outcome.status.as_str())
                }
                status => status.as_str().to_owned(),
            };
            self.push_child_activity(session, &calls::brief(&how));
        }
        self.calls.remove(session);
    }

    /// Adds an activity line to the call that started the child.
    pub(super) fn push_child_activity(&mut self, child: &SessionId, what: &str) {
        let (Some(parent), Some((call, _))) = (child.parent(), child.call()) else { return };
        if self.replay == Replay::Yes || self.call(&parent, call).is_none() {
            return;
        }
        let line = format!("{}: {what}", self.label(child));
        let lines = self.child_activity.entry(calls::id(&parent, call)).or_default();
        lines.push_back(line);
        if lines.len() > MAX_ACTIVITY_LINES {
            lines.pop_front();
        }
        let text = lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        self.push_call_update(&parent, call, acp::ToolCallUpdateFields::new().content(vec![text.into()]));
    }

    /// Sends a plan with the tasks of several children. Clients that support sub-agents show them without it.
    fn push_plan(&mut self) {
        if self.subagent_display == SubagentDisplay::Sessions || self.replay == Replay::Yes {
            return;
        }
        let root = self.root.clone();
        let nodes = self.tree.walk(&root);
        let below = nodes.iter().skip(1);
        if below.len() < 2 {
            return;
        }
        let mut entries: Vec<acp::PlanEntry> = below
            .map(|node| {
                let status = match node.activity {
                    Activity::Ended(_) => acp::PlanEntryStatus::Completed,
                    Activity::Pending => acp::PlanEntryStatus::Pending,
                    _ => acp::PlanEntryStatus::InProgress,
                };
                let content = format!("{}: {}", calls::brief(&node.label), calls::brief(&node.task));
                acp::PlanEntry::new(content, acp::PlanEntryPriority::Medium, status)
            })
            .collect();
        let first = entries.len().saturating_sub(MAX_PLAN_ENTRIES);
        entries.drain(..first);
        self.push(&root, SessionUpdate::Plan(acp::Plan::new(entries)));
    }
}

fn stop_reason(outcome: &Outcome) -> acp::IdleStopReason {
    match &outcome.status {
        Status::Done | Status::Detached => acp::IdleStopReason::EndTurn,
        Status::Incomplete { limit } => match round::limit_reason(*limit) {
            acp::StopReason::MaxTokens => acp::IdleStopReason::MaxTokens,
            _ => acp::IdleStopReason::MaxTurnRequests,
        },
        Status::Cancelled { .. } => acp::IdleStopReason::Cancelled,
        Status::Failed { cause } | Status::Lost { cause } => {
            let error = super::super::errors::failed(cause.clone());
            acp::IdleStopReason::Error(acp::ErrorStopReason::new().error(error))
        }
    }
}
