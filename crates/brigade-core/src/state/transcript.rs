//! Conversation as the next request contains it.

use std::sync::Arc;

use crate::delegation::{Delegation, LimitKind};
use crate::event::Speaker;
use crate::id::{CallId, Hash};
use crate::message::{CallResult, Message, Reply, Stop, ToolCall, ToolOutput};
use crate::money::Usage;
use crate::state::token_estimator::TokenEstimator;
use crate::state::{CompactionInput, CostModel, compaction};
use crate::text::Text;

/// Approximate number of bytes per token.
pub(super) const BYTES_PER_TOKEN: u64 = 4;
/// Maximum average number of bytes per token, in any longer text.
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

/// Conversation so far. Results belong to the turn that made the calls, so that their pairing cannot break.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    entries: Vec<TranscriptEntry>,
    last_turn: u32,
    last_reply: Option<usize>,
    /// Index of the first turn, if there is one.
    first_turn: Option<usize>,
    /// Index of the round's task.
    task: Option<usize>,
    /// Last text of the agent, even if it is summarised.
    last_text: Text,
    unread: u32,
    /// Whether some of the unread messages come from the user or the caller.
    has_user_input: bool,
    /// Messages that arrived during a model call; they follow its reply.
    deferred: Vec<Text>,
    model_is_answering: bool,
    counted_tokens: u64,
    uncounted_bytes: u64,
    prefix: HashedPrefix,
}

/// Hash of the first entries, which do not change any more.
#[derive(Debug, Clone)]
struct HashedPrefix {
    hash: Hash,
    entries: usize,
}

impl Default for HashedPrefix {
    fn default() -> HashedPrefix {
        HashedPrefix { hash: Hash::of(b"transcript"), entries: 0 }
    }
}

