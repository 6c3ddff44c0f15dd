//! The conversation, as the next request carries it.

use std::sync::Arc;

use crate::delegation::{Delegation, LimitKind};
use crate::event::Speaker;
use crate::id::{CallId, Hash};
use crate::message::{CallResult, Message, Reply, Stop, ToolCall, ToolOutput};
use crate::money::Usage;
use crate::state::token_estimator::TokenEstimator;
use crate::state::{CompactionInput, CostModel, compaction};
use crate::text::Text;

/// About how many bytes a token has.
pub(super) const BYTES_PER_TOKEN: u64 = 4;
/// The most bytes that a token has on average, in any longer text.
const MAX_BYTES_PER_TOKEN: u64 = 6;

#[derive(Debug, Clone)]
pub(super) enum TranscriptEntry {
    UserMessage(Text),
    Turn { turn: u32, reply: Arc<Reply>, outputs: Vec<Option<ToolOutput>> },
}

impl TranscriptEntry {
    fn bytes(&self) -> usize {
        match self {
            TranscriptEntry::UserMessage(text) => text.len(),
            TranscriptEntry::Turn { reply, outputs, .. } => {
                let calls =
                    reply.calls.iter().map(|call| call.name.len().saturating_add(call.arguments.len()));
                let opaque = reply.opaque.iter().map(|block| block.len());
                let outputs = outputs.iter().flatten().map(|output| output.text.len());
                calls.chain(opaque).chain(outputs).fold(reply.text.len(), usize::saturating_add)
            }
        }
    }

    fn chain_to(&self, hash: Hash) -> Hash {
        match self {
            TranscriptEntry::UserMessage(text) => hash.chain("words", &[text.as_str().as_bytes()]),
            TranscriptEntry::Turn { reply, outputs, .. } => {
                chain_exchange(hash.chain("reply", &[reply.text.as_str().as_bytes()]), reply, outputs)
            }
        }
    }
}

/// Adds the calls of a turn and their results to a hash.
fn chain_exchange(mut hash: Hash, reply: &Reply, outputs: &[Option<ToolOutput>]) -> Hash {
    for (call, output) in reply.calls.iter().zip(outputs) {
        hash = hash.chain("call", &[call.name.as_bytes(), call.arguments.as_str().as_bytes()]);
        hash = match output {
            Some(output) if output.is_error() => hash.chain("error", &[output.text.as_str().as_bytes()]),
            Some(output) => hash.chain("output", &[output.text.as_str().as_bytes()]),
            None => hash.chain("unknown", &[]),
        };
    }
    hash
}

/// The conversation so far. Results belong to the turn that called for them, so that pairing cannot break.
#[derive(Debug, Clone)]
pub struct Transcript {
    entries: Vec<TranscriptEntry>,
    last_turn: u32,
    last_reply: Option<usize>,
    /// The first turn that stands here, if one does.
    first_turn: Option<usize>,
    /// Where the task of the round stands.
    task: Option<usize>,
    /// What the agent said last, also where that is summarised.
    last_text: Text,
    unread: u32,
    /// Whether some of the unheard words come from the user or the caller.
    has_user_input: bool,
    /// Words that came while the model was answering: they stand after its reply.
    deferred: Vec<Text>,
    model_is_answering: bool,
    counted_tokens: u64,
    uncounted_bytes: u64,
    /// The hash of the first `hashed` entries, which do not change any more.
    fingerprint: Hash,
    hashed_entries: usize,
}

impl Default for Transcript {
    fn default() -> Transcript {
        Transcript {
            entries: Vec::new(),
            last_turn: 0,
            last_reply: None,
            first_turn: None,
            task: None,
            last_text: Text::default(),
            unread: 0,
            has_user_input: false,
            deferred: Vec::new(),
            model_is_answering: false,
            counted_tokens: 0,
            uncounted_bytes: 0,
            fingerprint: Hash::of(b"transcript"),
            hashed_entries: 0,
        }
    }
}

/// What the model is told before its last word.
pub fn wrap_up_prompt(limit: Option<LimitKind>) -> String {
    let limit = limit.map_or("a".to_owned(), |which| format!("the {which}"));
    format!(
        "You have reached {limit} limit, and no more tools will run. Say now, in one reply: what you achieved, with \
         the results so far, and what is left to do."
    )
}

impl Transcript {
    fn push_user_message(&mut self, text: Text) {
        self.add_bytes(text.len());
        self.entries.push(TranscriptEntry::UserMessage(text));
    }

