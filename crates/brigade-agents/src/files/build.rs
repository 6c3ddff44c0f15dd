//! Builds an agent from the keys of a file, with a note on each key.

use std::path::Path;

use brigade_base::Secret;
use brigade_core::amount::{self, InvalidAmount};
use brigade_core::{Agent, Backend, Budget};
use serde_json::Value;

use super::document::{Document, Field};
use super::format::{Format, Syntax};
use super::keys::{self, Key};
use super::problem::{DefinitionError, KeyError, KeyNote, KeyStatus};
use super::restrictions::Restrictions;
use super::{id, model, value};

/// Result of building the agent of a file.
pub(super) struct BuildResult {
    pub(super) notes: Vec<KeyNote>,
    pub(super) outcome: Result<(Agent, Option<Secret>), DefinitionError>,
}

/// Maximum length of a displayed name.
const MAX_NAME_CHARS: usize = 64;

/// Agent under construction.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) agent: Agent,
    api_key: Option<Secret>,
    display_name: Option<String>,
    /// Prompts, each with the key that contains it.
    prompts: Vec<(String, String)>,
    pub(super) restrictions: Restrictions,
    tokens: Option<u64>,
    usd: Option<u64>,
    names_provider: bool,
    seen: Vec<Key>,
    pub(super) notes: Vec<KeyNote>,
}

/// Status of a key and a note about it, or the reason why it is refused.
pub(super) type KeyResult = Result<(KeyStatus, String), KeyError>;

pub(super) fn honoured() -> KeyResult {
    Ok((KeyStatus::Honoured, String::new()))
}

/// Builds the agent that a document describes.
pub(super) fn build(document: Document, file: &Path, format: Format, entry: Option<&str>) -> BuildResult {
    let mut builder = Builder {
        names_provider: document.get("provider").is_some() || format == Format::Goose,
        ..Builder::default()
    };
    if let Some(cause) = &document.repaired {
        let text = format!("{cause}; read line by line instead");
        builder.note("frontmatter", None, KeyStatus::Translated, text);
    }
    for field in &document.fields {
        builder.field(field, &field.key, format);
    }
    builder.finish(document, file, format, entry)
}

impl Builder {
    fn note(&mut self, key: &str, line: Option<u32>, status: KeyStatus, text: String) {
        let key = key.chars().take(80).collect();
        self.notes.push(KeyNote { key, line, status, text });
    }

    pub(super) fn refuse(&mut self, key: &str, line: Option<u32>, cause: String) {
        self.note(key, line, KeyStatus::Refused, cause);
    }

    /// Reads one key; `shown` is its name in notes.
    fn field(&mut self, field: &Field, shown: &str, format: Format) {
        let name = field.key.as_str();
        let Some(key) = keys::lookup(name) else {
            match keys::suggest_authority_key(name) {
                Some(known) => {
                    let cause = format!("is not a known key. Did you mean `{known}`? Correct or remove it.");
                    self.refuse(shown, field.line, cause);
                }
                None => self.note(shown, field.line, KeyStatus::Ignored, "unknown key".to_owned()),
            }
            return;
        };
        if self.is_duplicate(key) {
            match keys::is_authority_key(name) {
                true => self.refuse(shown, field.line, "is defined twice, in two spellings".to_owned()),
                false => {
                    self.note(
                        shown,
                        field.line,
                        KeyStatus::Ignored,
                        "already defined with another spelling".to_owned(),
                    );
                }
            }
            return;
        }
        if key == Key::Section {
            return self.section(field, format);
        }
        match self.apply_key(key, field, format) {
            Ok((status, text)) => self.note(shown, field.line, status, text),
            Err(cause) => self.refuse(shown, field.line, cause.to_string()),
        }
    }

    fn is_duplicate(&mut self, key: Key) -> bool {
        let may_repeat = matches!(key, Key::Ignored(_) | Key::Prompt | Key::Section | Key::Permission);
        let seen = !may_repeat && self.seen.contains(&key);
        self.seen.push(key);
        seen
    }

    /// Reads a section with model settings.
    fn section(&mut self, field: &Field, format: Format) {
        let Value::Object(map) = &field.value else {
            return self.refuse(&field.key, field.line, "must be a mapping of keys to values".to_owned());
        };
        self.names_provider = true;
        for (key, value) in map {
            let shown = format!("{}.{key}", field.key);
            let inner = Field { key: key.clone(), line: field.line, value: value.clone() };
            self.field(&inner, &shown, format);
        }
    }

