//! Events of the log. Names never change; fields are only added.

use crate::cursor::Cursor;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::delegation::{Delegation, LimitKind, Outcome};
use crate::grant::Grant;
use crate::id::{CallId, Hash, SessionId};
use crate::message::{Reply, ToolOutput};
use crate::money::{Resources, Spent, is_zero};
use crate::network::Target;
use crate::permission::Mode;
use crate::seen::SeenFile;
use crate::state::Purpose;
use crate::text::Text;

/// Version of the log that this code writes.
pub const VERSION: u16 = 1;

/// `type` of every event that this version knows.
pub const TYPES: [&str; 19] = [
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
    "host_asked",
    "host_answered",
    "said",
    "limit_reached",
    "compacted",
    "cancel_asked",
    "ended",
];

/// Event with its position in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Session that the event belongs to.
    pub session: SessionId,
    /// Sequence number in that session: dense, from 0.
    pub seq: u64,
    /// Position in the store.
    pub pos: Cursor,
    /// Time of writing in UTC milliseconds, for display.
    pub at: u64,
    /// Version of the log that wrote the event.
    pub v: u16,
    /// The event itself.
    pub event: Event,
}

/// Event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A round started. The event contains enough to resume anywhere.
    Started {
        /// Task of the round.
        delegation: Arc<Delegation>,
        /// Agent definition.
        agent: Hash,
        /// Authority and budget of the round.
        grant: Grant,
        /// Session that delegated; none for a round of a root or of a detached child.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<SessionId>,
        /// Depth in the tree.
        depth: u32,
    },
    /// A runner took over an abandoned tree. Only in the log of a root.
    Resumed {
        /// Epoch of the runner's lease.
        epoch: u64,
        /// Time without a runner, in milliseconds.
        downtime: u64,
        /// Mode that the user chose for the rest of the round on resume.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<Mode>,
    },
    /// The session received a message.
    Heard {
        /// Sender of the message.
        from: Speaker,
        /// Text of the message.
        text: Text,
    },
    /// A model call is about to start: the intent, recorded before anything is sent.
    Called {
        /// Turn of the call.
        turn: u32,
        /// Attempt at this turn, from 1.
        attempt: u32,
        /// Purpose of the call.
        purpose: Purpose,
        /// Worst-case cost that is reserved for the call.
        reserved: Resources,
        /// Input tokens in `reserved`; 0 in logs of earlier versions.
        #[serde(default, skip_serializing_if = "is_zero")]
        input: u64,
        /// Hash of the request, for comparison.
        request: Hash,
    },
    /// The model's complete reply arrived.
    Replied {
        /// Turn of the call.
        turn: u32,
        /// Reply of the model.
        reply: Reply,
        /// Cost of the call.
        spent: Spent,
        /// Time in the provider's queue before the request was sent, in milliseconds. It does not count against the
        /// deadline of a delegated session.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
    },
    /// A model call failed.
    CallFailed {
        /// Turn of the call.
        turn: u32,
        /// Attempt at this turn.
        attempt: u32,
        /// Cause of the failure.
        cause: CallFault,
        /// Cost of the failed call.
        spent: Spent,
        /// Text that had arrived when the session was stopped. Tool calls of such a reply do not run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partial: Option<Text>,
        /// Time in the provider's queue before the request was sent, in milliseconds. It does not count against the
        /// deadline of a delegated session.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
    },
    /// A tool is about to run: the intent, recorded before the effect.
    ToolStarted {
        /// Id of the call.
        call: CallId,
        /// Effect of the call, which decides whether it may run twice.
        effect: Effect,
        /// Hash of the content before an edit; none if the file did not exist.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Hash>,
        /// Hash of the content after an edit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Hash>,
        /// Budget lent to the remote side, if the tool delegates to another Brigade process.
        #[serde(default, skip_serializing_if = "Resources::is_zero")]
        lent: Resources,
        /// Number of lines that an edit adds and removes, if they were counted. Logs of earlier versions have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lines: Option<ChangedLines>,
    },
    /// A tool call has its result, and its loan is returned.
    ToolEnded {
        /// Id of the call.
        call: CallId,
        /// Result for the model.
        output: ToolOutput,
        /// Usage of the loan.
        #[serde(default, skip_serializing_if = "Spent::is_zero")]
        spent: Spent,
        /// File whose content the agent knows from this call. Boxed, because few calls have one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<Box<SeenFile>>,
    },
    /// A child was lent a grant.
    Delegated {
        /// Call that requested the child.
        call: CallId,
        /// Id of the child.
        child: SessionId,
        /// Task of the child.
        delegation: Arc<Delegation>,
        /// Agent definition of the child.
        agent: Hash,
        /// Grant that is lent.
        grant: Grant,
    },
    /// A child returned its loan; exactly one for each [`Event::Delegated`].
    Returned {
        /// Id of the child.
        child: SessionId,
        /// Outcome of the child.
        outcome: Outcome,
        /// Usage of the loan.
        spent: Spent,
        /// Time in which requests of any descendant waited in a provider's queue, in milliseconds, unless an
        /// earlier event contains it. It does not count against the deadline of a delegated session.
        #[serde(default, skip_serializing_if = "is_zero")]
        waited_ms: u64,
    },
    /// An approval was requested for a call.
    Asked {
        /// Id of the call.
        call: CallId,
        /// Complete call: the tool, a space, and its arguments as JSON.
        what: Text,
        /// Rule or mode that requires the approval.
        #[serde(default)]
        why: String,
        /// Rule that "always" would add for this session, if a rule can express it exactly.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        always: Option<String>,
        /// Time of the default answer, in UTC milliseconds.
        until: u64,
        /// Default answer.
        default: Answer,
    },
    /// An approval request was answered.
    Answered {
        /// Id of the call.
        call: CallId,
        /// The answer.
        answer: Answer,
        /// Name of the answerer.
        by: String,
    },
    /// An approval was requested for a connection of a call that has started.
    HostAsked {
        /// Id of the call.
        call: CallId,
        /// Host and port that the call connects to.
        host: Target,
        /// Complete call: the tool, a space, and its arguments as JSON.
        what: Text,
        /// Reason why the connection requires the approval.
        #[serde(default)]
        why: String,
        /// Time of the default answer, in UTC milliseconds.
        until: u64,
        /// Default answer.
        default: Answer,
    },
    /// An approval request for a connection was answered; exactly one answer for each [`Event::HostAsked`] counts.
    HostAnswered {
        /// Id of the call.
        call: CallId,
        /// Host and port that the call connects to.
        host: Target,
        /// The answer. [`Answer::Always`] contains the host and the port, and applies to later calls of the session.
        answer: Answer,
        /// Name of the answerer.
        by: String,
    },
    /// The agent sent a message to the user.
    Said {
        /// Call that contains the message.
        call: CallId,
        /// Text of the message.
        text: Text,
    },
    /// A limit was reached. The log has no clock, so elapsed time is recorded as an event.
    LimitReached {
        /// Limit that was reached.
        which: LimitKind,
        /// Resources that the next model call needed, if the budget did not cover it.
        #[serde(default, skip_serializing_if = "Resources::is_zero")]
        needed: Resources,
    },
    /// Later requests contain a summary in place of earlier turns. The log keeps everything.
    Compacted {
        /// Text of the summary.
        summary: Text,
        /// First turn that requests still contain in full.
        keep_from: u32,
    },
    /// A cancellation was requested.
    CancelAsked {
        /// Name of the canceller.
        by: String,
    },
    /// The round ended; exactly one for each [`Event::Started`].
    Ended {
        /// Outcome of the round.
        outcome: Outcome,
        /// Usage of the round, children included.
        spent: Spent,
    },
}

