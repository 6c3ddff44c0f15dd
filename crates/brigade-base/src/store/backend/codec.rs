//! Encoding of events: JSON with long texts stored separately, and a checksum over each row.

use std::ops::Range;
use std::str::Split;
use std::sync::Arc;

use brigade_core::event::{TYPES, VERSION};
use brigade_core::text::{BlobRef, MAX_INLINE_BYTES};
use brigade_core::{DelegationStyle, Event, Hash, SessionId, Text};
use serde::Deserialize;

use crate::store::{Append, Expect, StoreError};

/// Error of decoding an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A newer version wrote the bytes.
    #[error("{0}")]
    Newer(String),
    /// The bytes are damaged.
    #[error("{0}")]
    Damaged(String),
}

impl DecodeError {
    /// Converts the error into a store error about a record.
    pub fn of(self, session: &SessionId, seq: u64) -> StoreError {
        let session = session.clone();
        match self {
            DecodeError::Newer(what) => StoreError::Newer { session, seq, what },
            DecodeError::Damaged(cause) => StoreError::Damaged { session, seq, cause },
        }
    }
}

/// Encoded events of one session, ready to be stored. A store writes [`Encoded::blobs`] and their references in the
/// transaction that writes [`Encoded::rows`].
#[derive(Debug, Default)]
pub struct Encoded {
    /// All rows in one buffer. A buffer per row would be moved several times while it grows.
    bodies: Vec<u8>,
    rows: Vec<RowSpan>,
    /// Content to store: definitions that came with the events, and texts too long for an event.
    pub blobs: Vec<(Hash, Arc<str>)>,
    /// Definitions that the events refer to, whether or not they are among the blobs.
    pub definitions: Vec<Hash>,
    /// Long texts of the events, all of them among the blobs. They belong to the session alone.
    pub texts: Vec<Hash>,
}

/// Range of a row in `bodies`.
#[derive(Debug)]
struct RowSpan {
    body: Range<usize>,
    event_count: u64,
    flag: u64,
}

/// Encoded events that are stored together, one per line. An event with a flag has a row of its own, so that the
/// flag is unambiguous.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Text of the events, for [`lines`].
    pub body: &'a [u8],
    /// Number of events.
    pub event_count: u64,
    /// Result of [`flag`] for the events.
    pub flag: u64,
}

/// Estimated size of an event.
const EVENT_BYTES_ESTIMATE: usize = 320;
/// Maximum size of a row with several events. It is less than a page of the file, so that damage to one page
/// affects few events outside it.
const MAX_ROW_BYTES: usize = 3_500;

impl Encoded {
    /// Reserves space for this many events.
    pub fn with_capacity(event_count: usize) -> Encoded {
        Encoded { bodies: Vec::with_capacity(event_count * EVENT_BYTES_ESTIMATE), ..Encoded::default() }
    }