    fn apply_key(&mut self, key: Key, field: &Field, format: Format) -> KeyResult {
        let value = &field.value;
        match key {
            Key::Name => self.agent.name = value::text(value)?.unwrap_or_default(),
            Key::DisplayName => self.display_name = value::text(value)?,
            Key::Description => return self.description(value),
            Key::Prompt => return self.prompt(field),
            Key::Model => return self.model(value, format),
            Key::Fallbacks => self.agent.fallbacks = value::names(value)?,
            Key::Provider => self.agent.provider = value::text(value)?.filter(|name| !name.is_empty()),
            Key::Credential => {
                self.api_key = value::text(value)?.filter(|key| !key.is_empty()).map(Secret::new)
            }
            Key::ApiBase => self.agent.api_base = value::text(value)?.filter(|base| !base.is_empty()),
            Key::Temperature => self.agent.temperature = Some(value::temperature(value)?),
            Key::MaxTokens => self.agent.max_tokens = Some(value::count(value)?),
            Key::Tokens => self.tokens = Some(amount::tokens_from_value(value).map_err(amount_error)?),
            Key::Usd => self.usd = Some(amount::dollars_from_value(value).map_err(amount_error)?),
            Key::Budget => self.budget(value)?,
            Key::MaxTurns => self.agent.max_turns = Some(value::small_count(value)?),
            Key::Timeout => self.agent.timeout = Some(value::duration(value)?),
            Key::TimeoutMinutes => self.agent.timeout = Some(value::minutes(value)?),
            Key::MaxConcurrency => self.agent.max_concurrency = Some(value::small_count(value)?),
            Key::Acp => {
                let place = value::text(value)?.filter(|place| !place.is_empty());
                let place =
                    place.ok_or("is empty. Set it to a server from `acp.servers`, or to `SERVER/AGENT`.")?;
                self.agent.backend = Backend::Acp(place);
            }
            Key::AllowSkills => self.agent.allow_skills = value::flag(value)?,
            Key::IgnoreInstructions => self.agent.ignore_instructions = value::flag(value)?,
            Key::Tools => return self.tools(value, format),
            Key::Lend => return self.lend(value, format),
            Key::Deny => return self.deny(value),
            Key::DisallowedTools => return self.disallowed(value),
            Key::Permission => return self.permission(value),
            Key::PermissionMode => return self.permission_mode(value),
            Key::Sandbox => return self.sandbox(value),
            Key::SandboxMode => return self.sandbox_mode(value),
            Key::ApprovalPolicy => return self.approval_policy(value),
            Key::ReadOnly => return self.read_only(value),
            Key::Agents => return self.agents(value),
            Key::Mode => return self.mode(value, format),
            Key::Disable => return disable(value),
            Key::Kind => return kind(value),
            Key::Section => {}
            Key::Ignored(why) => return Ok((KeyStatus::Ignored, why.to_owned())),
        }
        honoured()
    }

    fn budget(&mut self, value: &Value) -> Result<(), KeyError> {
        let Value::Object(map) = value else {
            return Err("must be a mapping with `tokens` and `usd`".into());
        };
        for (key, value) in map {
            match key.as_str() {
                "tokens" => self.tokens = Some(amount::tokens_from_value(value).map_err(amount_error)?),
                "usd" => self.usd = Some(amount::dollars_from_value(value).map_err(amount_error)?),
                other => return Err(format!("has an unknown key '{other}'. Use `tokens` and `usd`.").into()),
            }
        }
        Ok(())
    }

    fn description(&mut self, value: &Value) -> KeyResult {
        let text = value::text(value)?.unwrap_or_default();
        let unescaped = text.replace("\\n", "\n").trim().to_owned();
        let is_same = unescaped == text;
        self.agent.description = unescaped;
        match is_same {
            true => honoured(),
            false => Ok((KeyStatus::Translated, "`\\n` is read as a line break".to_owned())),
        }
    }

    fn prompt(&mut self, field: &Field) -> KeyResult {
        let text = value::text(&field.value)?.unwrap_or_default();
        if text.starts_with("{file:") {
            return Err("refers to another file, which is not supported. Put the text here.".into());
        }
        self.prompts.push((field.key.clone(), text));
        honoured()
    }

    fn model(&mut self, value: &Value, format: Format) -> KeyResult {
        if value.is_array() {
            return Ok((KeyStatus::Ignored, "is a list of models; the parent's model is used".to_owned()));
        }
        let name = value::text(value)?.unwrap_or_default();
        let (model, status, text) = model::resolve_model(&name, format, self.names_provider);
        self.agent.model = model;
        Ok((status, text))
    }

