//! Timeline of one session: its messages, turns, calls and their results. The exports only format it.

mod call;
mod change;

use std::collections::HashMap;

use brigade_acp::client::AgentUpdate;
use brigade_core::delegation::{Outcome, Status};
use brigade_core::event::{Answer, Speaker};
use brigade_core::message::Stop;
use brigade_core::{
    Budget, CallId, Delegation, Event, Grant, Limit, Purpose, Record, Reply, SessionId, Spent,
};

pub(crate) use call::{ApprovalItem, CallItem, Child};
pub(crate) use change::FileChange;

use crate::sanitize;
use crate::units;
use change::KnownContents;

/// Items of one session, in order. Events that belong to a call are part of its item.
pub(crate) struct Timeline<'a> {
    pub(crate) items: Vec<Item<'a>>,
    turns: HashMap<u32, usize>,
    children: HashMap<&'a SessionId, CallId>,
    contents: KnownContents,
    purpose: Purpose,
    started_at: u64,
    last_text: &'a str,
}

/// Item of a timeline.
pub(crate) enum Item<'a> {
    /// A round started.
    RoundStarted(RoundStarted<'a>),
    /// The agent received a message.
    Message {
        /// Sender.
        from: String,
        text: &'a str,
    },
    /// The model replied.
    Turn(Turn<'a>),
    /// Earlier turns were summarized.
    Compacted {
        /// First turn that was kept unchanged.
        keep_from: u32,
        summary: &'a str,
    },
    /// Note.
    Note(String),
    /// Error.
    Problem(String),
    /// The round ended.
    RoundEnded {
        outcome: &'a Outcome,
        /// Usage, including sub-agents, and duration, as text.
        used: String,
        /// Result, unless it is the text of the last turn.
        result: Option<&'a str>,
    },
}

/// Start of a round.
pub(crate) struct RoundStarted<'a> {
    /// UTC milliseconds.
    pub(crate) at: u64,
    /// Role, or id of the agent.
    pub(crate) label: &'a str,
    /// Task.
    pub(crate) delegation: &'a Delegation,
    /// Budget and other limits.
    pub(crate) grant: &'a Grant,
    /// Session that delegated.
    pub(crate) parent: Option<&'a SessionId>,
    /// Depth in the tree.
    pub(crate) depth: u32,
}

/// Reply of the model, and the results of its calls.
pub(crate) struct Turn<'a> {
    pub(crate) number: u32,
    /// Note on a turn that is not a regular one or did not end regularly.
    pub(crate) remark: Option<&'static str>,
    /// Usage of this turn, as text.
    pub(crate) used: String,
    /// Text of the reply.
    pub(crate) text: &'a str,
    /// Updates that an external agent sent beside its text.
    pub(crate) side_notes: Vec<String>,
    pub(crate) calls: Vec<CallItem<'a>>,
}

