//! The conversation, as the next request carries it.

use std::sync::Arc;

use crate::delegation::{Delegation, Which};
use crate::event::Speaker;
use crate::id::{CallId, Hash};
use crate::message::{CallResult, Message, Reply, Stop, ToolCall, ToolOutput};
use crate::money::Usage;
use crate::state::learned::Learned;
use crate::state::{Digest, Meter, digest};
use crate::text::Text;

/// About how many bytes a token has.
pub(super) const TOKEN_BYTES: u64 = 4;
/// The most bytes that a token has on average, in any longer text.
const MOST_BYTES_PER_TOKEN: u64 = 6;

#[derive(Debug, Clone)]
pub(super) enum Entry {
    Words(Text),
    Turn { turn: u32, reply: Arc<Reply>, outputs: Vec<Option<ToolOutput>> },
}

impl Entry {
    fn bytes(&self) -> usize {
        match self {
            Entry::Words(text) => text.len(),
            Entry::Turn { reply, outputs, .. } => {
                let calls =
                    reply.calls.iter().map(|call| call.name.len().saturating_add(call.arguments.len()));
                let kept = reply.opaque.iter().map(|block| block.len());
                let outputs = outputs.iter().flatten().map(|output| output.text.len());
                calls.chain(kept).chain(outputs).fold(reply.text.len(), usize::saturating_add)
            }
        }
    }

    fn chained_to(&self, hash: Hash) -> Hash {
        match self {
            Entry::Words(text) => hash.chain("words", &[text.as_str().as_bytes()]),
            Entry::Turn { reply, outputs, .. } => {
                chained_exchange(hash.chain("reply", &[reply.text.as_str().as_bytes()]), reply, outputs)
            }
        }
    }
}

/// Adds the calls of a turn and their results to a hash.
fn chained_exchange(mut hash: Hash, reply: &Reply, outputs: &[Option<ToolOutput>]) -> Hash {
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
    entries: Vec<Entry>,
    last_turn: u32,
    last_reply: Option<usize>,
    /// The first turn that stands here, if one does.
    first_turn: Option<usize>,
    /// Where the task of the round stands.
    task: Option<usize>,
    /// What the agent said last, also where that is summarised.
    last_text: Text,
    unheard: u32,
    /// Whether some of the unheard words come from the user or the caller.
    is_told: bool,
    /// Words that came while the model was answering: they stand after its reply.
    held: Vec<Text>,
    model_is_answering: bool,
    reported: u64,
    bytes_since: u64,
    /// The hash of the first `hashed` entries, which do not change any more.
    fingerprint: Hash,
    hashed: usize,
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
            unheard: 0,
            is_told: false,
            held: Vec::new(),
            model_is_answering: false,
            reported: 0,
            bytes_since: 0,
            fingerprint: Hash::of(b"transcript"),
            hashed: 0,
        }
    }
}

/// What the model is told before its last word.
pub fn grace_words(limit: Option<Which>) -> String {
    let limit = limit.map_or("a".to_owned(), |which| format!("the {which}"));
    format!(
        "You have reached {limit} limit, and no more tools will run. Say now, in one reply: what you achieved, with \
         the results so far, and what is left to do."
    )
}

impl Transcript {
    fn push_words(&mut self, text: Text) {
        self.grow(text.len());
        self.entries.push(Entry::Words(text));
    }

    fn grow(&mut self, bytes: usize) {
        self.bytes_since = self.bytes_since.saturating_add(bytes as u64);
    }

    pub(super) fn task(&mut self, delegation: &Delegation) {
        if delegation.task.is_empty() {
            return;
        }
        let words = match &delegation.context {
            Some(context) if !context.is_empty() => {
                Text::from(format!("{}\n\nContext:\n{context}", delegation.task))
            }
            _ => delegation.task.clone(),
        };
        let words = match &delegation.schema {
            Some(schema) => Text::from(format!(
                "{words}\n\nAnswer with JSON only, without any other text, that fits this JSON Schema:\n{schema}"
            )),
            None => words,
        };
        self.task = Some(self.entries.len());
        self.push_words(words);
        self.unheard += 1;
    }

    pub(super) fn heard(&mut self, from: &Speaker, text: &Text) {
        let words = match from {
            Speaker::Person => text.clone(),
            Speaker::Parent => Text::from(format!("Your caller says:\n{text}")),
            Speaker::Child(child) => Text::from(format!("Sub-agent {child} says:\n{text}")),
            Speaker::Runtime => Text::from(format!("Note from the runtime: {text}")),
        };
        self.unheard += 1;
        self.is_told |= matches!(from, Speaker::Person | Speaker::Parent);
        if self.model_is_answering {
            self.held.push(words);
        } else {
            self.push_words(words);
        }
    }

