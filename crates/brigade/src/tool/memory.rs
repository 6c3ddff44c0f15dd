//! Memory that agents share across sessions: `memory_put`, `memory_get` and `memory_search`.
//!
//! Entries are stored in a separate SQLite file, which any number of processes use at once. Each entry records the
//! session that stored it and the time. The text of an entry is untrusted data: the reader is told so, and the text
//! cannot imitate the frame around it.

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

/// Names of the tools.
pub const TOOLS: [&str; 3] = [MemoryPut::NAME, MemoryGet::NAME, MemorySearch::NAME];
/// Maximum length of an entry's text.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Maximum length of a key, in characters.
pub const MAX_KEY_CHARACTERS: usize = 128;
/// Maximum number of search results.
pub const MAX_RESULTS: usize = 20;
const MAX_TAGS: usize = 16;
const MAX_TAG_CHARACTERS: usize = 64;
const DEFAULT_RESULTS: usize = 5;
/// Maximum duration of a call, including the wait for other processes.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Memory that agents share. Cheap to clone; all clones use one connection.
#[derive(Debug, Clone)]
pub struct Memory {
    file: Arc<MemoryFile>,
}

/// Entry to store.
#[derive(Debug, Clone, Default)]
pub struct NewEntry {
    /// Key of the entry; derived from the text if absent.
    pub key: Option<String>,
    /// Text of the entry.
    pub text: String,
    /// Words to find the entry by.
    pub tags: Vec<String>,
}

/// Stored entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// Key of the entry.
    pub key: String,
    /// Text of the entry: the whole text, or the matching part in search results.
    pub text: String,
    /// Words to find the entry by.
    pub tags: Vec<String>,
    /// Session that stored the entry.
    pub session: String,
    /// Time of storage: UTC, as `2026-01-31T12:00:00Z`.
    pub stored_at: String,
}

/// Result of storing an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutResult {
    /// Key of the stored entry.
    pub key: String,
    /// Whether a different text was replaced.
    pub replaced: Replaced,
}

/// Whether an entry replaced another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The entry is new, or had the same text before.
    Nothing,
    /// The entry had a different text before.
    DifferentText,
}

impl Memory {
    /// Opens the file and creates it if it is missing.
    pub fn open(path: &Path) -> Result<Memory, MemoryError> {
        let memory = Memory::at(path);
        memory.file.open_or_create()?;
        Ok(memory)
    }

    /// Uses the memory in this file. The file is opened at the first use and created when the first entry is
    /// stored. Problems with it are reported to the agent that uses it.
    pub fn at(path: &Path) -> Memory {
        Memory { file: Arc::new(MemoryFile::new(path)) }
    }

    /// Stores an entry and replaces one with the same key. The same call of a session stores its entry only once,
    /// even if another session has replaced it since.
    pub fn put(&self, entry: NewEntry, session: &SessionId, call: CallId) -> Result<PutResult, MemoryError> {
        let entry = validate(entry)?;
        self.file.put(&entry, session, call)
    }

    /// Returns the entry of this key.
    pub fn get(&self, key: &str) -> Result<Option<MemoryEntry>, MemoryError> {
        self.file.get(key.trim())
    }

    /// Returns the entries that contain words of the query, best match first. Any text is a valid query.
    pub fn search(&self, query: &str, limit: usize) -> Result<Vec<MemoryEntry>, MemoryError> {
        self.file.search(query, limit.min(MAX_RESULTS))
    }
}

impl Toolbox {
    /// Adds the memory tools.
    pub fn with_memory(self, memory: Memory) -> Toolbox {
        self.with(MemoryPut(memory.clone())).with(MemoryGet(memory.clone())).with(MemorySearch(memory))
    }
}

/// Entry that passed validation.
struct ValidEntry {
    key: String,
    text: String,
    tags: Vec<String>,
}

fn validate(entry: NewEntry) -> Result<ValidEntry, MemoryError> {
    let unfit = |problem: String| Err(MemoryError::InvalidEntry(problem));
    if entry.text.trim().is_empty() {
        return unfit("the text is empty. Give the text to store.".to_owned());
    }
    if entry.text.len() > MAX_TEXT_BYTES {
        return unfit(format!(
            "the text has {} bytes, more than the limit of {MAX_TEXT_BYTES} per entry. Shorten it, or store several \
             entries.",
            entry.text.len()
        ));
    }
    let key = match entry.key {
        Some(key) => key.trim().to_owned(),
        None => derived_key(&entry.text),
    };
    if key.is_empty() || key.chars().count() > MAX_KEY_CHARACTERS || key.contains(char::is_control) {
        return unfit(format!("the key must be one line of 1 to {MAX_KEY_CHARACTERS} characters"));
    }
    let tags: Vec<String> =
        entry.tags.iter().map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
    let unfit_tag = |tag: &String| tag.chars().count() > MAX_TAG_CHARACTERS || tag.contains(char::is_control);
    if tags.len() > MAX_TAGS || tags.iter().any(unfit_tag) {
        return unfit(format!(
            "at most {MAX_TAGS} tags are allowed, each one line of at most {MAX_TAG_CHARACTERS} characters"
        ));
    }
    Ok(ValidEntry { key, text: entry.text, tags })
}

/// Derives the key of a text without one: equal texts become one entry.
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
    /// Name; replaces an entry with this name
    key: Option<String>,
    /// At most 64 KiB
    text: String,
    /// Extra search words
    tags: Option<Vec<String>>,
}

/// The arguments of `memory_get`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetInput {
    /// Key of the entry
    key: String,
}

/// The arguments of `memory_search`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchInput {
    /// Search words
    query: String,
    /// 1 to 20 (default 5)
    limit: Option<u32>,
}

impl Tool for MemoryPut {
    const NAME: &'static str = "memory_put";
    type Input = PutInput;

    fn description(&self) -> Cow<'static, str> {
        "Store a note for later sessions: a decision, finding or preference. Never store secrets.".into()
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
        "Read one memory entry in full.".into()
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
                    "There is no memory entry `{key}`. Find entries with `memory_search`."
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
        "Search notes of all sessions. Returns keys and excerpts.".into()
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