    fn add_bytes(&mut self, bytes: usize) {
        self.uncounted_bytes = self.uncounted_bytes.saturating_add(bytes as u64);
    }

    pub(super) fn task(&mut self, delegation: &Delegation) {
        if delegation.task.is_empty() {
            return;
        }
        let message = match &delegation.context {
            Some(context) if !context.is_empty() => {
                Text::from(format!("{}\n\nContext:\n{context}", delegation.task))
            }
            _ => delegation.task.clone(),
        };
        let message = match &delegation.schema {
            Some(schema) => Text::from(format!(
                "{message}\n\nAnswer with JSON only, without any other text, that fits this JSON Schema:\n{schema}"
            )),
            None => message,
        };
        self.task = Some(self.entries.len());
        self.push_user_message(message);
        self.unread += 1;
    }

    pub(super) fn heard(&mut self, from: &Speaker, text: &Text) {
        let message = match from {
            Speaker::Person => text.clone(),
            Speaker::Parent => Text::from(format!("Your caller says:\n{text}")),
            Speaker::Child(child) => Text::from(format!("Sub-agent {child} says:\n{text}")),
            Speaker::Runtime => Text::from(format!("Note from the runtime: {text}")),
        };
        self.unread += 1;
        self.has_user_input |= matches!(from, Speaker::Person | Speaker::Parent);
        if self.model_is_answering {
            self.deferred.push(message);
        } else {
            self.push_user_message(message);
        }
    }

    /// A round begins. The answer of an earlier one is not its result.
    pub(super) fn begin_round(&mut self) {
        self.last_text = Text::default();
        self.end_reply();
    }

    /// The model has answered, or never will.
    pub(super) fn end_reply(&mut self) {
        self.model_is_answering = false;
        for message in std::mem::take(&mut self.deferred) {
            self.push_user_message(message);
        }
    }

    pub(super) fn instruct(&mut self, message: String) {
        self.push_user_message(message.into());
    }

    pub(super) fn mark_sent(&mut self) {
        self.unread = 0;
        self.has_user_input = false;
        self.model_is_answering = true;
        self.fingerprint = self.fingerprint();
        self.hashed_entries = self.entries.len();
    }

    pub(super) fn unread(&self) -> u32 {
        self.unread
    }

    pub(super) fn has_user_input(&self) -> bool {
        self.has_user_input
    }

    pub(super) fn replied(&mut self, turn: u32, reply: &Reply, usage: Usage) {
        let calls = reply.calls.len();
        self.first_turn.get_or_insert(self.entries.len());
        self.last_reply = Some(self.entries.len());
        self.entries.push(TranscriptEntry::Turn {
            turn,
            reply: Arc::new(reply.clone()),
            outputs: vec![None; calls],
        });
        self.last_turn = self.last_turn.max(turn);
        let bytes = self.entries.last().map_or(0, TranscriptEntry::bytes);
        if usage.total() > 0 {
            // A server may count less than it said: what it reads again next time is the whole reply.
            let output_tokens = usage.output.max(bytes as u64 / BYTES_PER_TOKEN);
            self.counted_tokens = usage.input_total().saturating_add(output_tokens);
            self.uncounted_bytes = 0;
        } else {
            self.add_bytes(bytes);
        }
        if !reply.text.is_empty() {
            self.last_text = reply.text.clone();
        }
        self.end_reply();
    }

    /// Keeps the text of a reply that was stopped as the last one. Requests do not carry it.
    pub(super) fn set_partial_text(&mut self, text: &Text) {
        if !text.is_empty() {
            self.last_text = text.clone();
        }
    }

    pub(super) fn answered(&mut self, call: CallId, output: &ToolOutput) {
        self.add_bytes(output.text.len());
        let Some(at) = self.last_reply else { return };
        if let Some(TranscriptEntry::Turn { turn, outputs, .. }) = self.entries.get_mut(at)
            && *turn == call.turn
            && let Some(slot) = outputs.get_mut(call.index as usize)
        {
            *slot = Some(output.clone());
        }
    }

    /// Whether there is anything that a summary could stand for: a turn that does not have to stay.
    pub(super) fn can_compact(&self) -> bool {
        match self.last_reply.and_then(|at| self.entries.get(at)) {
            Some(TranscriptEntry::Turn { reply, .. }) if reply.calls.is_empty() => {
                self.first_turn < self.last_reply
            }
            Some(_) => true,
            None => false,
        }
    }