    /// A round begins. The answer of an earlier one is not its result.
    pub(super) fn begin_round(&mut self) {
        self.last_text = Text::default();
        self.closed();
    }

    /// The model has answered, or never will.
    pub(super) fn closed(&mut self) {
        self.model_is_answering = false;
        for words in std::mem::take(&mut self.held) {
            self.push_words(words);
        }
    }

    pub(super) fn instruct(&mut self, words: String) {
        self.push_words(words.into());
    }

    pub(super) fn sent(&mut self) {
        self.unheard = 0;
        self.is_told = false;
        self.model_is_answering = true;
        self.fingerprint = self.fingerprint();
        self.hashed = self.entries.len();
    }

    pub(super) fn unheard(&self) -> u32 {
        self.unheard
    }

    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    pub(super) fn replied(&mut self, turn: u32, reply: &Reply, usage: Usage) {
        let calls = reply.calls.len();
        self.first_turn.get_or_insert(self.entries.len());
        self.last_reply = Some(self.entries.len());
        self.entries.push(Entry::Turn { turn, reply: Arc::new(reply.clone()), outputs: vec![None; calls] });
        self.last_turn = self.last_turn.max(turn);
        let bytes = self.entries.last().map_or(0, Entry::bytes);
        if usage.total() > 0 {
            // A server may count less than it said: what it reads again next time is the whole reply.
            let said = usage.output.max(bytes as u64 / TOKEN_BYTES);
            self.reported = usage.input_total().saturating_add(said);
            self.bytes_since = 0;
        } else {
            self.grow(bytes);
        }
        if !reply.text.is_empty() {
            self.last_text = reply.text.clone();
        }
        self.closed();
    }

    /// Keeps the text of a reply that was stopped as the last one. Requests do not carry it.
    pub(super) fn broke_off(&mut self, text: &Text) {
        if !text.is_empty() {
            self.last_text = text.clone();
        }
    }

    pub(super) fn answered(&mut self, call: CallId, output: &ToolOutput) {
        self.grow(output.text.len());
        let Some(at) = self.last_reply else { return };
        if let Some(Entry::Turn { turn, outputs, .. }) = self.entries.get_mut(at)
            && *turn == call.turn
            && let Some(slot) = outputs.get_mut(call.index as usize)
        {
            *slot = Some(output.clone());
        }
    }

    /// Whether there is anything that a summary could stand for: a turn that does not have to stay.
    pub(super) fn can_compact(&self) -> bool {
        match self.last_reply.and_then(|at| self.entries.get(at)) {
            Some(Entry::Turn { reply, .. }) if reply.calls.is_empty() => self.first_turn < self.last_reply,
            Some(_) => true,
            None => false,
        }
    }

