//! Files that need the user's approval in every mode: those that programs act upon, and those with secrets.
//!
//! Only names are compared here. A tool resolves links before the check, so that the name is the real one. Names are
//! compared as the most lenient file system compares them: case is ignored, and so are characters without a width.

use std::fmt;
use std::ops::Range;

use super::path::{NormalizedPath, PathRule, fold};
use crate::project_files::{self as lists, SecretName};

/// Protected paths that depend on the configuration and the place of the workspace. The default has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectedPaths {
    /// The home directory relative to the workspace, if the workspace contains it; `""` if they are the same.
    pub home: Option<String>,
    /// Files and directories that the configuration names, such as those of agents, relative to the workspace.
    pub configured: Vec<String>,
}

/// Reason why a file is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtectedKind {
    /// Instructions for agents.
    Instructions,
    /// Settings, agents or skills of an agent or editor.
    Settings,
    /// Configuration and hooks of git.
    Git,
    /// Start-up files of shells, and `~/.ssh`.
    StartUp,
    /// Agents, skills and programs that the configuration names.
    Configured,
    /// Secrets.
    Secret,
    /// Any file, because the workspace contains the home directory.
    Home,
}

/// Protected file, or the part of its path that makes it one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Protected {
    /// Name of the file or of the directory above it, as the call wrote it.
    pub name: String,
    /// Reason for the protection.
    pub kind: ProtectedKind,
}

impl fmt::Display for Protected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.kind {
            ProtectedKind::Instructions => write!(f, "{name} is an instruction file for agents"),
            ProtectedKind::Settings => write!(f, "{name} can name programs to run, or instruct agents"),
            ProtectedKind::Git => write!(f, "{name} can name programs that git runs"),
            ProtectedKind::StartUp => write!(f, "{name} can name programs that run when you log in"),
            ProtectedKind::Configured => write!(f, "{name} is named in the configuration of Brigade"),
            ProtectedKind::Secret => write!(f, "{name} can contain secrets"),
            ProtectedKind::Home => f.write_str("the workspace contains your home directory"),
        }
    }
}

/// Access to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileAccess {
    Read,
    Write,
}

/// Protection of one path.
pub(super) enum Protection {
    /// The path is not protected.
    None,
    /// The path needs approval. Each part has to be named by a rule that allows the access.
    Ask(Vec<Part>),
    /// File tools never write here.
    Refused,
}

/// Components of a path that make it protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    range: Range<usize>,
    kind: ProtectedKind,
}

impl Protection {
    /// Determines the protection of a path.
    pub(super) fn of(path: &NormalizedPath, access: FileAccess, place: &ProtectedPaths) -> Protection {
        let names: Vec<String> = path.text().split('/').map(comparable).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut parts = secrets(&names, place);
        if access == FileAccess::Write {
            let Some(git) = git_parts(&names) else { return Protection::Refused };
            parts.extend(git);
            parts.extend(acted_upon(&names));
            for folder in &place.configured {
                let folder: Vec<String> = folder.split('/').map(comparable).collect();
                if starts_with(&names, folder.iter().map(String::as_str)) {
                    parts.push(Part { range: 0..folder.len(), kind: ProtectedKind::Configured });
                }
            }
            if place.home.is_some() {
                parts.push(Part { range: 0..1, kind: ProtectedKind::Home });
            }
        }
        if parts.is_empty() { Protection::None } else { Protection::Ask(parts) }
    }

    /// Describes the first reason for the approval.
    pub(super) fn reason(&self, path: &NormalizedPath) -> Option<Protected> {
        let Protection::Ask(parts) = self else { return None };
        let part = parts.first()?;
        let names: Vec<&str> = path.text().split('/').collect();
        let name = names.get(part.range.clone()).unwrap_or_default().join("/");
        let name = name.chars().filter(|character| !character.is_control()).collect();
        Some(Protected { name, kind: part.kind })
    }

    /// Whether a rule names every protected part without wildcards. Braces and character classes could hide a
    /// wildcard, so a pattern with them names nothing.
    pub(super) fn is_named_by(&self, rule: &PathRule, path: &NormalizedPath) -> bool {
        let Protection::Ask(parts) = self else { return false };
        let Some(pattern) = literal_components(rule.pattern()) else { return false };
        let names: Vec<&str> = path.text().split('/').collect();
        let is_named = |part: &Part| {
            let wanted = names.get(part.range.clone()).unwrap_or_default();
            pattern.windows(wanted.len().max(1)).any(|found| {
                found.len() == wanted.len()
                    && found.iter().zip(wanted).all(|(found, wanted)| found.as_deref() == Some(wanted))
            })
        };
        parts.iter().all(is_named)
    }
}

