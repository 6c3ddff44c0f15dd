//! The facts. Names are for ever; fields are only added.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::delegation::{Delegation, LimitKind, Outcome};
use crate::grant::Grant;
use crate::id::{CallId, Hash, SessionId};
use crate::message::{Reply, ToolOutput};
use crate::money::{Resources, Spent, is_zero};
use crate::permission::Mode;
use crate::seen::SeenFile;
use crate::state::Purpose;
use crate::text::Text;

/// The version of the log that this code writes.
pub const VERSION: u16 = 1;

/// The `type` of every event that this version knows.
pub const TYPES: [&str; 17] = [
    "started",
    "resumed",
    "heard",
    "called",
    "replied",
    "call_failed",
    "tool_started",
    "tool_ended",
    "delegated",
    "returned",
    "asked",
    "answered",
    "said",
    "limit_reached",
    "compacted",
    "cancel_asked",
    "ended",
];

/// A fact in its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The session that it belongs to.
    pub session: SessionId,
    /// Its place in that session: dense, from 0.
    pub seq: u64,
    /// Its place in the store: increasing, with gaps.
    pub pos: u64,
    /// When it was written, in UTC milliseconds, for display.
    pub at: u64,
    /// The version of the log that it was written by.
    pub v: u16,
    /// The fact.
    pub event: Event,
}

/// What can happen in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A round began. It says enough to resume anywhere.
    Started {
        /// What is asked.
        delegation: Arc<Delegation>,
        /// The agent definition.
        agent: Hash,
        /// What it may do and use up.
        grant: Grant,
        /// Who delegated; none for a round of a root, or of a child that goes on by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<SessionId>,
        /// How deep in the tree.
        depth: u32,
    },
    /// A runner took over a tree that had been left. Only in the log of a root.
    Resumed {
        /// The epoch of its lease.
        epoch: u64,
        /// How long nobody ran the tree, in milliseconds.
        downtime: u64,
        /// The mode that the user chose for the rest of the round when it was resumed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<Mode>,
    },
    /// Words reached the session.
    Heard {
        /// Who spoke.
        from: Speaker,
        /// What was said.
        text: Text,
    },
    /// A model is about to be called: intent, before anything is sent.
    Called {
        /// The turn.
        turn: u32,
        /// The attempt at this turn, from 1.
        attempt: u32,
        /// What the call is for.
        purpose: Purpose,
        /// The most that it is expected to cost.
        reserved: Resources,
        /// The input tokens in `reserved`; 0 in logs of earlier versions.
        #[serde(default, skip_serializing_if = "is_zero")]
        input: u64,
        /// The hash of the request, for comparison.
        request: Hash,
    },
    /// The model replied in whole.
    Replied {
        /// The turn.
        turn: u32,
        /// What it said.
        reply: Reply,
        /// What it cost.
        spent: Spent,
        /// Time before the request was sent, in the queue of the provider, in milliseconds. It does not count against the
        /// deadline of a delegated session.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
    },
    /// A call brought no reply.
    CallFailed {
        /// The turn.
        turn: u32,
        /// The attempt.
        attempt: u32,
        /// Why.
        cause: CallFault,
        /// What it cost all the same.
        spent: Spent,
        /// The text that had arrived when the session was stopped. No call of such a reply runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial: Option<Text>,
        /// Time before the request was sent, in the queue of the provider, in milliseconds. It does not count against the
        /// deadline of a delegated session.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
    },
    /// A tool is about to run: intent, before the effect.
    ToolStarted {
        /// The call.
        call: CallId,
        /// What running it twice would mean.
        effect: Effect,
        /// The content that an edit finds; none where there was no file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Hash>,
        /// The content that an edit leaves.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Hash>,
        /// What is lent to the far side, where the tool hands work on to another Brigade.
        #[serde(default, skip_serializing_if = "Resources::is_zero")]
        lent: Resources,
        /// The lines that an edit adds and removes, if they were counted. Logs of earlier versions have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lines: Option<ChangedLines>,
    },
    /// A call is answered, and what it was lent is back.
    ToolEnded {
        /// The call.
        call: CallId,
        /// What the model reads.
        output: ToolOutput,
        /// What was used up of the loan.
        #[serde(default, skip_serializing_if = "Spent::is_zero")]
        spent: Spent,
        /// The file whose content the agent knows from this call. Boxed, because few calls have one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<Box<SeenFile>>,
    },
    /// A child is lent a grant.
    Delegated {
        /// The call that asked for it.
        call: CallId,
        /// The child.
        child: SessionId,
        /// What is asked.
        delegation: Arc<Delegation>,
        /// The agent definition.
        agent: Hash,
        /// What it is lent.
        grant: Grant,
    },
    /// A child gave its loan back; exactly one for each [`Event::Delegated`].
    Returned {
        /// The child.
        child: SessionId,
        /// How it ended.
        outcome: Outcome,
        /// What it used up of the loan.
        spent: Spent,
        /// Time in which requests of any descendant waited in the queue of a provider, in milliseconds, as far as no
        /// earlier event has it. It does not count against the deadline of a delegated session.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
    },
    /// A person is asked about a call.
    Asked {
        /// The call.
        call: CallId,
        /// The call, whole: the tool, a space, and its arguments as JSON.
        what: Text,
        /// The rule or mode that asks.
        #[serde(default)]
        why: String,
        /// The rule that "always" would add for this session, where one can say it exactly.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always: Option<String>,
        /// When the default answers, in UTC milliseconds.
        until: u64,
        /// What is answered then.
        default: Answer,
    },
    /// The question is answered.
    Answered {
        /// The call.
        call: CallId,
        /// The answer.
        answer: Answer,
        /// Who answered.
        by: String,
    },
    /// The agent spoke to the person.
    Said {
        /// The call that carried the words.
        call: CallId,
        /// The words.
        text: Text,
    },
    /// A limit was reached. The log has no clock: what passed is a fact.
    LimitReached {
        /// The limit.
        which: LimitKind,
        /// What had to be free for the next model call, if the budget did not cover it.
        #[serde(default, skip_serializing_if = "Resources::is_zero")]
        needed: Resources,
    },
    /// Earlier turns are replaced by a summary in later requests. The log keeps everything.
    Compacted {
        /// The summary.
        summary: Text,
        /// The first turn that requests still carry whole.
        keep_from: u32,
    },
    /// The session was told to stop.
    CancelAsked {
        /// By whom.
        by: String,
    },
    /// The round is over; exactly one for each [`Event::Started`].
    Ended {
        /// How.
        outcome: Outcome,
        /// What the round used up, children included.
        spent: Spent,
    },
}