impl<'a> Timeline<'a> {
    /// Builds the timeline of the records of one session.
    pub(crate) fn of(records: impl IntoIterator<Item = &'a Record>) -> Timeline<'a> {
        let mut timeline = Timeline {
            items: Vec::new(),
            turns: HashMap::new(),
            children: HashMap::new(),
            contents: KnownContents::default(),
            purpose: Purpose::Turn,
            started_at: 0,
            last_text: "",
        };
        for record in records {
            timeline.add_record(record);
        }
        timeline
    }

    fn add_record(&mut self, record: &'a Record) {
        let at = record.at;
        match &record.event {
            Event::Started { delegation, grant, parent, depth, .. } => {
                self.started_at = at;
                self.last_text = "";
                let (label, parent, depth) = (delegation.label(), parent.as_ref(), *depth);
                self.items.push(Item::RoundStarted(RoundStarted {
                    at,
                    label,
                    delegation,
                    grant,
                    parent,
                    depth,
                }));
            }
            Event::Resumed { downtime, .. } => {
                self.add_note(format!("resumed after a downtime of {}", units::format_elapsed(*downtime)));
            }
            Event::Heard { from, text } => {
                self.items.push(Item::Message { from: sender_label(from), text: text.as_str() });
            }
            Event::Called { purpose, .. } => self.purpose = *purpose,
            Event::Replied { turn, reply, spent, .. } => self.add_turn(*turn, reply, spent, at),
            Event::CallFailed { turn, attempt, cause, .. } => {
                self.add_problem(format!("turn {turn}, attempt {attempt} failed: {cause}"));
            }
            Event::Compacted { summary, keep_from } => {
                self.items.push(Item::Compacted { keep_from: *keep_from, summary: summary.as_str() });
            }
            Event::LimitReached { which, .. } => self.add_problem(format!("reached the {}", which.label())),
            Event::CancelAsked { by } => self.add_problem(format!("cancel requested by {by}")),
            Event::Ended { outcome, spent } => {
                let text = outcome.text.as_str();
                let is_new = !text.is_empty() && text.trim() != self.last_text.trim();
                let took = units::format_elapsed(at.saturating_sub(self.started_at));
                let used = format!("{} including sub-agents, in {took}", usage_text(spent));
                self.items.push(Item::RoundEnded { outcome, used, result: is_new.then_some(text) });
            }
            Event::ToolStarted { .. }
            | Event::ToolEnded { .. }
            | Event::Delegated { .. }
            | Event::Returned { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::HostAsked { .. }
            | Event::HostAnswered { .. }
            | Event::Said { .. } => self.add_to_call(record),
        }
    }

    fn add_turn(&mut self, turn: u32, reply: &'a Reply, spent: &Spent, at: u64) {
        let remark = match (self.purpose, reply.stop) {
            (Purpose::Compaction, _) => {
                // The summary itself is shown where it takes effect.
                self.add_note(format!("summarized the earlier conversation: {}", usage_text(spent)));
                return;
            }
            (Purpose::Grace, _) => Some("wrap-up"),
            (Purpose::Summary, _) => Some("report"),
            (Purpose::Turn, Stop::Length) => Some("cut off at the output limit"),
            (Purpose::Turn, Stop::Refusal) => Some("refused"),
            (Purpose::Turn, Stop::Denied) => Some("ended after a denied request"),
            (Purpose::Turn, Stop::End | Stop::Calls) => None,
        };
        let text = reply.text.as_str();
        if !text.trim().is_empty() {
            self.last_text = text;
        }
        let calls =
            (0..).zip(&reply.calls).map(|(index, call)| CallItem::new(CallId { turn, index }, call, at));
        self.turns.insert(turn, self.items.len());
        let side_notes = reply.opaque.iter().flat_map(|block| AgentUpdate::read(block.as_str()));
        let side_notes = side_notes.map(|side_note| side_note.to_string()).collect();
        self.items.push(Item::Turn(Turn {
            number: turn,
            remark,
            used: usage_text(spent),
            text,
            side_notes,
            calls: calls.collect(),
        }));
    }

    /// Adds an event to its call. An event for a call that is not in the log becomes an item of its own.
    fn add_to_call(&mut self, record: &'a Record) {
        let at = record.at;
        let id = match &record.event {
            Event::ToolStarted { call, .. }
            | Event::ToolEnded { call, .. }
            | Event::Delegated { call, .. }
            | Event::Asked { call, .. }
            | Event::Answered { call, .. }
            | Event::HostAsked { call, .. }
            | Event::HostAnswered { call, .. }
            | Event::Said { call, .. } => Some(*call),
            Event::Returned { child, .. } => self.children.get(child).copied(),
            _ => None,
        };
        if let (Event::Delegated { child, .. }, Some(id)) = (&record.event, id) {
            self.children.insert(child, id);
        }
        let found = id.and_then(|id| {
            let item = *self.turns.get(&id.turn)?;
            match self.items.get_mut(item)? {
                Item::Turn(turn) => turn.calls.get_mut(usize::try_from(id.index).ok()?),
                _ => None,
            }
        });
        let Some(call) = found else {
            let kind = record.event.kind().replace('_', " ");
            return self.add_note(format!("{kind}, for a call that is missing from this session"));
        };
        match &record.event {
            Event::ToolStarted { before, after, .. } => call.started(at, *before, *after),
            Event::ToolEnded { output, .. } => {
                call.output = Some(output);
                call.took = Some(at.saturating_sub(call.at));
                call.change = change::change_of(call, &mut self.contents);
            }
            Event::Delegated { child, delegation, .. } => {
                call.children.push(Child { session: child, label: delegation.label(), at, returned: None });
            }
            Event::Returned { child, outcome, spent, .. } => {
                if let Some(child) = call.children.iter_mut().rev().find(|known| known.session == child) {
                    child.returned = Some((outcome, *spent, at.saturating_sub(child.at)));
                }
            }
            // The call itself is shown above it.
            Event::Asked { why, .. } => {
                call.approvals.push(ApprovalItem { what: why.into(), host: None, answer: None });
            }
            Event::HostAsked { host, why, .. } => {
                let what = format!("connect to {host} ({why})").into();
                call.approvals.push(ApprovalItem { what, host: Some(host), answer: None });
            }
            Event::Answered { answer, by, .. } => call.approval_answered(None, answer_label(answer, by)),
            Event::HostAnswered { host, answer, by, .. } => {
                call.approval_answered(Some(host), answer_label(answer, by));
            }
            Event::Said { text, .. } => call.user_message = Some(text.as_str()),
            _ => {}
        }
    }

    fn add_note(&mut self, text: String) {
        self.items.push(Item::Note(text));
    }

    fn add_problem(&mut self, text: String) {
        self.items.push(Item::Problem(text));
    }
}

impl RoundStarted<'_> {
    /// Sender of the task.
    pub(crate) fn requester(&self) -> &'static str {
        if self.parent.is_some() { "the parent agent" } else { "the user" }
    }

