//! What can be asked of a state.

use std::collections::BTreeMap;

use super::ledger::{Estimate, WRAP_UP_OUTPUT_TOKENS};
use super::transcript::BYTES_PER_TOKEN;
use super::{
    CallState, CompactionInput, CostModel, Ledger, Loan, OpenCall, Phase, Purpose, Round, Shortfall, State,
    WorstCase,
};
use crate::delegation::{LimitKind, Outcome};
use crate::event::CallFault;
use crate::grant::Budget;
use crate::id::{CallId, Hash, SessionId};
use crate::message::{Message, Stop, ToolCall};
use crate::permission::Rule;
use crate::seen::SeenFile;
use crate::text::Text;

impl State {
    /// The limit that was recorded as reached.
    pub fn recorded_limit(&self) -> Option<LimitKind> {
        self.limit
    }

    /// Why nothing new may start: a cancel, a recorded limit or an overrun.
    pub fn stop_reason(&self) -> Option<String> {
        if let Some(by) = &self.cancelled {
            return Some(format!("cancelled by {by}"));
        }
        self.limit.map(|limit| format!("the {limit} limit was reached"))
    }

    /// The bytes of the longest result when a child was first started in the background, if one ever was.
    pub fn longest_result_before_background(&self) -> Option<usize> {
        self.longest_result_before_background
    }

    /// Why the model stopped in its last reply.
    pub fn last_stop(&self) -> Option<Stop> {
        self.transcript.last_stop()
    }

    /// The bytes of the longest result that a child brought.
    pub fn longest_result(&self) -> usize {
        self.longest_result
    }

    /// How often the runtime asked for a better result in this round.
    pub fn reminders(&self) -> u32 {
        self.reminders
    }

    /// Who stops the children when this session stops, as they are told.
    pub fn stop_initiator(&self) -> Option<String> {
        let by_limit = || self.limit.map(|limit| format!("the parent, whose {limit} limit was reached"));
        self.cancelled.clone().or_else(by_limit)
    }

    /// Who asked for the end, where somebody did.
    pub fn cancelled(&self) -> Option<&str> {
        self.cancelled.as_deref()
    }

    /// What a person has permitted this session for good.
    pub fn always_allowed(&self) -> &[Rule] {
        &self.always_allowed
    }

    /// The content of a file as the agent last saw it, by the path in the workspace; none if that is not known.
    pub fn seen(&self, path: &str) -> Option<&SeenFile> {
        self.seen.as_ref().and_then(|files| files.get(path))
    }

    /// Forgets what was permitted for good, because nobody in this store permitted it.
    pub fn forget_permissions(&mut self) {
        self.always_allowed.clear();
    }

    /// The id.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// How many facts were folded.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// How many rounds were started.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The round that runs or ran last.
    pub fn round(&self) -> Option<&Round> {
        self.round.as_ref()
    }

    /// Time that requests of this round waited in the queue of their provider, in milliseconds.
    pub fn waited_ms(&self) -> u64 {
        self.waited_ms
    }

    /// Whether a round is under way.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// How the last round ended, if it did.
    pub fn ended(&self) -> Option<&Outcome> {
        match &self.phase {
            Phase::Ended(outcome) => Some(outcome),
            Phase::Fresh | Phase::Running => None,
        }
    }

    /// Whether words came that no request has carried: after an end they ask for a next round.
    pub fn has_unread_input(&self) -> bool {
        self.transcript.unread() > 0
    }

    /// Whether the user or the caller said some of these words. Other words come from children and the runtime.
    pub fn has_user_input(&self) -> bool {
        self.transcript.has_user_input()
    }

    /// The model call that is not answered.
    pub fn open_call(&self) -> Option<&OpenCall> {
        self.open.as_ref()
    }

    /// Whether the model was called in this round.
    pub fn has_called_model(&self) -> bool {
        self.last_purpose.is_some()
    }

    /// The number of the turn that the next model call belongs to, and its attempt.
    pub fn next_attempt(&self) -> (u32, u32) {
        // A fault means the same turn again; so does a call that was interrupted before any reply.
        let unanswered = self.turn > 0 && self.transcript.last_turn() < self.turn;
        if unanswered {
            (self.turn, self.attempts.saturating_add(1))
        } else {
            (self.turn.saturating_add(1), 1)
        }
    }

    /// The books.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The loans that are out.
    pub fn loans(&self) -> &BTreeMap<SessionId, Loan> {
        &self.loans
    }

    /// A call of the last reply.
    pub fn call(&self, call: CallId) -> Option<&CallState> {
        self.calls.get(call)
    }

    /// The call as the model wrote it.
    pub fn tool_call(&self, call: CallId) -> Option<&ToolCall> {
        self.transcript.tool_call(call)
    }

    /// Calls of the last reply that have no answer yet.
    pub fn unanswered(&self) -> Vec<CallId> {
        self.calls.unanswered()
    }

    /// The calls of the last reply that nobody has begun to see to.
    pub fn unstarted_calls(&self) -> impl Iterator<Item = CallId> {
        self.calls.unstarted()
    }

    /// How often the model failed at the current turn.
    pub fn faults(&self) -> u32 {
        self.faults
    }

    /// The fault of the last attempt at the current turn, if it may pass.
    pub fn transient_fault(&self) -> Option<&str> {
        match &self.fault {
            Some(CallFault::Transient { message }) => Some(message),
            _ => None,
        }
    }