/// Number of lines that an edit adds to a file and removes from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedLines {
    /// Lines that only the new content has.
    #[serde(default)]
    pub added: u32,
    /// Lines that only the old content has.
    #[serde(default)]
    pub removed: u32,
}

impl ChangedLines {
    /// The sum of two edits.
    #[must_use]
    pub fn plus(self, other: ChangedLines) -> ChangedLines {
        ChangedLines {
            added: self.added.saturating_add(other.added),
            removed: self.removed.saturating_add(other.removed),
        }
    }
}

/// Who spoke. Stamped by the runtime, never read from the words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The person who talks to the root.
    Person,
    /// The session that delegated.
    Parent,
    /// A session below.
    Child(SessionId),
    /// The runtime itself.
    Runtime,
}

/// Why a call brought no reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CallFault {
    /// It may work when asked again.
    Transient {
        /// What happened.
        message: String,
    },
    /// Asking again would not help.
    Fatal {
        /// What happened.
        message: String,
    },
    /// The conversation is longer than the model can read.
    Overflow {
        /// What happened.
        message: String,
    },
    /// Asking this model again would not help, and the next one of the agent's chain takes over.
    GivenUp {
        /// What happened.
        message: String,
        /// Who takes over.
        next: String,
    },
    /// The reply reached its output limit before any text.
    Cut {
        /// What happened.
        message: String,
    },
    /// The runner ended while the call was open. What it cost is in doubt.
    Interrupted,
    /// The session was stopped while the call was open.
    Stopped,
    /// The budget does not pay for it; nothing was sent.
    Unaffordable,
}

/// What running a call a second time would mean; it decides what resume does with a call that may have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It changes nothing: run again.
    Pure,
    /// It carries a key by which the other side recognises it: run again.
    Keyed,
    /// It replaces a file: compare the content.
    Edit,
    /// Anything else: never run again.
    Opaque,
}

