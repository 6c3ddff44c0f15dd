//! What agents remember from one session to the next: `memory_put`, `memory_get` and `memory_search`.
//!
//! Entries are in a SQLite file of their own, which any number of processes use at once. Each says who stored it and
//! when. What an entry says is data: whoever reads it is told so, and the frame around it cannot be imitated by the
//! text inside.

mod error;
mod file;
mod render;
mod snippet;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brigade_core::event::Effect;
use brigade_core::message::Category;
use brigade_core::{CallId, Hash, SessionId, ToolOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::files::{blocking, escape_controls};
use super::{Tool, ToolContext, Toolbox};

pub use error::MemoryError;
use file::MemoryFile;

/// The names of the tools.
pub const TOOLS: [&str; 3] = [MemoryPut::NAME, MemoryGet::NAME, MemorySearch::NAME];
/// The longest text of an entry.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The longest key, in characters.
pub const MAX_KEY_CHARACTERS: usize = 128;
/// The most entries that a search returns.
pub const MAX_RESULTS: usize = 20;
const MAX_TAGS: usize = 16;
const MAX_TAG_CHARACTERS: usize = 64;
const DEFAULT_RESULTS: usize = 5;
/// Waiting for other processes is part of it.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The memory that agents share. Cheap to clone; all clones use one connection.
#[derive(Debug, Clone)]
pub struct Memory {
    file: Arc<MemoryFile>,
}

/// What is to be remembered.
#[derive(Debug, Clone, Default)]
pub struct NewEntry {
    /// The name of the entry; derived from the text where absent.
    pub key: Option<String>,
    /// What it says.
    pub text: String,
    /// Words that it can be found by.
    pub tags: Vec<String>,
}

/// What is remembered under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The name of the entry.
    pub key: String,
    /// What it says: all of it, or of a search the part that fits.
    pub text: String,
    /// Words that it can be found by.
    pub tags: Vec<String>,
    /// The session that stored it.
    pub session: String,
    /// When it was stored: UTC, as `2026-01-31T12:00:00Z`.
    pub stored_at: String,
}

/// What became of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutResult {
    /// The key that it can be read by.
    pub key: String,
    /// Whether another text stood there before.
    pub replaced: Replaced,
}

/// Whether an entry took the place of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// It is new, or said the same before.
    Nothing,
    /// It said something else before.
    DifferentText,
}

impl Memory {
    /// Opens the file, and makes it where it is missing.
    pub fn open(path: &Path) -> Result<Memory, MemoryError> {
        let memory = Memory::at(path);
        memory.file.open_or_create()?;
        Ok(memory)
    }

    /// The memory in this file, which is opened when it is first used and made when something is first stored. What
    /// is wrong with it is then said to the agent that wants to use it.
    pub fn at(path: &Path) -> Memory {
        Memory { file: Arc::new(MemoryFile::new(path)) }
    }

    /// Stores a note; one of the same key is replaced. The same call of a session stores the same note only once,
    /// also where another session has replaced it since.
    pub fn put(&self, entry: NewEntry, session: &SessionId, call: CallId) -> Result<PutResult, MemoryError> {
        let entry = validate(entry)?;
        self.file.put(&entry, session, call)
    }

    /// The entry of this key.
    pub fn get(&self, key: &str) -> Result<Option<MemoryEntry>, MemoryError> {
        self.file.get(key.trim())
    }

    /// The entries in which words of the query occur, best first. Any text is a query.
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<MemoryEntry>, MemoryError> {
        self.file.search(query, limit.min(MAX_RESULTS))
    }
}

impl Toolbox {
    /// Adds the tools of a memory.
    pub fn with_memory(self, memory: Memory) -> Toolbox {
        self.with(MemoryPut(memory.clone())).with(MemoryGet(memory.clone())).with(MemorySearch(memory))
    }
}

/// A note that may be stored.
struct ValidEntry {
    key: String,
    text: String,
    tags: Vec<String>,
}

