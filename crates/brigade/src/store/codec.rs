//! Facts as bytes: JSON with long texts put aside, and a checksum over all that a record says.

use std::ops::Range;
use std::sync::Arc;

use brigade_core::event::{TYPES, VERSION};
use brigade_core::text::{Aside, INLINE_BYTES};
use brigade_core::{Event, Face, Hash, SessionId, Text};
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
    /// All facts, one after the other: a buffer for each would be moved several times while it grows.
    bodies: Vec<u8>,
    facts: Vec<Place>,
    /// Contents to keep: definitions that came along and texts that are too long for a fact.
    pub(super) blobs: Vec<(Hash, Arc<str>)>,
    /// Definitions that the facts name, whether or not they are among the blobs.
    pub(super) definitions: Vec<Hash>,
    /// Long texts of the facts.
    pub(super) texts: Vec<Hash>,
}

/// Where a fact is among the bodies.
#[derive(Debug)]
struct Place {
    body: Range<usize>,
    mark: u64,
}

/// One fact, ready to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact<'a> {
    pub(super) body: &'a [u8],
    pub(super) mark: u64,
}

/// About how many bytes a fact has.
const FACT_BYTES: usize = 512;

impl Encoded {
    /// Room for this many facts.
    pub(super) fn with_room(facts: usize) -> Encoded {
        let bodies = Vec::with_capacity(facts * FACT_BYTES);
        Encoded { bodies, facts: Vec::with_capacity(facts), ..Encoded::default() }
    }

    /// The facts in their order.
    pub(super) fn facts(&self) -> impl ExactSizeIterator<Item = Fact<'_>> {
        let fact = |Place { body, mark }: &Place| Fact {
            body: self.bodies.get(body.clone()).unwrap_or_default(),
            mark: *mark,
        };
        self.facts.iter().map(fact)
    }

    /// Content that comes along with the facts.
    pub(super) fn keep(&mut self, content: Arc<str>) {
        let hash = Hash::of(content.as_bytes());
        self.definitions.push(hash);
        self.blobs.push((hash, content));
    }

    /// Adds a fact.
    pub(super) fn push(&mut self, event: &Event) -> Result<(), serde_json::Error> {
        self.definitions.extend(definitions(event));
        let start = self.bodies.len();
        serde_json::to_writer(&mut self.bodies, event)?;
        // A text is never longer than its JSON, so short facts, nearly all of them, are done here without a copy.
        if self.bodies.len() - start > INLINE_BYTES {
            let mut event = event.clone();
            let mut spilled = false;
            event.texts_mut(&mut |text| {
                if let Text::Whole(whole) = text
                    && whole.len() > INLINE_BYTES
                {
                    let hash = Hash::of(whole.as_bytes());
                    self.texts.push(hash);
                    self.blobs.push((hash, whole.clone()));
                    *text = Text::Blob(Box::new(Aside { blob: hash, bytes: whole.len() as u64 }));
                    spilled = true;
                }
            });
            if spilled {
                self.bodies.truncate(start);
                serde_json::to_writer(&mut self.bodies, &event)?;
            }
        }
        self.facts.push(Place { body: start..self.bodies.len(), mark: mark(event) });
        Ok(())
    }
}

/// How a fact is marked in its row, so that it is found without being read: 1 for words from outside, 2 for the
/// beginning of a session that people find in their history by itself.
pub(super) fn mark(event: &Event) -> u64 {
    match event {
        event if event.is_outside_word() => 1,
        Event::Started { delegation, .. } if delegation.face == Face::Dispatch => 2,
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

/// Refuses facts that may not be appended the way `append` wants to.
pub(super) fn check_outside(append: &Append) -> Result<(), StoreError> {
    if append.lease.is_some() && matches!(append.expect, Expect::Length(_)) {
        return Ok(());
    }
    match append.events.iter().find(|event| !event.is_outside_word()) {
        Some(event) => Err(StoreError::NotOutside { session: append.session.clone(), kind: event.kind() }),
        None => Ok(()),
    }
}

/// A fact from its bytes. Texts that were put aside are still aside; see [`hydrate`].
pub(super) fn decode(body: &[u8], v: u64) -> Result<Event, DecodeError> {
    if v > u64::from(VERSION) {
        return Err(DecodeError::Newer(format!("version {v} of the log")));
    }
    // Checked as a whole, the text need not be checked string by string.
    let text = std::str::from_utf8(body).map_err(|error| DecodeError::Damaged(error.to_string()))?;
    serde_json::from_str(text).map_err(|error| explain(body, &error))
}

/// Tells what a newer version wrote from what nobody wrote. The checksum held, so an unknown name is a name that this
/// version has yet to learn: above all a field of a grant, which would narrow it.
fn explain(body: &[u8], error: &serde_json::Error) -> DecodeError {
    #[derive(Deserialize)]
    struct Tagged {
        r#type: String,
    }
    let message = error.to_string();
    match serde_json::from_slice::<Tagged>(body) {
        Ok(tagged) if !TYPES.contains(&tagged.r#type.as_str()) => {
            DecodeError::Newer(format!("the event type `{}`", tagged.r#type))
        }
        Ok(tagged) if message.contains("unknown field") || message.contains("unknown variant") => {
            DecodeError::Newer(format!("{message} in a `{}`", tagged.r#type))
        }
        _ => DecodeError::Damaged(message),
    }
}

/// Puts the texts back that [`Encoded::push`] put aside.
pub(super) fn hydrate<E: From<DecodeError>>(
    event: &mut Event,
    find: &mut dyn FnMut(Hash) -> Result<Option<Arc<str>>, E>,
) -> Result<(), E> {
    // Most facts have no long text; they are short themselves, and visiting their few texts costs next to nothing.
    let mut fault = Ok(());
    event.texts_mut(&mut |text| {
        let Text::Blob(aside) = text else { return };
        let blob = aside.blob;
        if fault.is_err() {
            return;
        }
        match find(blob) {
            Ok(Some(content)) if Hash::of(content.as_bytes()) == blob => *text = Text::Whole(content),
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