    /// Returns the rows in the order of their events.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let row = |RowSpan { body, event_count, flag }: &RowSpan| Row {
            body: self.bodies.get(body.clone()).unwrap_or_default(),
            event_count: *event_count,
            flag: *flag,
        };
        self.rows.iter().map(row)
    }

    /// Adds content that comes with the events.
    pub fn add_blob(&mut self, content: Arc<str>) {
        let hash = Hash::of(content.as_bytes());
        self.definitions.push(hash);
        self.blobs.push((hash, content));
    }

    /// Adds an event.
    pub fn push(&mut self, event: &Event) -> Result<(), serde_json::Error> {
        self.definitions.extend(definitions(event));
        if !self.bodies.is_empty() {
            self.bodies.push(b'\n');
        }
        let start = self.bodies.len();
        serde_json::to_writer(&mut self.bodies, event)?;
        // A text is never longer than its JSON, so short events, which are nearly all of them, need no copy.
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

    /// Moves the event written from `start` on into the last row or into a new one.
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

/// Flag of an external event.
pub const EXTERNAL: u64 = 1;
/// Flag of the start of a session that [`Store::roots`](crate::store::Store::roots) lists although it has a parent.
pub const LISTED: u64 = 2;

/// Flag of an event in its row, so that it is found without decoding: [`EXTERNAL`], [`LISTED`] or 0.
pub fn flag(event: &Event) -> u64 {
    match event {
        event if event.is_external() => EXTERNAL,
        Event::Started { delegation, .. } if delegation.style == DelegationStyle::Dispatch => LISTED,
        _ => 0,
    }
}

/// Definitions that an event refers to. They stay in the store as long as any session of the tree does.
pub fn definitions(event: &Event) -> impl Iterator<Item = Hash> {
    let hashes = match event {
        Event::Started { agent, grant, .. } | Event::Delegated { agent, grant, .. } => {
            [Some(*agent), Some(grant.authority)]
        }
        _ => [None, None],
    };
    hashes.into_iter().flatten()
}

/// Content that an edit leads to, if the event changes a file. [`Store::has_edit`](crate::store::Store::has_edit) knows it
/// even after the session was removed.
pub fn edit(event: &Event) -> Option<Hash> {
    match event {
        Event::ToolStarted { before, after, .. } if before != after => *after,
        _ => None,
    }
}

/// Refuses events that the given kind of append may not contain. A store checks this before anything else.
pub fn check_external(append: &Append) -> Result<(), StoreError> {
    if append.lease.is_some() && matches!(append.expect, Expect::Length(_)) {
        return Ok(());
    }
    match append.events.iter().find(|event| !event.is_external()) {
        Some(event) => Err(StoreError::LeaseRequired { session: append.session.clone(), kind: event.kind() }),
        None => Ok(()),
    }
}

/// Splits a row into events for [`decode`]. The JSON written here contains no line feed.
pub fn lines(body: &[u8]) -> Result<Split<'_, char>, DecodeError> {
    // One check of the whole text saves a check per string.
    let text = std::str::from_utf8(body).map_err(|error| DecodeError::Damaged(error.to_string()))?;
    Ok(text.split('\n'))
}

/// Refuses events in a newer version of the log format.
pub fn check_version(v: u64) -> Result<(), DecodeError> {
    if v > u64::from(VERSION) {
        return Err(DecodeError::Newer(format!("event format version {v}")));
    }
    Ok(())
}

/// Decodes an event. Texts stored separately are still missing. See [`hydrate`].
pub fn decode(text: &str, v: u64) -> Result<Event, DecodeError> {
    check_version(v)?;
    serde_json::from_str(text).map_err(|error| explain(text, &error))
}

/// Distinguishes bytes of a newer version from damaged ones. The checksum matched, so an unknown name was
/// introduced by a newer version. It may be a field that narrows a grant.
fn explain(text: &str, error: &serde_json::Error) -> DecodeError {
    #[derive(Deserialize)]
    struct Tagged {
        r#type: String,
    }
    let message = cause(error);
    match serde_json::from_str::<Tagged>(text) {
        Ok(tagged) if !TYPES.contains(&tagged.r#type.as_str()) => {
            DecodeError::Newer(format!("event type `{}`", tagged.r#type))
        }
        Ok(tagged) if message.contains("unknown field") || message.contains("unknown variant") => {
            DecodeError::Newer(format!("{message} in a `{}` event", tagged.r#type))
        }
        _ => DecodeError::Damaged(message),
    }
}

/// Cause of a JSON error, without the names of Rust types.
pub(in crate::store) fn cause(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    let types = [", expected struct ", ", expected enum ", ", expected internally tagged enum "];
    if let Some(at) = types.iter().find_map(|names| text.find(names)) {
        text.truncate(at);
    }
    text
}

/// Restores the texts that [`Encoded::push`] stored separately. `find` returns the content with a hash.
pub fn hydrate<E: From<DecodeError>>(
    event: &mut Event,
    find: &mut dyn FnMut(Hash) -> Result<Option<Arc<str>>, E>,
) -> Result<(), E> {
    // Most events have no long text. They are short, and visiting their few texts costs almost nothing.
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

/// Checksum of a row, with the `seq` of its last event. It does not cover the position, which the store assigns. Eight bytes are enough against
/// accidental damage, which is all it protects from.
pub fn checksum(session: &str, seq: u64, at: u64, v: u64, body: &[u8]) -> [u8; 8] {
    checksum_with_position(session, seq, 0, at, v, body)
}

/// Checksum of a record with its position. Earlier versions wrote it to SQLite files.
pub fn checksum_with_position(session: &str, seq: u64, pos: u64, at: u64, v: u64, body: &[u8]) -> [u8; 8] {
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
