//! Ids of sessions and calls, and content hashes.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

/// Length of a root session's id: 128 bits in base32.
const ROOT_LENGTH: usize = 26;
/// Maximum length of an id. A tree of the default depth stays far below.
const MAX_LENGTH: usize = 1024;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";

/// Id of a session. The id of a child is its parent's id and `.<turn>-<index>[-<k>]`: the path is the tree.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct SessionId(Arc<str>);

/// Reason why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text does not have the format of a session id.
    #[error(
        "'{0}' is not a session id: expected 26 characters of a-z and 2-7, then `.turn-index` for each level of sub-agents. List the ids with `brigade sessions list`"
    )]
    Session(String),
    /// The text does not have the format of a call id.
    #[error("'{0}' is not a call id: expected a turn and an index, such as `3-0`")]
    Call(String),
    /// The text is not a content hash.
    #[error("'{0}' is not a content hash: expected 64 hexadecimal digits")]
    Hash(String),
}

impl SessionId {
    /// Creates a root id from 128 random bits of the caller.
    pub fn root(bits: u128) -> SessionId {
        let digit = |position: usize| {
            let shift = 5 * (ROOT_LENGTH - 1 - position);
            char::from(ALPHABET[(bits >> shift) as usize & 31])
        };
        SessionId((0..ROOT_LENGTH).map(digit).collect::<String>().into())
    }

    /// Returns the id of the child that `call` of this session starts.
    pub fn child(&self, call: CallId) -> SessionId {
        SessionId(format!("{}.{call}", self.0).into())
    }

    /// Returns the id of one of several children that `call` of this session starts.
    pub fn child_of_several(&self, call: CallId, index: usize) -> SessionId {
        SessionId(format!("{}.{call}-{index}", self.0).into())
    }

    /// Returns the call that started this session, and the index of this child; `None` for a root.
    pub fn call(&self) -> Option<(CallId, usize)> {
        let (_, segment) = self.0.rsplit_once('.')?;
        match segment.match_indices('-').nth(1) {
            Some((at, _)) => Some((segment[..at].parse().ok()?, segment[at + 1..].parse().ok()?)),
            None => Some((segment.parse().ok()?, 0)),
        }
    }

    /// Returns the root of the tree that this session was created in.
    pub fn root_id(&self) -> SessionId {
        if self.is_root() { self.clone() } else { SessionId(self.root_str().into()) }
    }

    /// Returns the id of the root, as text.
    pub fn root_str(&self) -> &str {
        self.0.split_once('.').map_or(&self.0, |(root, _)| root)
    }

    /// Whether the session is a root, that is, was not delegated.
    pub fn is_root(&self) -> bool {
        !self.0.contains('.')
    }

    /// Returns the session that delegated this one when it was created.
    pub fn parent(&self) -> Option<SessionId> {
        self.0.rsplit_once('.').map(|(parent, _)| SessionId(parent.into()))
    }

    /// Whether `other` is this session or a descendant.
    pub fn contains(&self, other: &SessionId) -> bool {
        other.0.strip_prefix(&*self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_segment(segment: &str) -> bool {
    let parts: Vec<&str> = segment.split('-').collect();
    matches!(parts.len(), 2 | 3)
        && parts
            .iter()
            .all(|part| !part.is_empty() && part.len() <= 10 && part.bytes().all(|b| b.is_ascii_digit()))
}

/// Ids are compared, ordered and hashed like their texts.
impl Borrow<str> for SessionId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for SessionId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<SessionId, IdError> {
        let refuse = || IdError::Session(text.chars().filter(|c| !c.is_control()).take(80).collect());
        if text.len() > MAX_LENGTH {
            return Err(refuse());
        }
        let mut segments = text.split('.');
        let root = segments.next().unwrap_or_default();
        let root_fits = root.len() == ROOT_LENGTH && root.bytes().all(|byte| ALPHABET.contains(&byte));
        if root_fits && segments.all(is_segment) { Ok(SessionId(text.into())) } else { Err(refuse()) }
    }
}

impl TryFrom<String> for SessionId {
    type Error = IdError;
    fn try_from(text: String) -> Result<SessionId, IdError> {
        text.parse()
    }
}

impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Tool call of a session: the turn that made it and its position in that reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct CallId {
    /// Turn whose reply contains the call, from 1.
    pub turn: u32,
    /// Position of the call in that reply, from 0.
    pub index: u32,
}

impl FromStr for CallId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<CallId, IdError> {
        let refuse = || IdError::Call(text.chars().filter(|c| !c.is_control()).take(40).collect());
        let (turn, index) = text.split_once('-').ok_or_else(refuse)?;
        let call =
            CallId { turn: turn.parse().map_err(|_| refuse())?, index: index.parse().map_err(|_| refuse())? };
        // One call has exactly one spelling: no sign, no leading zero.
        if call.to_string() == text { Ok(call) } else { Err(refuse()) }
    }
}

impl TryFrom<String> for CallId {
    type Error = IdError;
    fn try_from(text: String) -> Result<CallId, IdError> {
        text.parse()
    }
}

impl Serialize for CallId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.turn, self.index)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Content hash; equal hashes mean equal bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Hash([u8; 32]);

impl Hash {
    /// Hashes these bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }

    /// Starts a hash of content that arrives in pieces.
    pub fn builder() -> HashBuilder {
        HashBuilder(blake3::Hasher::new())
    }

    /// Hashes this hash followed by more content: each link of a chain costs the same.
    pub fn chain(&self, kind: &str, parts: &[&[u8]]) -> Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(kind.as_bytes());
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Hash(*hasher.finalize().as_bytes())
    }

    /// Returns the raw bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Formats the hash in hexadecimal digits. Most events contain a hash, so this avoids an intermediate string.
    fn digits<'a>(&self, room: &'a mut [u8; 64]) -> &'a str {
        let digit = |half: u8| HEXADECIMAL[usize::from(half & 15)];
        for ([high, low], byte) in room.as_chunks_mut().0.iter_mut().zip(self.0) {
            (*high, *low) = (digit(byte >> 4), digit(byte));
        }
        std::str::from_utf8(room).unwrap_or_default()
    }
}

/// Hash of content that arrives in pieces. It equals [`Hash::of`] of all of them together.
#[derive(Debug, Clone)]
pub struct HashBuilder(blake3::Hasher);

impl HashBuilder {
    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all pieces so far.
    pub fn hash(&self) -> Hash {
        Hash(*self.0.finalize().as_bytes())
    }
}

impl FromStr for Hash {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Hash, IdError> {
        let refuse = || IdError::Hash(text.chars().filter(|c| !c.is_control()).take(80).collect());
        blake3::Hash::from_hex(text).map(|hash| Hash(*hash.as_bytes())).map_err(|_| refuse())
    }
}

impl TryFrom<String> for Hash {
    type Error = IdError;
    fn try_from(text: String) -> Result<Hash, IdError> {
        text.parse()
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.digits(&mut [0; 64]))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.digits(&mut [0; 64]))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", &self.to_string()[..12])
    }
}

#[cfg(test)]
mod tests;