    /// What a model counted is nothing to another: the next request is estimated from its bytes.
    pub(super) fn forget_count(&mut self) {
        let bytes = self.entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.bytes() as u64));
        self.reported = 0;
        self.bytes_since = bytes;
    }

    /// The first turn that stays whole where the newest may have this many bytes. The last one always stays, since the
    /// model has not seen its results; where none may stay, it does so only if it is an answer.
    fn keep_from(&self, most: Option<u64>) -> u32 {
        let mut keep_from = self.last_turn.saturating_add(1);
        let mut kept = 0_u64;
        for entry in self.entries.iter().rev() {
            kept = kept.saturating_add(entry.bytes() as u64);
            let Entry::Turn { turn, reply, .. } = entry else { continue };
            let is_last = keep_from > self.last_turn;
            let stays = match most {
                Some(most) => is_last || kept <= most,
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
            Entry::Turn { turn, .. } => *turn >= keep_from,
            Entry::Words(_) => false,
        });
        first_kept.unwrap_or(self.last_reply.map_or(0, |last| last + 1))
    }

    /// The bytes that a summary would stand for: all but the newest turns and the task.
    pub(super) fn digestible_bytes(&self, kept: Option<u64>) -> u64 {
        let older = self.entries[..self.first_kept(self.keep_from(kept))].iter().enumerate();
        let older = older.filter(|(at, _)| Some(*at) != self.task);
        older.fold(0, |sum: u64, (_, entry)| sum.saturating_add(entry.bytes() as u64))
    }

    /// A text of all but the newest turns, of about `room` bytes at most.
    pub(super) fn digest(&self, room: usize, kept: Option<u64>) -> Digest {
        let keep_from = self.keep_from(kept);
        Digest { text: digest::render(&self.entries[..self.first_kept(keep_from)], room), keep_from }
    }

    /// Replaces all before the turn `keep_from` by a summary, except the task of the round.
    pub(super) fn compact(&mut self, summary: &Text, keep_from: u32) {
        let first_kept = self.first_kept(keep_from);
        let kept = self.entries.split_off(first_kept);
        let task = self.task.and_then(|at| match self.entries.get(at) {
            Some(Entry::Words(words)) => Some(words.clone()),
            Some(Entry::Turn { .. }) | None => None,
        });
        let words = Text::from(format!("Summary of the conversation before this point:\n{summary}"));
        self.fingerprint = Hash::of(b"transcript");
        self.hashed = 0;
        self.reported = 0;
        self.bytes_since = 0;
        self.entries.clear();
        let before_kept = if task.is_some() { 2 } else { 1 };
        self.task = match task {
            Some(task) => {
                self.push_words(task);
                Some(0)
            }
            None => self.task.and_then(|at| at.checked_sub(first_kept)).map(|at| at + before_kept),
        };
        self.push_words(words);
        self.entries.extend(kept);
        let is_turn = |entry: &Entry| matches!(entry, Entry::Turn { .. });
        self.first_turn = self.entries.iter().position(is_turn);
        self.last_reply = self.entries.iter().rposition(is_turn);
        let kept_bytes =
            self.entries[before_kept..].iter().fold(0, |sum: usize, entry| sum.saturating_add(entry.bytes()));
        self.grow(kept_bytes);
    }

    /// Whether the last word is the agent's own, with nothing asked of anyone.
    pub(super) fn is_answered(&self) -> bool {
        match (self.entries.last(), self.unheard) {
            (Some(Entry::Turn { reply, .. }), 0) => reply.calls.is_empty(),
            _ => false,
        }
    }

    /// Whether the last word is the agent's own, whatever it asked for.
    pub(super) fn has_replied(&self) -> bool {
        self.unheard == 0 && matches!(self.entries.last(), Some(Entry::Turn { .. }))
    }

    /// Counts a turn as over, though it was not answered.
    pub(super) fn give_up(&mut self, turn: u32) {
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
            Entry::Turn { reply, .. } => Some(reply.stop),
            Entry::Words(_) => None,
        }
    }

    pub(super) fn tool_call(&self, call: CallId) -> Option<&ToolCall> {
        match self.entries.get(self.last_reply?)? {
            Entry::Turn { turn, reply, .. } if *turn == call.turn => reply.calls.get(call.index as usize),
            _ => None,
        }
    }

    /// A hash of the entries; only those since the last request are read for it.
    pub(super) fn fingerprint(&self) -> Hash {
        self.entries[self.hashed..].iter().fold(self.fingerprint, |hash, entry| entry.chained_to(hash))
    }

    /// Tokens of the next request that the model has counted before.
    pub(super) fn counted(&self) -> u64 {
        self.reported
    }

    /// Bytes of the next request that the model has not counted.
    fn uncounted_bytes(&self, meter: &Meter) -> u64 {
        let fixed = if self.reported == 0 { meter.fixed_bytes } else { 0 };
        self.bytes_since.saturating_add(fixed)
    }

    /// Input tokens of the next request, at most.
    pub(super) fn input_estimate(&self, meter: &Meter, learned: &Learned) -> u64 {
        learned.input(self.reported, self.uncounted_bytes(meter))
    }

    /// Input tokens of the next request, most likely.
    pub(super) fn size_estimate(&self, meter: &Meter, learned: &Learned) -> u64 {
        learned.likely_input(self.reported, self.uncounted_bytes(meter))
    }

    /// Input tokens that the next request has at least. What a model counted is no lower bound: it may have counted
    /// reasoning that it does not read again.
    pub(super) fn least_size(&self, meter: &Meter) -> u64 {
        let bytes = self
            .entries
            .iter()
            .fold(meter.fixed_bytes, |sum, entry| sum.saturating_add(entry.bytes() as u64));
        bytes / MOST_BYTES_PER_TOKEN
    }

    /// A hash of the calls of the last reply and their results; none if it made no calls.
    pub(super) fn last_exchange(&self) -> Option<Hash> {
        match self.entries.get(self.last_reply?)? {
            Entry::Turn { reply, outputs, .. } if !reply.calls.is_empty() => {
                Some(chained_exchange(Hash::of(b"exchange"), reply, outputs))
            }
            Entry::Turn { .. } | Entry::Words(_) => None,
        }
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::with_capacity(self.entries.len() + 1);
        for entry in &self.entries {
            match entry {
                Entry::Words(text) => messages.push(Message::User(text.clone())),
                Entry::Turn { turn, reply, outputs } => {
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
