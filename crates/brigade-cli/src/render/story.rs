//! The log of one session as a story: who spoke, what was called, and what came of it. The printers only print.

mod call;
mod change;

use std::collections::HashMap;

use brigade_acp::client::Aside;
use brigade_core::delegation::{Outcome, Status};
use brigade_core::event::{Answer, Speaker};
use brigade_core::message::Stop;
use brigade_core::{
    Budget, CallId, Delegation, Event, Grant, Limit, Purpose, Record, Reply, SessionId, Spent,
};

pub(crate) use call::{Call, Child, Question};
pub(crate) use change::Change;

use crate::units;
use change::Contents;

/// What happened in one session, in order. What belongs to a call stands with the call.
pub(crate) struct Story<'a> {
    /// What happened.
    pub(crate) items: Vec<Item<'a>>,
    turns: HashMap<u32, usize>,
    children: HashMap<&'a SessionId, CallId>,
    contents: Contents,
    purpose: Purpose,
    began: u64,
    last_words: &'a str,
}

/// One thing that happened.
pub(crate) enum Item<'a> {
    /// A round began.
    Began(Began<'a>),
    /// Somebody said something to the agent.
    Heard {
        /// Who.
        from: String,
        /// What.
        text: &'a str,
    },
    /// The model answered.
    Turn(Turn<'a>),
    /// Earlier turns became a summary.
    Compacted {
        /// The first turn that was kept whole.
        keep_from: u32,
        /// The summary.
        summary: &'a str,
    },
    /// Something worth a line.
    Note(String),
    /// Something went wrong.
    Trouble(String),
    /// The round is over.
    Ended {
        /// How.
        outcome: &'a Outcome,
        /// What it used up, with all below.
        spent: Spent,
        /// How long it took.
        took: u64,
        /// The result, unless it is what the last turn said.
        result: Option<&'a str>,
    },
}

/// The beginning of a round.
pub(crate) struct Began<'a> {
    /// When, in UTC milliseconds.
    pub(crate) at: u64,
    /// The role, or the agent's id.
    pub(crate) label: &'a str,
    /// What is asked.
    pub(crate) delegation: &'a Delegation,
    /// What it may use up.
    pub(crate) grant: &'a Grant,
    /// Who delegated.
    pub(crate) parent: Option<&'a SessionId>,
    /// How deep in the tree.
    pub(crate) depth: u32,
}

/// One answer of the model, and what became of its calls.
pub(crate) struct Turn<'a> {
    /// Its number.
    pub(crate) number: u32,
    /// What it is, where it is no plain turn or has no plain end.
    pub(crate) remark: Option<&'static str>,
    /// What it cost.
    pub(crate) spent: Spent,
    /// What the model said.
    pub(crate) text: &'a str,
    /// What an external agent told beside its words.
    pub(crate) asides: Vec<String>,
    /// What it called.
    pub(crate) calls: Vec<Call<'a>>,
}