/// An answer to a question. It counts for the session that asked: for none above, below or beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Yes, this time.
    Once,
    /// Yes, and for this rule from now on.
    Always(String),
    /// No.
    Deny {
        /// A word to the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        word: Option<String>,
    },
}

impl Event {
    /// A tool that changes no file and is lent nothing is about to run.
    pub fn tool_started(call: CallId, effect: Effect) -> Event {
        let lent = Resources::default();
        Event::ToolStarted { call, effect, before: None, after: None, lent, lines: None }
    }

    /// A call that was lent nothing and showed no file is answered.
    pub fn tool_ended(call: CallId, output: ToolOutput) -> Event {
        Event::ToolEnded { call, output, spent: Spent::default(), seen: None }
    }

    /// A model call failed and left no text.
    pub fn call_failed(turn: u32, attempt: u32, cause: CallFault, spent: Spent) -> Event {
        Event::CallFailed { turn, attempt, cause, spent, partial: None, waited_ms: 0 }
    }

    /// A limit other than the budget for the next call was reached.
    pub fn limit_reached(which: LimitKind) -> Event {
        Event::LimitReached { which, needed: Resources::default() }
    }

    /// The name of this kind of fact.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Started { .. } => "started",
            Event::Resumed { .. } => "resumed",
            Event::Heard { .. } => "heard",
            Event::Called { .. } => "called",
            Event::Replied { .. } => "replied",
            Event::CallFailed { .. } => "call_failed",
            Event::ToolStarted { .. } => "tool_started",
            Event::ToolEnded { .. } => "tool_ended",
            Event::Delegated { .. } => "delegated",
            Event::Returned { .. } => "returned",
            Event::Asked { .. } => "asked",
            Event::Answered { .. } => "answered",
            Event::Said { .. } => "said",
            Event::LimitReached { .. } => "limit_reached",
            Event::Compacted { .. } => "compacted",
            Event::CancelAsked { .. } => "cancel_asked",
            Event::Ended { .. } => "ended",
        }
    }

    /// Whether anyone may append this fact, from any process, without running the tree.
    pub fn is_external(&self) -> bool {
        matches!(self, Event::Heard { .. } | Event::Answered { .. } | Event::CancelAsked { .. })
    }

    /// Visits every text that may be long.
    pub fn texts_mut(&mut self, visit: &mut dyn FnMut(&mut Text)) {
        let delegation_texts = |delegation: &mut Delegation, visit: &mut dyn FnMut(&mut Text)| {
            visit(&mut delegation.task);
            let optional = [
                &mut delegation.title,
                &mut delegation.context,
                &mut delegation.report,
                &mut delegation.system_prompt,
                &mut delegation.schema,
            ];
            optional.into_iter().flatten().for_each(visit);
        };
        match self {
            Event::Started { delegation, .. } | Event::Delegated { delegation, .. } => {
                delegation_texts(Arc::make_mut(delegation), visit);
            }
            Event::Heard { text, .. } | Event::Said { text, .. } => visit(text),
            Event::Replied { reply, .. } => {
                visit(&mut reply.text);
                reply.calls.iter_mut().for_each(|call| visit(&mut call.arguments));
                reply.opaque.iter_mut().for_each(visit);
            }
            Event::ToolEnded { output, .. } => visit(&mut output.text),
            Event::Returned { outcome, .. } | Event::Ended { outcome, .. } => visit(&mut outcome.text),
            Event::CallFailed { partial, .. } => partial.iter_mut().for_each(visit),
            Event::Asked { what, .. } => visit(what),
            Event::Compacted { summary, .. } => visit(summary),
            Event::Resumed { .. }
            | Event::Called { .. }
            | Event::ToolStarted { .. }
            | Event::Answered { .. }
            | Event::LimitReached { .. }
            | Event::CancelAsked { .. } => {}
        }
    }
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallFault::Transient { message }
            | CallFault::Fatal { message }
            | CallFault::Overflow { message }
            | CallFault::Cut { message } => f.write_str(message),
            CallFault::GivenUp { message, next } => write!(f, "{message}; {next} takes over"),
            CallFault::Interrupted => f.write_str("the runner ended while the model was answering"),
            CallFault::Stopped => f.write_str("stopped while the model was answering"),
            CallFault::Unaffordable => f.write_str("the budget does not pay for another model call"),
        }
    }
}
