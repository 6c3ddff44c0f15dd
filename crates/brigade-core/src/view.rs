//! Projections of a tree's log: sessions, costs and messages. The terminal, JSON output and tests all use these.

mod json;
mod pending_approvals;
mod spans;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::delegation::{DelegationStyle, Outcome};
use crate::delegation_styles::subagent;
use crate::event::{ChangedLines, Event, Record};
use crate::id::{CallId, Hash, SessionId};
use crate::money::{Resources, Spent};
use crate::state::Purpose;

pub use json::{CostSummary, FileChange, NodeSummary, StatusSummary};
pub use pending_approvals::PendingApproval;

use pending_approvals::PendingApprovals;
use spans::Spans;

/// Current activity of an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Activity {
    /// The agent has a grant and has not started.
    Pending,
    /// The model is generating a reply.
    Thinking,
    /// A tool is running.
    Tool(String),
    /// Its children are working.
    Delegating,
    /// The agent makes its wrap-up call after a limit.
    WrappingUp,
    /// The agent summarises the earlier conversation.
    Compacting,
    /// The round is over.
    Ended(Outcome),
}

/// Session of a tree.
#[derive(Debug, Clone)]
pub struct Node {
    /// Id of the session.
    pub session: SessionId,
    /// Session that delegated.
    pub parent: Option<SessionId>,
    /// Depth in the tree.
    pub depth: u32,
    /// Delegation style.
    pub style: DelegationStyle,
    /// Number of a `subagent_spawn` or `subagent_delegate` call in the tree.
    pub number: Option<u32>,
    /// Role, or the agent's id.
    pub label: String,
    /// Label as the caller wrote it, if the display form differs.
    title: Option<String>,
    /// Task of the session.
    pub task: String,
    /// Current activity.
    pub activity: Activity,
    /// Model calls that were answered.
    pub turns: u64,
    /// Maximum number of model calls, without the wrap-up call.
    pub max_turns: u32,
    /// Usage of the session itself, without its children.
    pub own_usage: Spent,
    /// Resources that the next model call needed, if a budget did not cover it.
    pub needed: Resources,
    /// Tool calls that have a result.
    pub tool_calls: u64,
    /// Tool calls that failed.
    pub tool_errors: u64,
    /// Time of the start, in UTC milliseconds.
    pub started_at: u64,
    /// Time of the last event, in UTC milliseconds.
    pub changed_at: u64,
    /// Sessions that it delegated to, in order.
    pub children: Vec<SessionId>,
    /// Files that it changed with edit tools, and the changed lines of each. Changes by commands are unknown.
    pub changes: BTreeMap<String, ChangedLines>,
    calls: BTreeMap<CallId, String>,
    /// Edits that have started and not ended.
    edits: BTreeMap<CallId, ChangedLines>,
    report_bytes: Option<usize>,
    /// Resources that stay reserved after its last call.
    held_back: Resources,
}

impl Node {
    /// Returns the key of the session in lifecycle output: the delegation style and eight digits of its id.
    pub fn key(&self) -> String {
        key(self.style, self.number, &self.session)
    }

    /// Whether the last round has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.activity, Activity::Ended(_))
    }

    /// Returns the metadata of style B, for a helper that has ended.
    pub fn metadata(&self) -> Option<BTreeMap<&'static str, String>> {
        let Activity::Ended(outcome) = &self.activity else { return None };
        let usage = self.own_usage.usage;
        let stats = subagent::SubagentStats {
            label: self.title.as_deref().unwrap_or(&self.label),
            depth: self.depth,
            turns: self.turns,
            max_turns: self.max_turns,
            status: &outcome.status,
            tokens: (usage.input_total(), usage.output),
            size: outcome.text.len(),
            max_size: self.report_bytes.unwrap_or(usize::MAX),
        };
        (self.style == DelegationStyle::Subagent).then(|| subagent::metadata(&stats))
    }
}

/// Returns the key of a session in lifecycle output: `sub_n` for the nth of style D, else the style and eight
/// digits.
pub fn key(style: DelegationStyle, number: Option<u32>, session: &SessionId) -> String {
    if let (DelegationStyle::Spawn, Some(number)) = (style, number) {
        return format!("sub_{number}");
    }
    format!("{}:{}", style.name(), &Hash::of(session.as_str().as_bytes()).to_string()[..8])
}