impl<'a> Story<'a> {
    /// Tells the records of one session.
    pub(crate) fn of(records: impl IntoIterator<Item = &'a Record>) -> Story<'a> {
        let mut story = Story {
            items: Vec::new(),
            turns: HashMap::new(),
            children: HashMap::new(),
            contents: Contents::default(),
            purpose: Purpose::Turn,
            began: 0,
            last_words: "",
        };
        for record in records {
            story.tell(record);
        }
        story
    }

    fn tell(&mut self, record: &'a Record) {
        let at = record.at;
        match &record.event {
            Event::Started { delegation, grant, parent, depth, .. } => {
                self.began = at;
                self.last_words = "";
                let (label, parent, depth) = (label(delegation), parent.as_ref(), *depth);
                self.items.push(Item::Began(Began { at, label, delegation, grant, parent, depth }));
            }
            Event::Resumed { downtime, .. } => {
                self.note(format!("resumed after {} in which nobody ran it", units::elapsed(*downtime)));
            }
            Event::Heard { from, text } => {
                self.items.push(Item::Heard { from: speaker(from), text: text.as_str() });
            }
            Event::Called { purpose, .. } => self.purpose = *purpose,
            Event::Replied { turn, reply, spent, .. } => self.replied(*turn, reply, *spent, at),
            Event::CallFailed { turn, attempt, cause, .. } => {
                self.trouble(format!("turn {turn}, attempt {attempt} failed: {cause}"));
            }
            Event::Compacted { summary, keep_from } => {
                self.items.push(Item::Compacted { keep_from: *keep_from, summary: summary.as_str() });
            }
            Event::LimitReached { which, .. } => self.trouble(format!("reached the {}", which.phrase())),
            Event::CancelAsked { by } => self.trouble(format!("asked to stop by {by}")),
            Event::Ended { outcome, spent } => {
                let text = outcome.text.as_str();
                let is_new = !text.is_empty() && text.trim() != self.last_words.trim();
                let (spent, took) = (*spent, at.saturating_sub(self.began));
                self.items.push(Item::Ended { outcome, spent, took, result: is_new.then_some(text) });
            }
            Event::ToolStarted { .. }
            | Event::ToolEnded { .. }
            | Event::Delegated { .. }
            | Event::Returned { .. }
            | Event::Asked { .. }
            | Event::Answered { .. }
            | Event::Said { .. } => self.of_a_call(record),
        }
    }

    fn replied(&mut self, turn: u32, reply: &'a Reply, spent: Spent, at: u64) {
        let remark = match (self.purpose, reply.stop) {
            (Purpose::Compaction, _) => {
                // The summary itself is told where it takes effect.
                self.note(format!("summarised what was said before: {}", cost(&spent)));
                return;
            }
            (Purpose::Grace, _) => Some("last word"),
            (Purpose::Summary, _) => Some("report"),
            (Purpose::Turn, Stop::Length) => Some("cut off by the output limit"),
            (Purpose::Turn, Stop::Refusal) => Some("refused"),
            (Purpose::Turn, Stop::Denied) => Some("ended after a denied permission"),
            (Purpose::Turn, Stop::End | Stop::Calls) => None,
        };
        let text = reply.text.as_str();
        if !text.trim().is_empty() {
            self.last_words = text;
        }
        let calls = (0..).zip(&reply.calls).map(|(index, call)| Call::new(CallId { turn, index }, call, at));
        self.turns.insert(turn, self.items.len());
        let asides = reply.opaque.iter().flat_map(|block| Aside::read(block.as_str()));
        let asides = asides.map(|aside| aside.to_string()).collect();
        self.items.push(Item::Turn(Turn {
            number: turn,
            remark,
            spent,
            text,
            asides,
            calls: calls.collect(),
        }));
    }

    /// Takes into account what belongs to a call. What names a call that is not in the log gets a line of its own.
    fn of_a_call(&mut self, record: &'a Record) {
        let at = record.at;
        let id = match &record.event {
            Event::ToolStarted { call, .. }
            | Event::ToolEnded { call, .. }
            | Event::Delegated { call, .. }
            | Event::Asked { call, .. }
            | Event::Answered { call, .. }
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
            return self.note(format!("{kind}, for a call that is not in this log"));
        };
        match &record.event {
            Event::ToolStarted { before, after, .. } => call.started(at, *before, *after),
            Event::ToolEnded { output, .. } => {
                call.output = Some(output);
                call.took = Some(at.saturating_sub(call.at));
                call.change = change::of(call, &mut self.contents);
            }
            Event::Delegated { child, delegation, .. } => {
                call.children.push(Child { session: child, label: label(delegation), at, returned: None });
            }
            Event::Returned { child, outcome, spent, .. } => {
                if let Some(child) = call.children.iter_mut().rev().find(|known| known.session == child) {
                    child.returned = Some((outcome, *spent, at.saturating_sub(child.at)));
                }
            }
            // The call itself stands above it.
            Event::Asked { why, .. } => {
                call.questions.push(Question { what: why, answer: None });
            }
            Event::Answered { answer, by, .. } => {
                let answer = format!("{}, says {by}", answered(answer));
                match call.questions.iter_mut().rev().find(|question| question.answer.is_none()) {
                    Some(question) => question.answer = Some(answer),
                    None => call.questions.push(Question { what: "", answer: Some(answer) }),
                }
            }
            Event::Said { text, .. } => call.said = Some(text.as_str()),
            _ => {}
        }
    }

    fn note(&mut self, text: String) {
        self.items.push(Item::Note(text));
    }

    fn trouble(&mut self, text: String) {
        self.items.push(Item::Trouble(text));
    }
}

impl Began<'_> {
    /// Who asks.
    pub(crate) fn asker(&self) -> &'static str {
        if self.parent.is_some() { "the parent" } else { "the person" }
    }

    /// What it may use up, in words.
    pub(crate) fn allowance(&self) -> String {
        allowance(self.grant)
    }
}

