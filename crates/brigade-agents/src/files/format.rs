//! Supported formats of agent files and their detection.

use std::ffi::OsStr;
use std::path::{Component, Path};

use serde::Serialize;

/// Program that defines the format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// `<id>/AGENT.md`, Brigade's own format.
    Brigade,
    /// `<id>/AGENT.md` with an `llm` section.
    Picklebot,
    /// `<id>/AGENTS.md`.
    Deepagents,
    /// Markdown of Claude Code, and any other Markdown that looks like it.
    Claude,
    /// TOML of Codex.
    Codex,
    /// Markdown or JSON of OpenCode.
    Opencode,
    /// Markdown of Gemini CLI.
    Gemini,
    /// goose recipe.
    Goose,
    /// Markdown of Cursor.
    Cursor,
    /// Factory droid.
    Factory,
    /// Markdown of Copilot: `*.agent.md`, and any Markdown file in `.github/agents` and `.copilot/agents`.
    Copilot,
}

/// Syntax of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    Markdown,
    Toml,
    Yaml,
    Json,
}

impl Format {
    /// Returns the name of the format.
    pub fn word(self) -> &'static str {
        match self {
            Format::Brigade => "brigade",
            Format::Picklebot => "picklebot",
            Format::Deepagents => "deepagents",
            Format::Claude => "claude",
            Format::Codex => "codex",
            Format::Opencode => "opencode",
            Format::Gemini => "gemini",
            Format::Goose => "goose",
            Format::Cursor => "cursor",
            Format::Factory => "factory",
            Format::Copilot => "copilot",
        }
    }

    /// Detects the format from the path of a file; its content may still change the result.
    pub(super) fn of(path: &Path) -> Format {
        let name = file_name(path);
        let within = |folder: &str| path.components().any(|part| part == Component::Normal(folder.as_ref()));
        let parts: Vec<&OsStr> = path.iter().collect();
        let below = |folder: &str| parts.windows(2).any(|pair| pair[0] == folder && pair[1] == "agents");
        match Syntax::of(path) {
            Some(Syntax::Toml) => return Format::Codex,
            Some(Syntax::Yaml) => return Format::Goose,
            Some(Syntax::Json) if within(".goose") => return Format::Goose,
            Some(Syntax::Json) => return Format::Opencode,
            Some(Syntax::Markdown) | None => {}
        }
        match name {
            "AGENT.md" => Format::Brigade,
            "AGENTS.md" => Format::Deepagents,
            _ if name.ends_with(".agent.md") || below(".github") || below(".copilot") => Format::Copilot,
            _ if within(".opencode") || within("opencode") => Format::Opencode,
            _ if within(".gemini") => Format::Gemini,
            _ if within(".cursor") => Format::Cursor,
            _ if within(".factory") || within("droids") => Format::Factory,
            _ => Format::Claude,
        }
    }

    /// Whether the id is the folder name.
    pub(super) fn is_folder_based(self) -> bool {
        matches!(self, Format::Brigade | Format::Picklebot | Format::Deepagents)
    }

    /// Whether the defaults of contract C apply.
    pub(super) fn is_native(self) -> bool {
        matches!(self, Format::Brigade | Format::Picklebot)
    }
}

impl Syntax {
    /// Returns the syntax of a file, if it can be a definition.
    pub(super) fn of(path: &Path) -> Option<Syntax> {
        match path.extension()?.to_str()? {
            "md" | "markdown" => Some(Syntax::Markdown),
            "toml" => Some(Syntax::Toml),
            "yaml" | "yml" => Some(Syntax::Yaml),
            "json" => Some(Syntax::Json),
            _ => None,
        }
    }
}

pub(super) fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Returns the file name without the suffixes that mark its format.
pub(super) fn stem(path: &Path) -> &str {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.strip_suffix(".agent").unwrap_or(stem)
}
