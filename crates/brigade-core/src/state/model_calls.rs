//! Model calls of a round and their faults.

use serde::{Deserialize, Serialize};

use crate::event::CallFault;
use crate::money::Resources;

/// Maximum number of attempts at a turn after transient faults.
pub const MAX_ATTEMPTS: u32 = 6;
/// Maximum number of times that a conversation is compacted for the same turn.
const MAX_OVERFLOWS: u32 = 5;

/// Purpose of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Turn of the loop.
    Turn,
    /// Wrap-up call after a limit: no tools, covered by the session's own reserve.
    Grace,
    /// Report that a delegation style requests at the end.
    Summary,
    /// Summary that replaces earlier turns.
    Compaction,
}

/// Model call that was sent and has no reply yet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenCall {
    /// Turn of the call.
    pub turn: u32,
    /// Attempt at the turn.
    pub attempt: u32,
    /// Purpose of the call.
    pub purpose: Purpose,
    /// Resources reserved for the call.
    pub reserved: Resources,
    /// Input tokens in `reserved`.
    pub input: u64,
}

/// Model calls of a round.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelCalls {
    pub(super) open: Option<OpenCall>,
    pub(super) last_purpose: Option<Purpose>,
    /// Number of attempts at the current turn.
    pub(super) attempts: u32,
    /// Number of faults at the current turn.
    pub(super) faults: u32,
    /// Fault of the last attempt.
    pub(super) fault: Option<CallFault>,
    /// Number of overflow errors since the conversation was last compacted or answered.
    pub(super) overflows: u32,
    /// Number of models of the agent's chain that were given up.
    pub(super) fallback_index: usize,
    /// Number of consecutive wrap-up calls or reports that reached their output limit before any text.
    pub(super) truncated_replies: u32,
    /// Whether the conversation contains the instruction of the wrap-up call.
    pub(super) wrap_up_sent: bool,
}

impl ModelCalls {
    pub(super) fn called(&mut self, call: OpenCall) {
        self.attempts = call.attempt;
        self.last_purpose = Some(call.purpose);
        self.open = Some(call);
    }

    pub(super) fn replied(&mut self) {
        self.fault = None;
        self.attempts = 0;
        self.faults = 0;
        self.truncated_replies = 0;
        // A summary is not the turn that did not fit.
        if self.last_purpose != Some(Purpose::Compaction) {
            self.overflows = 0;
        }
    }

    pub(super) fn failed(&mut self, cause: &CallFault) {
        match cause {
            // A crash reveals nothing about the model.
            CallFault::Interrupted => self.allow_another_wrap_up(),
            // Neither does a stop.
            CallFault::Stopped => self.fault = None,
            CallFault::Unaffordable => {
                self.last_purpose = Some(Purpose::Grace);
                self.fault = None;
            }
            CallFault::Transient { .. } | CallFault::Fatal { .. } => {
                self.faults += 1;
                self.fault = Some(cause.clone());
            }
            CallFault::Overflow { .. } => {
                self.overflows += 1;
                self.fault = Some(cause.clone());
            }
            // It is requested once more with a larger output limit; after that, the last text is used.
            CallFault::Cut { .. } => {
                self.truncated_replies += 1;
                self.fault = None;
            }
            CallFault::GivenUp { .. } => {
                self.fallback_index += 1;
                self.faults = 0;
                self.fault = None;
                self.overflows = self.overflows.min(1);
                self.allow_another_wrap_up();
            }
        }
    }

    fn allow_another_wrap_up(&mut self) {
        if self.last_purpose == Some(Purpose::Grace) {
            self.last_purpose = Some(Purpose::Turn);
        }
    }

    /// Whether the last reply of the round, a wrap-up or a report, may be requested now.
    pub(super) fn can_wrap_up(&self, is_report_requested: bool) -> bool {
        let may_pass = matches!(self.fault, Some(CallFault::Transient { .. })) && self.faults < MAX_ATTEMPTS;
        let has_reported = matches!(self.last_purpose, Some(Purpose::Grace | Purpose::Summary));
        let is_open = self.fault.is_none() && (is_report_requested || self.truncated_replies == 1);
        let fits = !matches!(self.fault, Some(CallFault::Overflow { .. }));
        fits && (!has_reported || may_pass || is_open)
    }

    /// Returns the fault that no further call can fix.
    pub(super) fn fatal_error(&self, can_compact: bool) -> Option<String> {
        match &self.fault {
            Some(CallFault::Fatal { message }) => Some(message.clone()),
            Some(CallFault::Transient { message }) if self.faults >= MAX_ATTEMPTS => {
                Some(format!("{message} (after {} attempts)", self.faults))
            }
            // A conversation that is too long after compaction stays too long.
            Some(CallFault::Overflow { message }) if !can_compact || self.overflows > MAX_OVERFLOWS => {
                Some(message.clone())
            }
            _ => None,
        }
    }
}