/// Returns the prompt of the wrap-up call.
pub fn wrap_up_prompt(limit: Option<LimitKind>) -> String {
    let limit = limit.map_or("a limit".to_owned(), |limit| format!("the {}", limit.label()));
    format!(
        "You have reached {limit}. Do not call tools: none will run. Reply once with what you achieved, the \
         results so far, and what is left to do."
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
                "{message}\n\nReply with JSON only, with no other text. It must match this JSON Schema:\n{schema}"
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
            Speaker::Parent => Text::from(format!("Message from your caller:\n{text}")),
            Speaker::Child(child) => Text::from(format!("Message from sub-agent {child}:\n{text}")),
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

    /// Begins a round. The answer of an earlier one is not its result.
    pub(super) fn begin_round(&mut self) {
        self.last_text = Text::default();
        self.end_reply();
    }

    /// Ends a model call, whether it was answered or not.
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
        self.prefix = HashedPrefix { hash: self.fingerprint(), entries: self.entries.len() };
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
            // A server may count less than it sent, but it reads the whole reply again in the next request.
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

    /// Keeps the text of a stopped reply as the last one. Requests do not contain it.
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

    /// Whether there is anything to summarise: a turn that need not stay.
    pub(super) fn can_compact(&self) -> bool {
        match self.last_reply.and_then(|at| self.entries.get(at)) {
            Some(TranscriptEntry::Turn { reply, .. }) if reply.calls.is_empty() => {
                self.first_turn < self.last_reply
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Discards token counts, which do not apply to another model: the next request is estimated from its bytes.
    pub(super) fn reset_counts(&mut self) {
        let bytes = self.entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.bytes() as u64));
        self.counted_tokens = 0;
        self.uncounted_bytes = bytes;
    }

    /// Returns the first turn that stays in full if the newest may have this many bytes. The last one always stays,
    /// since the model has not seen its results. If none may stay, it stays only if it is an answer.
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

    /// Returns the index of the part that stays next to a summary. Messages after the last turn belong to the next
    /// one.
    fn first_kept(&self, keep_from: u32) -> usize {
        let first_kept = self.entries.iter().position(|entry| match entry {
            TranscriptEntry::Turn { turn, .. } => *turn >= keep_from,
            TranscriptEntry::UserMessage(_) => false,
        });
        first_kept.unwrap_or(self.last_reply.map_or(0, |last| last + 1))
    }

    /// Returns the number of bytes that a summary would replace: all but the newest turns and the task.
    pub(super) fn compactable_bytes(&self, kept: Option<u64>) -> u64 {
        let older = self.entries[..self.first_kept(self.keep_from(kept))].iter().enumerate();
        let older = older.filter(|(at, _)| Some(*at) != self.task);
        older.fold(0, |sum: u64, (_, entry)| sum.saturating_add(entry.bytes() as u64))
    }

    /// Returns a text of all but the newest turns, of about `room` bytes at most.
    pub(super) fn compaction_input(&self, room: usize, kept: Option<u64>) -> CompactionInput {
        let keep_from = self.keep_from(kept);
        CompactionInput {
            text: compaction::render(&self.entries[..self.first_kept(keep_from)], room),
            keep_from,
        }
    }

    /// Replaces everything before the turn `keep_from` with a summary, except the task of the round.
    pub(super) fn compact(&mut self, summary: &Text, keep_from: u32) {
        let first_kept = self.first_kept(keep_from);
        let kept = self.entries.split_off(first_kept);
        let task = self.task.and_then(|at| match self.entries.get(at) {
            Some(TranscriptEntry::UserMessage(message)) => Some(message.clone()),
            Some(TranscriptEntry::Turn { .. }) | None => None,
        });
        let message = Text::from(format!("Summary of the conversation before this point:\n{summary}"));
        self.prefix = HashedPrefix::default();
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

    /// Whether the last message is the agent's own, without tool calls.
    pub(super) fn is_answered(&self) -> bool {
        match (self.entries.last(), self.unread) {
            (Some(TranscriptEntry::Turn { reply, .. }), 0) => reply.calls.is_empty(),
            _ => false,
        }
    }

    /// Whether the last message is the agent's own, with or without tool calls.
    pub(super) fn has_replied(&self) -> bool {
        self.unread == 0 && matches!(self.entries.last(), Some(TranscriptEntry::Turn { .. }))
    }

    /// Counts a turn as over although it was not answered.
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

    /// Returns a hash of the entries; only those since the last request are read for it.
    pub(super) fn fingerprint(&self) -> Hash {
        self.entries[self.prefix.entries..].iter().fold(self.prefix.hash, |hash, entry| entry.chain_to(hash))
    }

    /// Returns the tokens of the next request that the model has counted before.
    pub(super) fn counted(&self) -> u64 {
        self.counted_tokens
    }

    /// Returns the bytes of the next request that the model has not counted.
    fn uncounted_bytes(&self, cost_model: &CostModel) -> u64 {
        let fixed = if self.counted_tokens == 0 { cost_model.fixed_bytes } else { 0 };
        self.uncounted_bytes.saturating_add(fixed)
    }

    /// Returns the upper bound of the next request's input tokens.
    pub(super) fn input_estimate(&self, cost_model: &CostModel, estimator: &TokenEstimator) -> u64 {
        estimator.max_input(self.counted_tokens, self.uncounted_bytes(cost_model))
    }

    /// Returns the most likely number of the next request's input tokens.
    pub(super) fn likely_input_estimate(&self, cost_model: &CostModel, estimator: &TokenEstimator) -> u64 {
        estimator.likely_input(self.counted_tokens, self.uncounted_bytes(cost_model))
    }

    /// Returns the lower bound of the next request's input tokens. A model's count is not a lower bound: it may
    /// include reasoning that the model does not read again.
    pub(super) fn min_input_estimate(&self, cost_model: &CostModel) -> u64 {
        let bytes = self
            .entries
            .iter()
            .fold(cost_model.fixed_bytes, |sum, entry| sum.saturating_add(entry.bytes() as u64));
        bytes / MAX_BYTES_PER_TOKEN
    }

    /// Returns a hash of the last reply's calls and their results; `None` if it made no calls.
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

/// Returns one result for each call, in order. A call without a result in the log gets one that says so.
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