/// Message of an agent to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentMessage {
    /// Session that sent the message.
    pub session: SessionId,
    /// Role, as the runtime knows it.
    pub role: String,
    /// Text of the message.
    pub text: String,
}

/// Totals of a session and its descendants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    /// Number of sessions.
    pub agents: usize,
    /// Model calls that were answered.
    pub turns: u64,
    /// Usage of all.
    pub spent: Spent,
    /// Time in which at least one of them was working, in milliseconds.
    pub time: u64,
}

/// Tree of sessions, folded from its log.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    nodes: BTreeMap<SessionId, Node>,
    agent_messages: Vec<AgentMessage>,
    pending_approvals: PendingApprovals,
    spans: Spans,
}

impl Tree {
    /// Folds the records of a tree, in the order of the store.
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Tree {
        let mut tree = Tree::default();
        for record in records {
            tree.apply(record);
        }
        tree
    }

    /// Returns all sessions by id.
    pub fn nodes(&self) -> &BTreeMap<SessionId, Node> {
        &self.nodes
    }

    /// Returns one session.
    pub fn node(&self, session: &SessionId) -> Option<&Node> {
        self.nodes.get(session)
    }

    /// Returns the messages to the user, in order.
    pub fn agent_messages(&self) -> &[AgentMessage] {
        &self.agent_messages
    }

    /// Returns the pending approvals, in the order of the requests.
    pub fn pending_approvals(&self) -> impl Iterator<Item = &PendingApproval> {
        self.pending_approvals.iter()
    }

    /// Returns the first pending approval of a session.
    pub fn pending_approval(&self, session: &SessionId) -> Option<&PendingApproval> {
        self.pending_approvals().find(|question| question.session == *session)
    }

    /// Returns the labels of a session and of its ancestors, root first.
    pub fn lineage(&self, session: &SessionId) -> Vec<&str> {
        let mut labels = Vec::new();
        let mut next = self.nodes.get(session);
        while let Some(node) = next {
            labels.push(node.label.as_str());
            // The path is the tree: a parent that contradicts it is ignored.
            let above = node.parent.as_ref();
            let above = above.filter(|parent| **parent != node.session && parent.contains(&node.session));
            next = above.and_then(|parent| self.nodes.get(parent));
        }
        labels.reverse();
        labels
    }

    /// Returns `root` and its descendants, depth first, in the order in which they were delegated.
    pub fn walk(&self, root: &SessionId) -> Vec<&Node> {
        let mut nodes = Vec::new();
        let mut stack = vec![root];
        while let Some(session) = stack.pop() {
            if let Some(node) = self.nodes.get(session) {
                nodes.push(node);
                stack.extend(node.children.iter().rev());
            }
        }
        nodes
    }

