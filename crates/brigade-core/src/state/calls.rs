//! Calls of the last reply and their progress.

use crate::delegation::Execution;
use crate::event::{Answer, Effect};
use crate::host_question::HostQuestions;
use crate::id::{CallId, Hash, SessionId};
use crate::message::Reply;
use crate::money::Resources;
use crate::network::Target;

/// Progress of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallProgress {
    /// Not started.
    New,
    /// An approval was requested.
    AwaitingApproval,
    /// The approval request was answered.
    Decided(Answer),
    /// The call may have run.
    Started(Intent),
    /// Children work on the call.
    Delegated {
        /// All children of the call.
        children: Vec<SessionId>,
        /// Number of foreground children that have not returned.
        outstanding: u32,
    },
    /// The call has its result.
    Answered,
}

/// Intent that is recorded before a tool runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intent {
    /// Effect of the call, which decides whether it may run twice.
    pub effect: Effect,
    /// Hash of the content before an edit.
    pub before: Option<Hash>,
    /// Hash of the content after an edit.
    pub after: Option<Hash>,
    /// Budget lent to the remote side, if the tool delegates remotely.
    pub lent: Resources,
}

impl CallProgress {
    /// Returns the loan of a call that delegates remotely.
    fn lent(&self) -> Resources {
        match self {
            CallProgress::Started(intent) => intent.lent,
            CallProgress::New
            | CallProgress::AwaitingApproval
            | CallProgress::Decided(_)
            | CallProgress::Delegated { .. }
            | CallProgress::Answered => Resources::default(),
        }
    }

    /// Whether a call may begin: a pending or denied approval prevents it.
    fn may_begin(&self) -> bool {
        match self {
            CallProgress::New | CallProgress::Decided(Answer::Once | Answer::Always(_)) => true,
            CallProgress::AwaitingApproval
            | CallProgress::Decided(Answer::Deny { .. })
            | CallProgress::Started(_)
            | CallProgress::Delegated { .. }
            | CallProgress::Answered => false,
        }
    }

    /// Whether a tool may run. A call that delegates remotely is not run again: the outcome of its first loan is
    /// unknown.
    pub(super) fn may_start(&self) -> bool {
        match self {
            CallProgress::Started(intent) => intent.lent.is_zero(),
            progress => progress.may_begin(),
        }
    }

    /// Whether a child may start.
    pub(super) fn may_delegate(&self) -> bool {
        self.may_begin() || matches!(self, CallProgress::Delegated { .. })
    }

    /// Whether an approval may be requested. A runner that takes over requests it again.
    pub(super) fn may_ask(&self) -> bool {
        matches!(self, CallProgress::New | CallProgress::AwaitingApproval)
    }

    /// Whether a call may have a result. Not before all of its children have returned, because their loans would be
    /// forgotten.
    pub(super) fn may_end(&self) -> bool {
        match self {
            CallProgress::Answered => false,
            CallProgress::Delegated { outstanding, .. } => *outstanding == 0,
            CallProgress::New
            | CallProgress::AwaitingApproval
            | CallProgress::Decided(_)
            | CallProgress::Started(_) => true,
        }
    }
}

/// State of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallState {
    /// Id of the call.
    pub id: CallId,
    /// Progress of the call.
    pub progress: CallProgress,
    /// Whether the user approved the call.
    pub is_permitted: bool,
    /// Questions about hosts that the started call connects to.
    pub hosts: HostQuestions,
}

impl CallState {
    /// Whether the call may have run and has no result.
    fn is_started(&self) -> bool {
        matches!(self.progress, CallProgress::Started(_))
    }

    /// Whether a question about this host may be asked: only while the call runs.
    pub(super) fn may_ask_host(&self, host: &Target) -> bool {
        self.is_started() && self.hosts.may_ask(host)
    }

    /// Whether a question about this host is open.
    pub(crate) fn awaits_host(&self, host: &Target) -> bool {
        self.is_started() && self.hosts.is_open(host)
    }

    /// Whether every question about a host has an answer.
    pub(super) fn is_every_host_answered(&self) -> bool {
        self.hosts.open().next().is_none()
    }
}

/// Calls of one reply. Starting and answering a call take constant time, however many there are.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolCalls {
    turn: u32,
    list: Vec<CallState>,
    answered: usize,
}