fn validate(entry: NewEntry) -> Result<ValidEntry, MemoryError> {
    let unfit = |problem: String| Err(MemoryError::InvalidEntry(problem));
    if entry.text.trim().is_empty() {
        return unfit("the text is empty; say what is to be remembered".to_owned());
    }
    if entry.text.len() > MAX_TEXT_BYTES {
        return unfit(format!(
            "the text has {} bytes, and an entry holds at most {MAX_TEXT_BYTES}; store what matters, or several \
             entries",
            entry.text.len()
        ));
    }
    let key = match entry.key {
        Some(key) => key.trim().to_owned(),
        None => derived_key(&entry.text),
    };
    if key.is_empty() || key.chars().count() > MAX_KEY_CHARACTERS || key.contains(char::is_control) {
        return unfit(format!("the key has to be one line of 1 to {MAX_KEY_CHARACTERS} characters"));
    }
    let tags: Vec<String> =
        entry.tags.iter().map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
    let unfit_tag = |tag: &String| tag.chars().count() > MAX_TAG_CHARACTERS || tag.contains(char::is_control);
    if tags.len() > MAX_TAGS || tags.iter().any(unfit_tag) {
        return unfit(format!(
            "there may be {MAX_TAGS} tags, each one line of at most {MAX_TAG_CHARACTERS} characters"
        ));
    }
    Ok(ValidEntry { key, text: entry.text, tags })
}

/// The key of a text without one: equal texts are one entry.
fn derived_key(text: &str) -> String {
    let hash = Hash::of(text.as_bytes()).to_string();
    format!("note-{}", brigade_core::text::truncate_bytes(&hash, 16))
}

struct MemoryPut(Memory);
struct MemoryGet(Memory);
struct MemorySearch(Memory);

/// The arguments of `memory_put`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PutInput {
    /// A short name to read it by, one line; an entry of this name is replaced (default: made from the text)
    #[serde(default)]
    key: Option<String>,
    /// What to remember, at most 64 KB
    text: String,
    /// Words to find it by
    #[serde(default)]
    tags: Option<Vec<String>>,
}

/// The arguments of `memory_get`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetInput {
    /// The name of the entry
    key: String,
}

/// The arguments of `memory_search`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchInput {
    /// Words to look for; entries with more of them come first
    query: String,
    /// How many entries to return, at most 20 (default: 5)
    #[serde(default)]
    limit: Option<u32>,
}

impl Tool for MemoryPut {
    const NAME: &'static str = "memory_put";
    type Input = PutInput;

    fn description(&self) -> Cow<'static, str> {
        "Remember a text for later sessions, and for other agents: a decision, a finding, what the person prefers. \
         Never store secrets. It is found again with memory_search, or read by its key with memory_get."
            .into()
    }

    fn category(&self) -> Category {
        Category::Memory
    }

    fn effect(&self) -> Effect {
        Effect::Keyed
    }

    async fn run(&self, input: PutInput, context: &ToolContext) -> ToolOutput {
        let (memory, session, call) = (self.0.clone(), context.session.clone(), context.call);
        let entry = NewEntry { key: input.key, text: input.text, tags: input.tags.unwrap_or_default() };
        blocking(TIME_LIMIT, move |_| match memory.put(entry, &session, call) {
            Ok(stored) => ToolOutput::ok(render::put_result(&stored)),
            Err(error) => ToolOutput::error(error.to_string()),
        })
        .await
    }
}

impl Tool for MemoryGet {
    const NAME: &'static str = "memory_get";
    type Input = GetInput;

    fn description(&self) -> Cow<'static, str> {
        "Read one remembered entry whole, by its key, with the session that stored it and when.".into()
    }

    fn category(&self) -> Category {
        Category::Memory
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    async fn run(&self, input: GetInput, _context: &ToolContext) -> ToolOutput {
        let memory = self.0.clone();
        blocking(TIME_LIMIT, move |_| match memory.get(&input.key) {
            Ok(Some(entry)) => ToolOutput::ok(render::entry(&entry)),
            Ok(None) => {
                let key = escape_controls(brigade_core::text::truncate_bytes(&input.key, 200));
                ToolOutput::error(format!(
                    "Nothing is remembered under `{key}`; memory_search finds entries by words"
                ))
            }
            Err(error) => ToolOutput::error(error.to_string()),
        })
        .await
    }
}

impl Tool for MemorySearch {
    const NAME: &'static str = "memory_search";
    type Input = SearchInput;

    fn description(&self) -> Cow<'static, str> {
        "Search what was remembered, in this and in earlier sessions. Each entry is shown with its key, who stored it \
         and when, and the part that fits; memory_get reads it whole."
            .into()
    }

    fn category(&self) -> Category {
        Category::Memory
    }

    fn effect(&self) -> Effect {
        Effect::Pure
    }

    async fn run(&self, input: SearchInput, _context: &ToolContext) -> ToolOutput {
        let memory = self.0.clone();
        let limit = input.limit.map_or(DEFAULT_RESULTS, |limit| limit.max(1) as usize);
        blocking(TIME_LIMIT, move |_| match memory.search(&input.query, limit) {
            Ok(found) => ToolOutput::ok(render::search_results(&found)),
            Err(error) => ToolOutput::error(error.to_string()),
        })
        .await
    }
}