    /// What a model counted is nothing to another: the next request is estimated from its bytes.
    pub(super) fn reset_counts(&mut self) {
        let bytes = self.entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.bytes() as u64));
        self.counted_tokens = 0;
        self.uncounted_bytes = bytes;
    }

    /// The first turn that stays whole where the newest may have this many bytes. The last one always stays, since the
    /// model has not seen its results; where none may stay, it does so only if it is an answer.
    fn keep_from(&self, max_bytes: Option<u64>) -> u32 {
        let mut keep_from = self.last_turn.saturating_add(1);
        let mut kept_bytes = 0_u64;
        for entry in self.entries.iter().rev() {
            kept_bytes = kept_bytes.saturating_add(entry.bytes() as u64);
            let TranscriptEntry::Turn { turn, reply, .. } = entry else { continue };
            let is_last = keep_from > self.last_turn;
            let stays = match max_bytes {
                Some(max_bytes) => is_last || kept_bytes <= max_bytes,
                None => is_last && reply.calls.is_empty(),
            };
            if !stays {
                break;
            }
            keep_from = *turn;
        }
        keep_from
    }

    /// Where the part begins that stays beside a summary. Words after the last turn belong to the next one.
    fn first_kept(&self, keep_from: u32) -> usize {
        let first_kept = self.entries.iter().position(|entry| match entry {
            TranscriptEntry::Turn { turn, .. } => *turn >= keep_from,
            TranscriptEntry::UserMessage(_) => false,
        });
        first_kept.unwrap_or(self.last_reply.map_or(0, |last| last + 1))
    }

    /// The bytes that a summary would stand for: all but the newest turns and the task.
    pub(super) fn compactable_bytes(&self, kept: Option<u64>) -> u64 {
        let older = self.entries[..self.first_kept(self.keep_from(kept))].iter().enumerate();
        let older = older.filter(|(at, _)| Some(*at) != self.task);
        older.fold(0, |sum: u64, (_, entry)| sum.saturating_add(entry.bytes() as u64))
    }

    /// A text of all but the newest turns, of about `room` bytes at most.
    pub(super) fn compaction_input(&self, room: usize, kept: Option<u64>) -> CompactionInput {
        let keep_from = self.keep_from(kept);
        CompactionInput {
            text: compaction::render(&self.entries[..self.first_kept(keep_from)], room),
            keep_from,
        }
    }

    /// Replaces all before the turn `keep_from` by a summary, except the task of the round.
    pub(super) fn compact(&mut self, summary: &Text, keep_from: u32) {
        let first_kept = self.first_kept(keep_from);
        let kept = self.entries.split_off(first_kept);
        let task = self.task.and_then(|at| match self.entries.get(at) {
            Some(TranscriptEntry::UserMessage(message)) => Some(message.clone()),
            Some(TranscriptEntry::Turn { .. }) | None => None,
        });
        let message = Text::from(format!("Summary of the conversation before this point:\n{summary}"));
        self.fingerprint = Hash::of(b"transcript");
        self.hashed_entries = 0;
        self.counted_tokens = 0;
        self.uncounted_bytes = 0;
        self.entries.clear();
        let before_kept = if task.is_some() { 2 } else { 1 };
        self.task = match task {
            Some(task) => {
                self.push_user_message(task);
                Some(0)
            }
            None => self.task.and_then(|at| at.checked_sub(first_kept)).map(|at| at + before_kept),
        };
        self.push_user_message(message);
        self.entries.extend(kept);
        let is_turn = |entry: &TranscriptEntry| matches!(entry, TranscriptEntry::Turn { .. });
        self.first_turn = self.entries.iter().position(is_turn);
        self.last_reply = self.entries.iter().rposition(is_turn);
        let kept_bytes =
            self.entries[before_kept..].iter().fold(0, |sum: usize, entry| sum.saturating_add(entry.bytes()));
        self.add_bytes(kept_bytes);
    }

    /// Whether the last word is the agent's own, with nothing asked of anyone.
    pub(super) fn is_answered(&self) -> bool {
        match (self.entries.last(), self.unread) {
            (Some(TranscriptEntry::Turn { reply, .. }), 0) => reply.calls.is_empty(),
            _ => false,
        }
    }

    /// Whether the last word is the agent's own, whatever it asked for.
    pub(super) fn has_replied(&self) -> bool {
        self.unread == 0 && matches!(self.entries.last(), Some(TranscriptEntry::Turn { .. }))
    }

    /// Counts a turn as over, though it was not answered.
    pub(super) fn skip_turn(&mut self, turn: u32) {
        self.last_turn = self.last_turn.max(turn);
    }

    pub(super) fn last_turn(&self) -> u32 {
        self.last_turn
    }

    pub(super) fn last_text(&self) -> Text {
        self.last_text.clone()
    }

    pub(super) fn last_stop(&self) -> Option<Stop> {
        match self.entries.get(self.last_reply?)? {
            TranscriptEntry::Turn { reply, .. } => Some(reply.stop),
            TranscriptEntry::UserMessage(_) => None,
        }
    }

    pub(super) fn tool_call(&self, call: CallId) -> Option<&ToolCall> {
        match self.entries.get(self.last_reply?)? {
            TranscriptEntry::Turn { turn, reply, .. } if *turn == call.turn => {
                reply.calls.get(call.index as usize)
            }
            _ => None,
        }
    }

    /// A hash of the entries; only those since the last request are read for it.
    pub(super) fn fingerprint(&self) -> Hash {
        self.entries[self.hashed_entries..].iter().fold(self.fingerprint, |hash, entry| entry.chain_to(hash))
    }

    /// Tokens of the next request that the model has counted before.
    pub(super) fn counted(&self) -> u64 {
        self.counted_tokens
    }

    /// Bytes of the next request that the model has not counted.
    fn uncounted_bytes(&self, cost_model: &CostModel) -> u64 {
        let fixed = if self.counted_tokens == 0 { cost_model.fixed_bytes } else { 0 };
        self.uncounted_bytes.saturating_add(fixed)
    }

    /// Input tokens of the next request, at most.
    pub(super) fn input_estimate(&self, cost_model: &CostModel, estimator: &TokenEstimator) -> u64 {
        estimator.max_input(self.counted_tokens, self.uncounted_bytes(cost_model))
    }

    /// Input tokens of the next request, most likely.
    pub(super) fn likely_input_estimate(&self, cost_model: &CostModel, estimator: &TokenEstimator) -> u64 {
        estimator.likely_input(self.counted_tokens, self.uncounted_bytes(cost_model))
    }

    /// Input tokens that the next request has at least. What a model counted is no lower bound: it may have counted
    /// reasoning that it does not read again.
    pub(super) fn min_input_estimate(&self, cost_model: &CostModel) -> u64 {
        let bytes = self
            .entries
            .iter()
            .fold(cost_model.fixed_bytes, |sum, entry| sum.saturating_add(entry.bytes() as u64));
        bytes / MAX_BYTES_PER_TOKEN
    }

    /// A hash of the calls of the last reply and their results; none if it made no calls.
    pub(super) fn last_exchange(&self) -> Option<Hash> {
        match self.entries.get(self.last_reply?)? {
            TranscriptEntry::Turn { reply, outputs, .. } if !reply.calls.is_empty() => {
                Some(chain_exchange(Hash::of(b"exchange"), reply, outputs))
            }
            TranscriptEntry::Turn { .. } | TranscriptEntry::UserMessage(_) => None,
        }
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::with_capacity(self.entries.len() + 1);
        for entry in &self.entries {
            match entry {
                TranscriptEntry::UserMessage(text) => messages.push(Message::User(text.clone())),
                TranscriptEntry::Turn { turn, reply, outputs } => {
                    messages.push(Message::Assistant(reply.clone()));
                    if !reply.calls.is_empty() {
                        messages.push(Message::Results(results(*turn, reply, outputs)));
                    }
                }
            }
        }
        messages
    }
}

/// One result for each call, in order. A call that the log does not answer gets an answer that says so.
fn results(turn: u32, reply: &Reply, outputs: &[Option<ToolOutput>]) -> Vec<CallResult> {
    let result = |(index, call): (usize, &ToolCall)| CallResult {
        call: CallId { turn, index: u32::try_from(index).unwrap_or(u32::MAX) },
        provider_id: call.provider_id.clone(),
        name: call.name.clone(),
        output: outputs.get(index).cloned().flatten().unwrap_or_else(|| {
            ToolOutput::error("interrupted, outcome unknown: this call has no recorded result")
        }),
    };
    reply.calls.iter().enumerate().map(result).collect()
}