/// Number of lines that an edit adds to a file and removes from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedLines {
    /// Lines that only the new content contains.
    #[serde(default)]
    pub added: u32,
    /// Lines that only the old content contains.
    #[serde(default)]
    pub removed: u32,
}

impl ChangedLines {
    /// Returns the sum of two edits.
    #[must_use]
    pub fn plus(self, other: ChangedLines) -> ChangedLines {
        ChangedLines {
            added: self.added.saturating_add(other.added),
            removed: self.removed.saturating_add(other.removed),
        }
    }
}

/// Sender of a message. Set by the runtime, never derived from the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The user who talks to the root.
    Person,
    /// The session that delegated.
    Parent,
    /// A child session.
    Child(SessionId),
    /// The runtime itself.
    Runtime,
}

/// Cause of a failed model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CallFault {
    /// A retry may succeed.
    Transient {
        /// Error message.
        message: String,
    },
    /// A retry would not help.
    Fatal {
        /// Error message.
        message: String,
    },
    /// The conversation exceeds the context window of the model.
    Overflow {
        /// Error message.
        message: String,
    },
    /// A retry with this model would not help; the next fallback model takes over.
    GivenUp {
        /// Error message.
        message: String,
        /// Name of the next model.
        next: String,
    },
    /// The reply reached its output limit before any text.
    Cut {
        /// Error message.
        message: String,
    },
    /// The runner ended while the call was open. Its cost is unconfirmed.
    Interrupted,
    /// The session was stopped while the call was open.
    Stopped,
    /// The budget does not cover the call; nothing was sent.
    Unaffordable,
}