    /// Returns the time in which at least one of these sessions was working, in milliseconds. Time between rounds
    /// and time without a runner do not count. An open round lasts until `now`, or until its last event.
    pub fn working_time<'a>(
        &self,
        sessions: impl IntoIterator<Item = &'a SessionId>,
        now: Option<u64>,
    ) -> u64 {
        self.spans.time(sessions, now)
    }

    /// Returns the usage of `root` and its descendants.
    pub fn spent(&self, root: &SessionId) -> Spent {
        self.walk(root).iter().fold(Spent::default(), |sum, node| sum.plus(node.own_usage))
    }

    /// Returns the totals of `root` and its descendants. An open round lasts until its last event.
    pub fn totals(&self, root: &SessionId) -> Totals {
        let nodes = self.walk(root);
        Totals {
            agents: nodes.len(),
            turns: nodes.iter().map(|node| node.turns).sum(),
            spent: nodes.iter().fold(Spent::default(), |sum, node| sum.plus(node.own_usage)),
            time: self.working_time(nodes.iter().map(|node| &node.session), None),
        }
    }

    /// Applies one record.
    pub fn apply(&mut self, record: &Record) {
        self.pending_approvals.apply(record);
        self.spans.apply(record);
        match &record.event {
            Event::Started { delegation, parent, depth, grant, .. } => {
                let node = self.enter(&record.session, parent.clone(), *depth, record.at);
                node.style = delegation.style;
                node.number = delegation.number;
                node.max_turns = grant.turns;
                node.report_bytes = delegation.report_bytes;
                node.label = delegation.label().to_owned();
                node.title = delegation.title.as_ref().map(ToString::to_string);
                if !delegation.task.is_empty() {
                    node.task = delegation.task.to_string();
                }
                node.activity = Activity::Thinking;
                node.needed = Resources::default();
            }
            Event::Delegated { child, delegation, .. } => {
                let depth = self.nodes.get(&record.session).map_or(0, |node| node.depth).saturating_add(1);
                // Each session has one position, and is not its own child, so that a walk always ends.
                let is_new = !self.nodes.contains_key(child) && *child != record.session;
                let label = delegation.role.clone().or_else(|| delegation.agent.clone()).unwrap_or_default();
                let node = self.enter(child, Some(record.session.clone()), depth, record.at);
                node.style = delegation.style;
                node.number = delegation.number;
                node.label = label;
                node.task = delegation.task.to_string();
                if let Some(parent) = self.nodes.get_mut(&record.session) {
                    if is_new {
                        parent.children.push(child.clone());
                    }
                    parent.own_usage.agents += 1;
                    parent.activity = Activity::Delegating;
                }
            }
            event => {
                let label =
                    self.nodes.get(&record.session).map(|node| node.label.clone()).unwrap_or_default();
                if let Event::Said { text, .. } = event {
                    self.agent_messages.push(AgentMessage {
                        session: record.session.clone(),
                        role: label,
                        text: text.to_string(),
                    });
                }
                if let Some(node) = self.nodes.get_mut(&record.session) {
                    node.changed_at = record.at;
                    node.apply(event);
                }
            }
        }
    }

    fn enter(&mut self, session: &SessionId, parent: Option<SessionId>, depth: u32, at: u64) -> &mut Node {
        self.nodes.entry(session.clone()).or_insert_with(|| Node {
            session: session.clone(),
            parent,
            depth,
            style: DelegationStyle::Run,
            number: None,
            max_turns: 0,
            label: String::new(),
            title: None,
            task: String::new(),
            activity: Activity::Pending,
            turns: 0,
            own_usage: Spent::default(),
            needed: Resources::default(),
            tool_calls: 0,
            tool_errors: 0,
            started_at: at,
            changed_at: at,
            children: Vec::new(),
            changes: BTreeMap::new(),
            calls: BTreeMap::new(),
            edits: BTreeMap::new(),
            report_bytes: None,
            held_back: Resources::default(),
        })
    }
}

impl Node {
    fn spend(&mut self, spent: &Spent) {
        self.own_usage = self.own_usage.plus(*spent);
        self.held_back = spent.held_back;
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Called { purpose, .. } => {
                self.held_back = Resources::default();
                self.activity = match purpose {
                    Purpose::Turn => Activity::Thinking,
                    Purpose::Grace | Purpose::Summary => Activity::WrappingUp,
                    Purpose::Compaction => Activity::Compacting,
                };
            }
            Event::Replied { turn, reply, spent, .. } => {
                self.turns += spent.turns;
                self.spend(spent);
                self.calls.clear();
                for (index, call) in (0..).zip(&reply.calls) {
                    self.calls.insert(CallId { turn: *turn, index }, call.name.clone());
                }
                if let Some(call) = reply.calls.first() {
                    self.activity = Activity::Tool(call.name.clone());
                }
            }
            Event::CallFailed { spent, .. } => self.spend(spent),
            Event::ToolStarted { call, lines, .. } => {
                self.activity = Activity::Tool(self.calls.get(call).cloned().unwrap_or_default());
                if let Some(lines) = lines {
                    self.edits.insert(*call, *lines);
                }
            }
            Event::ToolEnded { call, output, spent, seen } => {
                self.own_usage = self.own_usage.plus(*spent);
                self.calls.remove(call);
                if let (Some(lines), Some(seen), false) = (self.edits.remove(call), seen, output.is_error()) {
                    let known = self.changes.entry(seen.path.clone()).or_default();
                    *known = known.plus(lines);
                }
                self.tool_calls += 1;
                self.tool_errors += u64::from(output.is_error());
            }
            Event::Ended { outcome, .. } => {
                self.spend(&Spent::unconfirmed(self.held_back));
                self.activity = Activity::Ended(outcome.clone());
            }
            Event::Started { .. }
            | Event::Delegated { .. }
            | Event::Returned { .. }
            | Event::Resumed { .. }
            | Event::Heard { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::HostAsked { .. }
            | Event::HostAnswered { .. }
            | Event::Said { .. }
            | Event::Compacted { .. }
            | Event::CancelAsked { .. } => {}
            Event::LimitReached { needed, .. } => self.needed = *needed,
        }
    }
}