    fn finish(mut self, document: Document, file: &Path, format: Format, entry: Option<&str>) -> BuildResult {
        self.resolve_name(file, format, entry);
        self.resolve_prompt(document.body, file, format);
        self.resolve_tools();
        self.agent.budget = Budget::of(self.tokens, self.usd);
        self.agent.mode = self.restrictions.mode;
        self.agent.sandbox = self.restrictions.sandbox;
        self.agent.deny = self.restrictions.deny.iter().cloned().collect();
        let refusal = self.notes.iter().find(|note| note.status == KeyStatus::Refused);
        let outcome = match refusal {
            Some(note) => {
                Err(DefinitionError { line: note.line, cause: format!("`{}` {}", note.key, note.text) })
            }
            None => Ok((self.agent, self.api_key)),
        };
        BuildResult { notes: self.notes, outcome }
    }

    fn resolve_name(&mut self, file: &Path, format: Format, entry: Option<&str>) {
        let given_name = entry.map(str::to_owned).unwrap_or_else(|| std::mem::take(&mut self.agent.name));
        let title = self.display_name.take().unwrap_or_default();
        let name = [&given_name, &title].into_iter().find(|name| !name.trim().is_empty()).cloned();
        match id::id(file, format, name.as_deref()) {
            Ok(id) => self.agent.id = id,
            Err(cause) => self.refuse("id", None, format!("is invalid: {cause}")),
        }
        if name.is_none() && format.is_native() {
            self.refuse("name", None, "is missing".to_owned());
        }
        if self.agent.description.is_empty() {
            match format {
                Format::Brigade => self.refuse("description", None, "is missing".to_owned()),
                _ => self.note(
                    "description",
                    None,
                    KeyStatus::Ignored,
                    "is missing; other agents cannot tell when to use this agent".to_owned(),
                ),
            }
        }
        let shown = if title.is_empty() { name.unwrap_or_else(|| self.agent.id.clone()) } else { title };
        self.agent.name = one_line(&shown);
    }

    /// Selects the prompt: the body, or the first key that contains one.
    fn resolve_prompt(&mut self, body: String, file: &Path, format: Format) {
        let mut prompts = std::mem::take(&mut self.prompts);
        prompts.retain(|(_, text)| !text.is_empty());
        // If there are instructions too, `prompt` is the first task.
        prompts.sort_by_key(|(key, _)| key == "prompt");
        let mut prompts = prompts.into_iter();
        let keyed = if body.is_empty() { prompts.next() } else { None };
        self.agent.prompt = keyed.map_or(body, |(_, text)| text);
        let rest: Vec<String> = prompts.map(|(key, _)| key).collect();
        for note in self.notes.iter_mut().filter(|note| rest.contains(&note.key)) {
            note.status = KeyStatus::Ignored;
            note.text = "another prompt takes precedence".to_owned();
        }
        if self.agent.prompt.is_empty() {
            // The settings of any program may be TOML or JSON, so a file without a prompt was not meant to be an
            // agent.
            match (format, Syntax::of(file)) {
                (_, Some(Syntax::Markdown)) => {
                    self.note("prompt", None, KeyStatus::Ignored, "is empty".to_owned())
                }
                (Format::Codex, _) => self.refuse("developer_instructions", None, "is missing".to_owned()),
                (Format::Goose, _) => self.refuse("instructions", None, "is missing".to_owned()),
                _ => self.refuse("prompt", None, "is missing".to_owned()),
            }
        }
        if format == Format::Picklebot {
            self.note_picklebot_features(file);
        }
    }

    /// Notes the features of its agent files that only Picklebot implements.
    fn note_picklebot_features(&mut self, file: &Path) {
        if self.agent.prompt.contains("{{") {
            self.note("{{…}}", None, KeyStatus::Ignored, "placeholders are not replaced".to_owned());
        }
        if file.with_file_name("SOUL.md").exists() {
            self.note("SOUL.md", None, KeyStatus::Ignored, "only `AGENT.md` is read".to_owned());
        }
    }
}

fn amount_error(error: InvalidAmount) -> KeyError {
    error.to_string().into()
}

fn disable(value: &Value) -> KeyResult {
    if value::flag(value)? { Err("disables this agent".into()) } else { honoured() }
}

fn kind(value: &Value) -> KeyResult {
    match value::text(value)?.as_deref() {
        Some("remote") => Err("is remote, which is not supported".into()),
        _ => Ok((KeyStatus::Ignored, "agents run locally".to_owned())),
    }
}

/// Formats a name for display: one line, without brackets that could imitate another speaker.
fn one_line(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_control() || matches!(c, '[' | ']') { ' ' } else { c }).collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    words.join(" ").chars().take(MAX_NAME_CHARS).collect()
}
