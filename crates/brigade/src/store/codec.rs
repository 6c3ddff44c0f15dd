//! Facts as bytes: JSON with long texts put aside, and a checksum over all that a record says.

use std::ops::Range;
use std::str::Split;
use std::sync::Arc;

use brigade_core::event::{TYPES, VERSION};
use brigade_core::text::{BlobRef, MAX_INLINE_BYTES};
use brigade_core::{DelegationStyle, Event, Hash, SessionId, Text};
use serde::Deserialize;

use super::{Append, Expect, StoreError};

/// Why bytes are not a fact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A newer version wrote them.
    #[error("{0}")]
    Newer(String),
    /// Nobody wrote them like that.
    #[error("{0}")]
    Damaged(String),
}

impl DecodeError {
    /// The same, about a record.
    pub(super) fn of(self, session: &SessionId, seq: u64) -> StoreError {
        let session = session.clone();
        match self {
            DecodeError::Newer(what) => StoreError::Newer { session, seq, what },
            DecodeError::Damaged(cause) => StoreError::Damaged { session, seq, cause },
        }
    }
}

/// Facts of one session, ready to be written.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    /// All rows, one after the other: a buffer for each would be moved several times while it grows.
    bodies: Vec<u8>,
    rows: Vec<RowSpan>,
    /// Contents to keep: definitions that came along and texts that are too long for a fact.
    pub(super) blobs: Vec<(Hash, Arc<str>)>,
    /// Definitions that the facts name, whether or not they are among the blobs.
    pub(super) definitions: Vec<Hash>,
    /// Long texts of the facts.
    pub(super) texts: Vec<Hash>,
}

/// Where a row is among the bodies.
#[derive(Debug)]
struct RowSpan {
    body: Range<usize>,
    event_count: u64,
    flag: u64,
}

/// Facts that are written together, ready to be written: one after the other, each on a line of its own. A fact with a mark
/// is alone, so that the mark is its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) body: &'a [u8],
    /// How many they are.
    pub(super) event_count: u64,
    pub(super) flag: u64,
}

/// About how many bytes a fact has.
const EVENT_BYTES_ESTIMATE: usize = 320;
/// How many bytes of several facts are written together at most: less than a page of the file, so that decay of one page takes
/// few facts along that are not on it.
const MAX_ROW_BYTES: usize = 3_500;

impl Encoded {
    /// Room for this many facts.
    pub(super) fn with_capacity(event_count: usize) -> Encoded {
        Encoded { bodies: Vec::with_capacity(event_count * EVENT_BYTES_ESTIMATE), ..Encoded::default() }
    }

    /// The facts in their order, as they are written together.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let row = |RowSpan { body, event_count, flag }: &RowSpan| Row {
            body: self.bodies.get(body.clone()).unwrap_or_default(),
            event_count: *event_count,
            flag: *flag,
        };
        self.rows.iter().map(row)
    }

    /// Content that comes along with the facts.
    pub(super) fn add_blob(&mut self, content: Arc<str>) {
        let hash = Hash::of(content.as_bytes());
        self.definitions.push(hash);
        self.blobs.push((hash, content));
    }

    /// Adds a fact.
    pub(super) fn push(&mut self, event: &Event) -> Result<(), serde_json::Error> {
        self.definitions.extend(definitions(event));
        if !self.bodies.is_empty() {
            self.bodies.push(b'\n');
        }
        let start = self.bodies.len();
        serde_json::to_writer(&mut self.bodies, event)?;
        // A text is never longer than its JSON, so short facts, nearly all of them, are done here without a copy.
        if self.bodies.len() - start > MAX_INLINE_BYTES {
            let mut event = event.clone();
            let mut spilled = false;
            event.texts_mut(&mut |text| {
                if let Text::Inline(whole) = text
                    && whole.len() > MAX_INLINE_BYTES
                {
                    let hash = Hash::of(whole.as_bytes());
                    self.texts.push(hash);
                    self.blobs.push((hash, whole.clone()));
                    *text = Text::Spilled(Box::new(BlobRef { blob: hash, bytes: whole.len() as u64 }));
                    spilled = true;
                }
            });
            if spilled {
                self.bodies.truncate(start);
                serde_json::to_writer(&mut self.bodies, &event)?;
            }
        }
        self.place(start, flag(event));
        Ok(())
    }

    /// Puts the fact that was written from `start` on into the last row, or into one of its own.
    fn place(&mut self, start: usize, flag: u64) {
        let end = self.bodies.len();
        match self.rows.last_mut() {
            Some(row) if row.flag == 0 && flag == 0 && end - row.body.start <= MAX_ROW_BYTES => {
                row.body.end = end;
                row.event_count += 1;
            }
            _ => self.rows.push(RowSpan { body: start..end, event_count: 1, flag }),
        }
    }
}