impl ToolCalls {
    pub(super) fn of(turn: u32, reply: &Reply) -> ToolCalls {
        let state = |index: usize| CallState {
            id: CallId { turn, index: u32::try_from(index).unwrap_or(u32::MAX) },
            progress: CallProgress::New,
            is_permitted: false,
            hosts: HostQuestions::default(),
        };
        ToolCalls { turn, list: (0..reply.calls.len()).map(state).collect(), answered: 0 }
    }

    pub(super) fn get(&self, call: CallId) -> Option<&CallState> {
        if call.turn == self.turn { self.list.get(call.index as usize) } else { None }
    }

    fn open_call_mut(&mut self, call: CallId) -> Option<&mut CallState> {
        let state = if call.turn == self.turn { self.list.get_mut(call.index as usize) } else { None };
        state.filter(|state| state.progress != CallProgress::Answered)
    }

    fn open_mut(&mut self, call: CallId) -> Option<&mut CallProgress> {
        self.open_call_mut(call).map(|state| &mut state.progress)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn all_answered(&self) -> bool {
        self.answered == self.list.len()
    }

    pub(super) fn unanswered_count(&self) -> usize {
        self.list.len() - self.answered
    }

    pub(super) fn unanswered(&self) -> Vec<CallId> {
        if self.all_answered() {
            return Vec::new();
        }
        self.list.iter().filter(|call| call.progress != CallProgress::Answered).map(|call| call.id).collect()
    }

    /// Marks the call as started, and returns the loan of an earlier start; `None` if the call is unknown.
    pub(super) fn started(&mut self, call: CallId, intent: Intent) -> Option<Resources> {
        let state = self.open_call_mut(call)?;
        // A call that runs again asks again.
        state.hosts = HostQuestions::default();
        Some(std::mem::replace(&mut state.progress, CallProgress::Started(intent)).lent())
    }

    pub(super) fn host_asked(&mut self, call: CallId, host: &Target) {
        if let Some(state) = self.open_call_mut(call).filter(|state| state.is_started()) {
            state.hosts.ask(host);
        }
    }

    /// Records an answer about a host; false if no such question is open.
    pub(super) fn host_answered(&mut self, call: CallId, host: &Target, answer: &Answer) -> bool {
        self.open_call_mut(call).is_some_and(|state| state.hosts.answer(host, answer))
    }

    pub(super) fn asked(&mut self, call: CallId) {
        if let Some(progress) = self.open_mut(call) {
            *progress = CallProgress::AwaitingApproval;
        }
    }

    /// Records an answer; false if no approval is pending.
    pub(super) fn answered(&mut self, call: CallId, answer: &Answer) -> bool {
        let asked = self.open_call_mut(call).filter(|state| state.progress == CallProgress::AwaitingApproval);
        let Some(state) = asked else { return false };
        state.is_permitted = matches!(answer, Answer::Once | Answer::Always(_));
        state.progress = CallProgress::Decided(answer.clone());
        true
    }

    pub(super) fn delegated(&mut self, call: CallId, child: &SessionId, execution: Execution) {
        let waited_for = u32::from(execution == Execution::Foreground);
        if let Some(progress) = self.open_mut(call) {
            match progress {
                CallProgress::Delegated { children, outstanding } => {
                    children.push(child.clone());
                    *outstanding += waited_for;
                }
                _ => {
                    *progress =
                        CallProgress::Delegated { children: vec![child.clone()], outstanding: waited_for }
                }
            }
        }
    }

    pub(super) fn returned(&mut self, call: CallId, execution: Execution) {
        if execution == Execution::Foreground
            && let Some(CallProgress::Delegated { outstanding, .. }) = self.open_mut(call)
        {
            *outstanding = outstanding.saturating_sub(1);
        }
    }

    /// Marks the call as answered, and returns its loan; `None` if the call is unknown or was answered before.
    pub(super) fn ended(&mut self, call: CallId) -> Option<Resources> {
        let lent = std::mem::replace(self.open_mut(call)?, CallProgress::Answered).lent();
        self.answered += 1;
        Some(lent)
    }

    /// Returns the calls that were not started.
    pub(super) fn unstarted(&self) -> impl Iterator<Item = CallId> {
        let waits = |progress: &CallProgress| {
            matches!(progress, CallProgress::New | CallProgress::AwaitingApproval | CallProgress::Decided(_))
        };
        self.list.iter().filter(move |call| waits(&call.progress)).map(|call| call.id)
    }
}