/// Effect of a tool call, which decides what a resume does with a call that may have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing: run again.
    Pure,
    /// Has a key by which the other side recognises a repeated call: run again.
    Keyed,
    /// Replaces a file: compare the content.
    Edit,
    /// Anything else: never run again.
    Opaque,
}

/// Answer to an approval request. It applies only to the requesting session, not to its parent, children or
/// siblings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Allowed once.
    Once,
    /// Allowed, and from now on for this rule.
    Always(String),
    /// Denied.
    Deny {
        /// Message to the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        word: Option<String>,
    },
}

impl Event {
    /// Creates the event for a tool that changes no file and has no loan.
    pub fn tool_started(call: CallId, effect: Effect) -> Event {
        let lent = Resources::default();
        Event::ToolStarted { call, effect, before: None, after: None, lent, lines: None }
    }

    /// Creates the event for the result of a call that had no loan and showed no file.
    pub fn tool_ended(call: CallId, output: ToolOutput) -> Event {
        Event::ToolEnded { call, output, spent: Spent::default(), seen: None }
    }

    /// Creates the event for a failed model call that left no text.
    pub fn call_failed(turn: u32, attempt: u32, cause: CallFault, spent: Spent) -> Event {
        Event::CallFailed { turn, attempt, cause, spent, partial: None, waited_ms: 0 }
    }

    /// Creates the event for a limit other than the budget of the next call.
    pub fn limit_reached(which: LimitKind) -> Event {
        Event::LimitReached { which, needed: Resources::default() }
    }

    /// Returns the name of the event kind.
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
            Event::HostAsked { .. } => "host_asked",
            Event::HostAnswered { .. } => "host_answered",
            Event::Said { .. } => "said",
            Event::LimitReached { .. } => "limit_reached",
            Event::Compacted { .. } => "compacted",
            Event::CancelAsked { .. } => "cancel_asked",
            Event::Ended { .. } => "ended",
        }
    }

    /// Whether any process may append this event without running the tree.
    pub fn is_external(&self) -> bool {
        matches!(
            self,
            Event::Heard { .. }
                | Event::Answered { .. }
                | Event::HostAnswered { .. }
                | Event::CancelAsked { .. }
        )
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
            Event::Asked { what, .. } | Event::HostAsked { what, .. } => visit(what),
            Event::Compacted { summary, .. } => visit(summary),
            Event::Resumed { .. }
            | Event::Called { .. }
            | Event::ToolStarted { .. }
            | Event::Answered { .. }
            | Event::HostAnswered { .. }
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
            CallFault::GivenUp { message, next } => {
                write!(f, "{}; falling back to {next}", message.trim_end_matches('.'))
            }
            CallFault::Interrupted => f.write_str("Brigade exited while the model was answering"),
            CallFault::Stopped => f.write_str("stopped while the model was answering"),
            CallFault::Unaffordable => f.write_str("the budget does not cover another model call"),
        }
    }
}

#[cfg(test)]
mod tests;