    /// The messages of the next request. Every call in them has exactly one result, whatever the log looks like.
    pub fn messages(&self) -> Vec<Message> {
        self.transcript.messages()
    }

    /// A hash that is equal for equal messages.
    pub fn fingerprint(&self) -> Hash {
        self.transcript.fingerprint()
    }

    /// What the agent said last in this round.
    pub fn last_text(&self) -> Text {
        self.transcript.last_text()
    }

    /// The most that the next call of this purpose can cost, and the output that it may ask for.
    pub fn worst_case(&self, cost_model: &CostModel, purpose: Purpose) -> Result<WorstCase, Shortfall> {
        let request = self.estimate(cost_model);
        match purpose {
            Purpose::Turn | Purpose::Compaction => self.ledger.worst_turn(cost_model, &request),
            Purpose::Grace | Purpose::Summary => {
                self.ledger.worst_wrap_up(cost_model, &request, self.wrap_up_output())
            }
        }
    }

    /// The most that a summary can cost for which a text of this many bytes is read.
    pub fn worst_case_summary(&self, cost_model: &CostModel, bytes: u64) -> Result<WorstCase, Shortfall> {
        let input = self.estimator.max_input(0, bytes);
        self.ledger.worst_case_summary(cost_model, &self.estimate(cost_model), input)
    }

    fn estimate(&self, cost_model: &CostModel) -> Estimate {
        Estimate {
            input: self.transcript.input_estimate(cost_model, &self.estimator),
            likely_input: self.transcript.likely_input_estimate(cost_model, &self.estimator),
            output_extra: self.estimator.output_extra(),
        }
    }

    /// The output that a wrap-up call or a report asks for: half a token for each byte that the caller reads, and four
    /// times as much if that was no room for any text.
    fn wrap_up_output(&self) -> u64 {
        let bytes = self.round.as_ref().and_then(|round| round.delegation.report_bytes).unwrap_or_default();
        let room = (bytes as u64 / 2).max(WRAP_UP_OUTPUT_TOKENS);
        if self.truncated_replies == 0 { room } else { room.saturating_mul(4) }
    }

    /// The least tokens that the next request has, if they are more than the model's context window holds.
    pub fn exceeds_window(&self, cost_model: &CostModel) -> Option<u64> {
        let least = self.transcript.min_input_estimate(cost_model);
        cost_model.window.is_some_and(|window| least > window).then_some(least)
    }

    /// How many turns in a row made the same calls and got the same results.
    pub fn repeats(&self) -> u32 {
        self.repeats.count()
    }

    /// Whether the agent was told that it repeats itself.
    pub fn is_warned_of_repeats(&self) -> bool {
        self.repeats.is_warned()
    }

    /// Whether the conversation is better made shorter before the next call: it nears the window, and there is enough
    /// that a summary can stand for.
    pub fn should_compact(&self, cost_model: &CostModel) -> bool {
        let Some(window) = cost_model.window else { return false };
        let size = self.transcript.likely_input_estimate(cost_model, &self.estimator);
        let room = window.saturating_sub(cost_model.max_output.min(window / 4));
        if size <= room / 10 * 9 || !self.transcript.can_compact() || self.exceeded_limit().is_some() {
            return false;
        }
        self.transcript.compactable_bytes(self.bytes_to_keep(cost_model)) / BYTES_PER_TOKEN >= size / 4
    }

    /// The older part of the conversation as a text to be summarised, clipped to what the model can read.
    pub fn compaction_input(&self, cost_model: &CostModel) -> CompactionInput {
        // Half a token for each byte, and half of the window for them.
        let readable = cost_model
            .window
            .unwrap_or_else(|| self.transcript.input_estimate(cost_model, &self.estimator) / 2);
        let room = usize::try_from(readable.checked_shr(self.overflows).unwrap_or(0)).unwrap_or(usize::MAX);
        self.transcript.compaction_input(room, self.bytes_to_keep(cost_model))
    }

    /// All but the last turn as a text to be summarised, because the user asked for it.
    pub fn compaction_input_on_request(&self, cost_model: &CostModel) -> CompactionInput {
        if self.overflows > 0 {
            return self.compaction_input(cost_model);
        }
        // The model has read all of it before. Where its window is not known, it fits as a whole.
        let room =
            cost_model.window.map_or(usize::MAX, |window| usize::try_from(window).unwrap_or(usize::MAX));
        self.transcript.compaction_input(room, Some(0))
    }

    /// How many bytes of the newest turns stay whole beside a summary: none where even that was too long.
    fn bytes_to_keep(&self, cost_model: &CostModel) -> Option<u64> {
        (self.overflows == 0).then(|| cost_model.window.unwrap_or_default() / 4)
    }

    /// Whether there is anything that a summary could stand for.
    pub fn can_compact(&self) -> bool {
        self.transcript.can_compact()
    }

    /// How many models of the agent's chain were given up in this round.
    pub fn fallback_index(&self) -> usize {
        self.fallback_index
    }

    /// What can be lent now: all that is neither spent, reserved nor lent, without the session's own reserve.
    pub fn lendable(&self, cost_model: &CostModel) -> Budget {
        self.ledger.lendable(cost_model, &self.estimate(cost_model))
    }
}