    /// Budget as text.
    pub(crate) fn budget_text(&self) -> String {
        budget_text(self.grant)
    }
}

fn sender_label(from: &Speaker) -> String {
    match from {
        Speaker::Person => "the user".to_owned(),
        Speaker::Parent => "the parent agent".to_owned(),
        Speaker::Child(child) => child.to_string(),
        Speaker::Runtime => "the runtime".to_owned(),
    }
}

/// Answer and its author, such as `allowed once (by the user)`.
pub(crate) fn answer_label(answer: &Answer, by: &str) -> String {
    let answer = match answer {
        Answer::Once => "allowed once".to_owned(),
        Answer::Always(rule) => format!("always allowed with {}", sanitize::line(rule)),
        Answer::Deny { word: None } => "denied".to_owned(),
        Answer::Deny { word: Some(word) } => format!("denied: {}", sanitize::line(word)),
    };
    format!("{answer} (by {})", sanitize::line(by))
}

/// Status with its reason.
pub(crate) fn status_text(status: &Status) -> String {
    match status {
        Status::Incomplete { limit } => format!("incomplete: {limit}"),
        Status::Failed { cause } => format!("failed: {cause}"),
        Status::Lost { cause } => format!("lost: {cause}"),
        Status::Cancelled { by } => format!("cancelled by {by}"),
        Status::Done | Status::Detached => status.as_str().to_owned(),
    }
}

/// Usage as text.
pub(crate) fn usage_text(spent: &Spent) -> String {
    let doubt = match spent.unconfirmed.tokens {
        0 => String::new(),
        tokens => format!(", up to {tokens} unconfirmed"),
    };
    let reported = match spent.reported.tokens {
        0 => String::new(),
        tokens => format!(", {tokens} self-reported"),
    };
    let agents = match spent.reported.agents {
        0 => String::new(),
        agents => format!(", {}", units::count(agents, "reported sub-agent")),
    };
    let (input, output) = (spent.usage.input_total(), spent.usage.output);
    format!("{input} tokens in, {output} out{doubt}{reported}{agents}, {}", cost_text(spent))
}

fn cost_text(spent: &Spent) -> String {
    match (spent.usd, spent.cost_unreported, spent.unpriced) {
        (0, 1.., _) => "cost not reported".to_owned(),
        (0, 0, 1..) => "cost unknown".to_owned(),
        (usd, 0, 0) => units::format_dollars(usd),
        (usd, 0, _) => format!("{} plus an unknown cost", units::format_dollars(usd)),
        (usd, _, _) => format!("{} plus an unreported cost", units::format_dollars(usd)),
    }
}

fn budget_text(grant: &Grant) -> String {
    let Budget { tokens, usd, agents, .. } = grant.budget;
    let mut text = units::count(grant.turns, "turn");
    if let Limit::AtMost(tokens) = tokens {
        text.push_str(&format!(", {} tokens", units::format_compact(tokens)));
    }
    if let Limit::AtMost(usd) = usd {
        text.push_str(&format!(", ${}", units::exact_dollars(usd)));
    }
    if let Limit::AtMost(agents) = agents {
        text.push_str(&format!(", {}", units::count(agents, "agent")));
    }
    text
}
