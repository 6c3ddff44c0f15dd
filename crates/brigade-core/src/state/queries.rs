//! Queries on a state.

use std::collections::BTreeMap;

use super::ledger::{Estimate, WRAP_UP_OUTPUT_TOKENS};
use super::round::Phase;
use super::transcript::BYTES_PER_TOKEN;
use super::{
    CallState, CompactionInput, CostModel, Ledger, Loan, OpenCall, Purpose, RoundSpec, Shortfall, State,
    WorstCase,
};
use crate::delegation::{LimitKind, Outcome};
use crate::event::CallFault;
use crate::grant::Budget;
use crate::id::{CallId, Hash, SessionId};
use crate::message::{Message, Stop, ToolCall};
use crate::network::Target;
use crate::permission::Rule;
use crate::seen::SeenFile;
use crate::text::Text;

impl State {
    /// Returns the limit that was recorded as reached.
    pub fn recorded_limit(&self) -> Option<LimitKind> {
        self.round.stop.limit
    }

    /// Returns the reason why nothing new may start: a cancellation, a recorded limit or an overrun.
    pub fn stop_reason(&self) -> Option<String> {
        if let Some(by) = &self.round.stop.cancelled {
            return Some(format!("cancelled by {by}"));
        }
        self.recorded_limit().map(|limit| format!("the {} was reached", limit.label()))
    }

    /// Returns the size of the longest result in bytes when a child was first started in the background, if one
    /// was.
    pub fn longest_result_before_background(&self) -> Option<usize> {
        self.results.longest_before_background
    }

    /// Returns the stop reason of the last reply.
    pub fn last_stop(&self) -> Option<Stop> {
        self.transcript.last_stop()
    }

    /// Returns the size of the longest result of a child, in bytes.
    pub fn longest_result(&self) -> usize {
        self.results.longest
    }

    /// Returns the number of times that the runtime requested a better result in this round.
    pub fn reminders(&self) -> u32 {
        self.round.counts.reminders
    }

    /// Returns the initiator that children are told when this session stops.
    pub fn stop_initiator(&self) -> Option<String> {
        let told = |limit: LimitKind| format!("the parent, whose {} was reached", limit.label());
        self.round.stop.cancelled.clone().or_else(|| self.recorded_limit().map(told))
    }

    /// Returns the name of the canceller, if the round was cancelled.
    pub fn cancelled(&self) -> Option<&str> {
        self.round.stop.cancelled.as_deref()
    }

    /// Returns the rules that the user has permanently allowed in this session.
    pub fn always_allowed(&self) -> &[Rule] {
        &self.always_allowed
    }

    /// Whether the user has permanently allowed connections to any host in this session.
    pub fn has_allowed_hosts(&self) -> bool {
        !self.allowed_hosts.is_empty()
    }

    /// Whether the user has permanently allowed connections to this host and port in this session.
    pub fn allows_host(&self, host: &Target) -> bool {
        self.allowed_hosts.contains(host)
    }

    /// Returns the content of a file as the agent last saw it, by its path in the workspace; `None` if it is
    /// unknown.
    pub fn seen(&self, path: &str) -> Option<&SeenFile> {
        self.seen.as_ref().and_then(|files| files.get(path))
    }

    /// Forgets the permanently allowed rules and hosts, because they were not allowed in this store.
    pub fn forget_permissions(&mut self) {
        self.always_allowed.clear();
        self.allowed_hosts.clear();
    }

    /// Returns the session id.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns the number of folded events.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the number of rounds started.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Returns the task, agent and grant of the current or most recent round.
    pub fn round(&self) -> Option<&RoundSpec> {
        self.round.spec.as_ref()
    }

    /// Returns the time that requests of this round waited in the queue of their provider, in milliseconds.
    pub fn waited_ms(&self) -> u64 {
        self.round.counts.waited_ms
    }

    /// Whether a round is running.
    pub fn is_running(&self) -> bool {
        self.round.is_running()
    }