/// How a fact is marked in its row, so that it is found without being read: 1 for words from outside, 2 for the
/// beginning of a session that people find in their history by itself.
pub(super) fn flag(event: &Event) -> u64 {
    match event {
        event if event.is_external() => 1,
        Event::Started { delegation, .. } if delegation.style == DelegationStyle::Dispatch => 2,
        _ => 0,
    }
}

/// The definitions that a fact names: whoever has the fact needs them too.
pub(super) fn definitions(event: &Event) -> impl Iterator<Item = Hash> {
    let hashes = match event {
        Event::Started { agent, grant, .. } | Event::Delegated { agent, grant, .. } => {
            [Some(*agent), Some(grant.authority)]
        }
        _ => [None, None],
    };
    hashes.into_iter().flatten()
}

/// The content that an edit leads to, if the fact is one that changes a file.
pub(super) fn edit(event: &Event) -> Option<Hash> {
    match event {
        Event::ToolStarted { before, after, .. } if before != after => *after,
        _ => None,
    }
}

/// Refuses facts that may not be appended the way `append` wants to.
pub(super) fn check_external(append: &Append) -> Result<(), StoreError> {
    if append.lease.is_some() && matches!(append.expect, Expect::Length(_)) {
        return Ok(());
    }
    match append.events.iter().find(|event| !event.is_external()) {
        Some(event) => Err(StoreError::LeaseRequired { session: append.session.clone(), kind: event.kind() }),
        None => Ok(()),
    }
}

/// The facts that were written together, each as [`decode`] takes it. JSON as it is written here has no line feed of its own.
pub(super) fn lines(body: &[u8]) -> Result<Split<'_, char>, DecodeError> {
    // Checked as a whole, the text need not be checked string by string.
    let text = std::str::from_utf8(body).map_err(|error| DecodeError::Damaged(error.to_string()))?;
    Ok(text.split('\n'))
}

/// Refuses what a newer version of the log has written.
pub(super) fn check_version(v: u64) -> Result<(), DecodeError> {
    if v > u64::from(VERSION) {
        return Err(DecodeError::Newer(format!("version {v} of the log")));
    }
    Ok(())
}

/// A fact from its text. Texts that were put aside are still aside; see [`hydrate`].
pub(super) fn decode(text: &str, v: u64) -> Result<Event, DecodeError> {
    check_version(v)?;
    serde_json::from_str(text).map_err(|error| explain(text, &error))
}

/// Tells what a newer version wrote from what nobody wrote. The checksum held, so an unknown name is a name that this
/// version has yet to learn: above all a field of a grant, which would narrow it.
fn explain(text: &str, error: &serde_json::Error) -> DecodeError {
    #[derive(Deserialize)]
    struct Tagged {
        r#type: String,
    }
    let message = cause(error);
    match serde_json::from_str::<Tagged>(text) {
        Ok(tagged) if !TYPES.contains(&tagged.r#type.as_str()) => {
            DecodeError::Newer(format!("the event type `{}`", tagged.r#type))
        }
        Ok(tagged) if message.contains("unknown field") || message.contains("unknown variant") => {
            DecodeError::Newer(format!("{message} in a `{}`", tagged.r#type))
        }
        _ => DecodeError::Damaged(message),
    }
}

/// The cause of a failure to read JSON, without the names of Rust types.
pub(super) fn cause(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    let types = [", expected struct ", ", expected enum ", ", expected internally tagged enum "];
    if let Some(at) = types.iter().find_map(|names| text.find(names)) {
        text.truncate(at);
    }
    text
}

/// Puts the texts back that [`Encoded::push`] put aside.
pub(super) fn hydrate<E: From<DecodeError>>(
    event: &mut Event,
    find: &mut dyn FnMut(Hash) -> Result<Option<Arc<str>>, E>,
) -> Result<(), E> {
    // Most facts have no long text; they are short themselves, and visiting their few texts costs next to nothing.
    let mut fault = Ok(());
    event.texts_mut(&mut |text| {
        let Text::Spilled(blob_ref) = text else { return };
        let blob = blob_ref.blob;
        if fault.is_err() {
            return;
        }
        match find(blob) {
            Ok(Some(content)) if Hash::of(content.as_bytes()) == blob => *text = Text::Inline(content),
            Ok(Some(_)) => fault = Err(DecodeError::Damaged(format!("its text {blob} was altered")).into()),
            Ok(None) => fault = Err(DecodeError::Damaged(format!("its text {blob} is missing")).into()),
            Err(error) => fault = Err(error),
        }
    });
    fault
}

/// The checksum of a record: eight bytes are plenty against decay, which is all that it guards against.
pub(super) fn checksum(session: &str, seq: u64, pos: u64, at: u64, v: u64, body: &[u8]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    let mut head = [0u8; 40];
    let numbers = [seq, pos, at, v, session.len() as u64];
    for (place, number) in head.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    hasher.update(&head).update(session.as_bytes()).update(body);
    let mut sum = [0u8; 8];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    sum
}