/// Whether a file or directory is one that programs act upon, and not only below one. The path is relative, without `.` and
/// `..`.
pub(super) fn is_protected_root(path: &str) -> bool {
    let bytes = path.as_bytes();
    let is = |name: &str| {
        let Some(start) = bytes.len().checked_sub(name.len()) else { return false };
        let is_component = start == 0 || bytes.get(start - 1) == Some(&b'/');
        is_component && bytes.get(start..).is_some_and(|end| end.eq_ignore_ascii_case(name.as_bytes()))
    };
    lists::acted_upon().any(is)
}

/// Parts of a path with secrets. In the home directory these are also directories of credentials.
fn secrets(names: &[&str], place: &ProtectedPaths) -> Vec<Part> {
    let mut parts = Vec::new();
    if let Some((last, above)) = names.split_last()
        && lists::secret_name(last) != SecretName::No
    {
        parts.push(Part { range: above.len()..names.len(), kind: ProtectedKind::Secret });
    }
    let Some(home) = &place.home else { return parts };
    let home: Vec<String> = home.split('/').filter(|name| !name.is_empty()).map(comparable).collect();
    if starts_with(names, home.iter().map(String::as_str)) {
        let below = names.get(home.len()..).unwrap_or_default();
        let secret = lists::HOME_SECRETS.into_iter().find(|secret| starts_with(below, secret.split('/')));
        if let Some(secret) = secret {
            let range = home.len()..home.len() + secret.split('/').count();
            parts.push(Part { range, kind: ProtectedKind::Secret });
        }
    }
    parts
}

/// Control files of git directories. None if the path leads to another file of a `.git` directory, or to the file
/// `.git` itself, which leads to another directory.
fn git_parts(names: &[&str]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let below = names.get(index + 1..).unwrap_or_default();
        let is_git = *name == lists::GIT_DIR;
        let control = lists::GIT_CONTROL.into_iter().find(|control| starts_with(below, control.split('/')));
        match control {
            Some(control) if is_git || name.ends_with(lists::GIT_DIR) => {
                let range = index..index + 1 + control.split('/').count();
                parts.push(Part { range, kind: ProtectedKind::Git });
            }
            _ if is_git => return None,
            _ => {}
        }
    }
    // With this file, git takes its directory for a repository and reads the `config` next to it.
    if names.last() == Some(&"head") {
        parts.push(Part { range: names.len() - 1..names.len(), kind: ProtectedKind::Git });
    }
    Some(parts)
}

/// Files that agents, editors and shells act upon, at any depth.
fn acted_upon(names: &[&str]) -> Vec<Part> {
    let instructions = lists::INSTRUCTION_FILES.into_iter().chain(lists::FOREIGN_INSTRUCTION_FILES);
    let settings = [lists::BRIGADE_DIR, lists::MCP_FILE].into_iter();
    let settings = settings.chain(lists::TOOL_SETTINGS).chain(lists::RARE_TOOL_SETTINGS);
    let settings = settings.chain(lists::AGENT_DIRS).chain(lists::SKILL_DIRS);
    let all = instructions
        .map(|name| (name, ProtectedKind::Instructions))
        .chain(settings.map(|name| (name, ProtectedKind::Settings)))
        .chain(lists::HOME_FILES.map(|name| (name, ProtectedKind::StartUp)));
    let mut parts: Vec<Part> = Vec::new();
    for (name, kind) in all {
        let name = name.to_ascii_lowercase();
        for index in 0..names.len() {
            let length = name.split('/').count();
            // The longer name of the same directory adds nothing.
            let is_covered = parts.iter().any(|part| part.range.start == index && part.range.len() <= length);
            let below = names.get(index..).unwrap_or_default();
            if !is_covered && starts_with(below, name.split('/')) {
                parts.push(Part { range: index..index + length, kind });
            }
        }
    }
    parts.sort_by_key(|part| part.range.start);
    parts
}

fn starts_with<'a>(names: &[&str], mut start: impl Iterator<Item = &'a str>) -> bool {
    let mut names = names.iter();
    start.all(|wanted| names.next() == Some(&wanted))
}

/// Name of a file as the most lenient file system compares it.
fn comparable(name: &str) -> String {
    let is_ignored = |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let visible: String = name.chars().filter(|c| !is_ignored(*c)).collect();
    fold(&visible)
}

/// Components of a pattern; none for a component with a wildcard. Returns no components for a pattern that cannot be split.
fn literal_components(pattern: &str) -> Option<Vec<Option<String>>> {
    let mut components = Vec::new();
    let mut current = Some(String::new());
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '{' | '[' => return None,
            '*' | '?' => current = None,
            '/' => components.push(current.replace(String::new())),
            '\\' => {
                let escaped = letters.next().filter(|letter| *letter != '/')?;
                current.iter_mut().for_each(|text| text.push(escaped));
            }
            letter => current.iter_mut().for_each(|text| text.push(letter)),
        }
    }
    components.push(current);
    Some(components)
}