    /// Returns the outcome of the last round, if it ended.
    pub fn ended(&self) -> Option<&Outcome> {
        match &self.round.phase {
            Phase::Ended(outcome) => Some(outcome),
            Phase::Fresh | Phase::Running => None,
        }
    }

    /// Whether there are messages that no request has contained: after the end of a round they require another one.
    pub fn has_unread_input(&self) -> bool {
        self.transcript.unread() > 0
    }

    /// Whether some of these messages come from the user or the caller. Others come from children and the runtime.
    pub fn has_user_input(&self) -> bool {
        self.transcript.has_user_input()
    }

    /// Returns the model call that has no reply yet.
    pub fn open_call(&self) -> Option<&OpenCall> {
        self.round.model_calls.open.as_ref()
    }

    /// Whether the model was called in this round.
    pub fn has_called_model(&self) -> bool {
        self.round.model_calls.last_purpose.is_some()
    }

    /// Returns the turn of the next model call, and its attempt.
    pub fn next_attempt(&self) -> (u32, u32) {
        // A fault repeats the same turn; so does a call that was interrupted before any reply.
        let turn = self.turns.last;
        let is_unanswered = self.transcript.last_turn() < turn;
        if is_unanswered {
            (turn, self.round.model_calls.attempts.saturating_add(1))
        } else {
            (turn.saturating_add(1), 1)
        }
    }