/// The role of a delegation, or its agent.
pub(crate) fn label(delegation: &Delegation) -> &str {
    delegation.label()
}

fn speaker(from: &Speaker) -> String {
    match from {
        Speaker::Person => "the person".to_owned(),
        Speaker::Parent => "the parent".to_owned(),
        Speaker::Child(child) => child.to_string(),
        Speaker::Runtime => "the runtime".to_owned(),
    }
}

fn answered(answer: &Answer) -> String {
    match answer {
        Answer::Once => "yes".to_owned(),
        Answer::Always(rule) => format!("always ({rule})"),
        Answer::Deny { word: None } => "no".to_owned(),
        Answer::Deny { word: Some(word) } => format!("no: {word}"),
    }
}

/// How something ended, with the reason.
pub(crate) fn ending(status: &Status) -> String {
    match status {
        Status::Incomplete { limit } => format!("incomplete: {limit}"),
        Status::Failed { cause } => format!("failed: {cause}"),
        Status::Lost { cause } => format!("lost: {cause}"),
        Status::Cancelled { by } => format!("cancelled by {by}"),
        Status::Done | Status::Detached => status.word().to_owned(),
    }
}

/// What was used up, in words.
pub(crate) fn cost(spent: &Spent) -> String {
    let doubt = match spent.in_doubt.tokens {
        0 => String::new(),
        tokens => format!(", {tokens} in doubt"),
    };
    let reported = match spent.reported.tokens {
        0 => String::new(),
        tokens => format!(", {tokens} by its own account"),
    };
    let agents = match spent.reported.agents {
        0 => String::new(),
        agents => format!(", {}", count(agents, "reported sub-agent")),
    };
    let (input, output) = (spent.usage.input_total(), spent.usage.output);
    format!("{input} tokens in, {output} out{doubt}{reported}{agents}, {}", cost_in_words(spent))
}

fn cost_in_words(spent: &Spent) -> String {
    match (spent.usd, spent.cost_unreported, spent.unpriced) {
        (0, 1.., _) => "cost not reported".to_owned(),
        (0, 0, 1..) => "cost unknown".to_owned(),
        (usd, 0, 0) => units::shown_dollars(usd),
        (usd, 0, _) => format!("{} and a cost that is unknown", units::shown_dollars(usd)),
        (usd, _, _) => format!("{} and a cost that was not reported", units::shown_dollars(usd)),
    }
}

fn allowance(grant: &Grant) -> String {
    let Budget { tokens, usd, agents, .. } = grant.budget;
    let mut text = count(u64::from(grant.turns), "turn");
    if let Limit::AtMost(tokens) = tokens {
        text.push_str(&format!(", {} tokens", units::short(tokens)));
    }
    if let Limit::AtMost(usd) = usd {
        text.push_str(&format!(", ${}", units::exact_dollars(usd)));
    }
    if let Limit::AtMost(agents) = agents {
        text.push_str(&format!(", {}", count(agents, "agent")));
    }
    text
}

/// A text that begins with a capital letter.
pub(crate) fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

/// So many of something.
pub(crate) fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
