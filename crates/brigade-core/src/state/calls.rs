//! The calls of the last reply and how far each of them is.

use crate::delegation::Execution;
use crate::event::{Answer, Effect};
use crate::id::{CallId, Hash, SessionId};
use crate::message::Reply;
use crate::money::Resources;

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub enum CallProgress {
    /// Nothing happened yet.
    New,
    /// A person is asked about it.
    AwaitingApproval,
    /// The person answered.
    Decided(Answer),
    /// It may have run.
    Started(Intent),
    /// Children work for it.
    Delegated {
        /// All children of the call.
        children: Vec<SessionId>,
        /// How many of those that the call waits for have not returned.
        outstanding: u32,
    },
    /// It is answered.
    Answered,
}

/// What is about to happen when a tool runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intent {
    /// What running it twice would mean.
    pub effect: Effect,
    /// The content that an edit found.
    pub before: Option<Hash>,
    /// The content that an edit leaves.
    pub after: Option<Hash>,
    /// What the far side is lent, where the tool hands work on.
    pub lent: Resources,
}

impl CallProgress {
    /// What the call was lent for work that it hands on.
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
}

/// One call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallState {
    /// Its id.
    pub id: CallId,
    /// How far it is.
    pub progress: CallProgress,
    /// Whether a person said yes to it.
    pub is_permitted: bool,
}

/// The calls of one reply. Handing out and answering cost the same however many there are.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolCalls {
    turn: u32,
    list: Vec<CallState>,
    assigned: usize,
    answered: usize,
}

impl ToolCalls {
    pub(super) fn of(turn: u32, reply: &Reply) -> ToolCalls {
        let state = |index: usize| CallState {
            id: CallId { turn, index: u32::try_from(index).unwrap_or(u32::MAX) },
            progress: CallProgress::New,
            is_permitted: false,
        };
        ToolCalls { turn, list: (0..reply.calls.len()).map(state).collect(), assigned: 0, answered: 0 }
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

    pub(super) fn take_unassigned(&mut self) -> Vec<CallId> {
        let fresh = self.list[self.assigned..].iter();
        let calls =
            fresh.filter(|call| call.progress != CallProgress::Answered).map(|call| call.id).collect();
        self.assigned = self.list.len();
        calls
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn all_answered(&self) -> bool {
        self.answered == self.list.len()
    }

    pub(super) fn unanswered(&self) -> Vec<CallId> {
        if self.all_answered() {
            return Vec::new();
        }
        self.list.iter().filter(|call| call.progress != CallProgress::Answered).map(|call| call.id).collect()
    }

    /// Marks the call as started, and gives what it was lent for an earlier start; none where it is none of ours.
    pub(super) fn started(&mut self, call: CallId, intent: Intent) -> Option<Resources> {
        let progress = self.open_mut(call)?;
        Some(std::mem::replace(progress, CallProgress::Started(intent)).lent())
    }

    pub(super) fn asked(&mut self, call: CallId) {
        if let Some(progress) = self.open_mut(call) {
            *progress = CallProgress::AwaitingApproval;
        }
    }

    /// Takes an answer; false where nothing was asked, or somebody else answered first.
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

    /// Marks the call as answered, and gives what it was lent; none where it is none of ours or was answered before.
    pub(super) fn ended(&mut self, call: CallId) -> Option<Resources> {
        let lent = std::mem::replace(self.open_mut(call)?, CallProgress::Answered).lent();
        self.answered += 1;
        Some(lent)
    }

    /// The calls that nobody has begun to see to.
    pub(super) fn unstarted(&self) -> impl Iterator<Item = CallId> {
        let waits = |progress: &CallProgress| {
            matches!(progress, CallProgress::New | CallProgress::AwaitingApproval | CallProgress::Decided(_))
        };
        self.list.iter().filter(move |call| waits(&call.progress)).map(|call| call.id)
    }
}