    /// Returns the ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.round.ledger
    }

    /// Returns the outstanding loans.
    pub fn loans(&self) -> &BTreeMap<SessionId, Loan> {
        &self.round.loans.by_child
    }

    /// Returns a call of the last reply.
    pub fn call(&self, call: CallId) -> Option<&CallState> {
        self.round.tool_calls.get(call)
    }

    /// Returns the call as the model wrote it.
    pub fn tool_call(&self, call: CallId) -> Option<&ToolCall> {
        self.transcript.tool_call(call)
    }

    /// Returns the calls of the last reply that have no result yet.
    pub fn unanswered(&self) -> Vec<CallId> {
        self.round.tool_calls.unanswered()
    }

    /// Returns the number of these calls.
    pub fn unanswered_count(&self) -> usize {
        self.round.tool_calls.unanswered_count()
    }

    /// Returns the calls of the last reply that were not started.
    pub fn unstarted_calls(&self) -> impl Iterator<Item = CallId> {
        self.round.tool_calls.unstarted()
    }

    /// Returns the number of faults at the current turn.
    pub fn faults(&self) -> u32 {
        self.round.model_calls.faults
    }

    /// Returns the fault of the last attempt at the current turn, if it is transient.
    pub fn transient_fault(&self) -> Option<&str> {
        match &self.round.model_calls.fault {
            Some(CallFault::Transient { message }) => Some(message),
            _ => None,
        }
    }

    /// Returns the messages of the next request. Every call in them has exactly one result, whatever the log
    /// contains.
    pub fn messages(&self) -> Vec<Message> {
        self.transcript.messages()
    }

    /// Returns a hash that is equal for equal messages.
    pub fn fingerprint(&self) -> Hash {
        self.transcript.fingerprint()
    }

    /// Returns the last text of the agent in this round.
    pub fn last_text(&self) -> Text {
        self.transcript.last_text()
    }

    /// Returns the worst-case cost of the next call of this purpose, and the output to request.
    pub fn worst_case(&self, cost_model: &CostModel, purpose: Purpose) -> Result<WorstCase, Shortfall> {
        let request = self.estimate(cost_model);
        match purpose {
            Purpose::Turn | Purpose::Compaction => self.round.ledger.worst_turn(cost_model, &request),
            Purpose::Grace | Purpose::Summary => {
                self.round.ledger.worst_wrap_up(cost_model, &request, self.wrap_up_output())
            }
        }
    }

    /// Returns the worst-case cost of a summary of a text with this many bytes.
    pub fn worst_case_summary(&self, cost_model: &CostModel, bytes: u64) -> Result<WorstCase, Shortfall> {
        let input = self.estimator.max_input(0, bytes);
        self.round.ledger.worst_case_summary(cost_model, &self.estimate(cost_model), input)
    }

    fn estimate(&self, cost_model: &CostModel) -> Estimate {
        Estimate {
            input: self.transcript.input_estimate(cost_model, &self.estimator),
            likely_input: self.transcript.likely_input_estimate(cost_model, &self.estimator),
            output_extra: self.estimator.output_extra(),
        }
    }

    /// Returns the output that a wrap-up call or a report requests: half a token for each byte that the caller
    /// reads, and four times as much after a reply without text.
    fn wrap_up_output(&self) -> u64 {
        let bytes = self.round().and_then(|round| round.delegation.report_bytes).unwrap_or_default();
        let room = (bytes as u64 / 2).max(WRAP_UP_OUTPUT_TOKENS);
        if self.round.model_calls.truncated_replies == 0 { room } else { room.saturating_mul(4) }
    }

    /// Returns the minimum token count of the next request, if it exceeds the model's context window.
    pub fn exceeds_window(&self, cost_model: &CostModel) -> Option<u64> {
        let least = self.transcript.min_input_estimate(cost_model);
        cost_model.window.is_some_and(|window| least > window).then_some(least)
    }

    /// Returns the number of consecutive turns with the same calls and results.
    pub fn repeats(&self) -> u32 {
        self.round.repeats.count()
    }

    /// Whether the agent was warned that it repeats itself.
    pub fn is_warned_of_repeats(&self) -> bool {
        self.round.repeats.is_warned()
    }

    /// Whether the conversation should be compacted before the next call: it approaches the window, and a summary
    /// would replace enough of it.
    pub fn should_compact(&self, cost_model: &CostModel) -> bool {
        let Some(window) = cost_model.window else { return false };
        let size = self.transcript.likely_input_estimate(cost_model, &self.estimator);
        let room = window.saturating_sub(cost_model.max_output.min(window / 4));
        if size <= room / 10 * 9 || !self.transcript.can_compact() || self.exceeded_limit().is_some() {
            return false;
        }
        self.transcript.compactable_bytes(self.bytes_to_keep(cost_model)) / BYTES_PER_TOKEN >= size / 4
    }

    /// Returns the older part of the conversation as input of a summary, clipped to what the model can read.
    pub fn compaction_input(&self, cost_model: &CostModel) -> CompactionInput {
        // Half a token for each byte, and half of the window for them.
        let readable = cost_model
            .window
            .unwrap_or_else(|| self.transcript.input_estimate(cost_model, &self.estimator) / 2);
        let room = usize::try_from(readable.checked_shr(self.round.model_calls.overflows).unwrap_or(0))
            .unwrap_or(usize::MAX);
        self.transcript.compaction_input(room, self.bytes_to_keep(cost_model))
    }

    /// Returns all but the last turn as input of a summary that the user requested.
    pub fn compaction_input_on_request(&self, cost_model: &CostModel) -> CompactionInput {
        if self.round.model_calls.overflows > 0 {
            return self.compaction_input(cost_model);
        }
        // The model has read all of it before. If its window is unknown, everything fits.
        let room =
            cost_model.window.map_or(usize::MAX, |window| usize::try_from(window).unwrap_or(usize::MAX));
        self.transcript.compaction_input(room, Some(0))
    }

    /// Returns the number of bytes of the newest turns to keep next to a summary; `None` if even that was too long.
    fn bytes_to_keep(&self, cost_model: &CostModel) -> Option<u64> {
        (self.round.model_calls.overflows == 0).then(|| cost_model.window.unwrap_or_default() / 4)
    }

    /// Whether there is anything to summarise.
    pub fn can_compact(&self) -> bool {
        self.transcript.can_compact()
    }

    /// Returns the number of models of the agent's chain that were given up in this round.
    pub fn fallback_index(&self) -> usize {
        self.round.model_calls.fallback_index
    }

    /// Returns the lendable resources: all that are neither spent, reserved nor lent, without the session's own
    /// reserve.
    pub fn lendable(&self, cost_model: &CostModel) -> Budget {
        self.round.ledger.lendable(cost_model, &self.estimate(cost_model))
    }
}
