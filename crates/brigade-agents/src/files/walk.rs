//! Finds the files beneath a folder that can be definitions.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::AgentProblem;
use super::format::{Syntax, file_name};
use super::problem::DefinitionError;

/// Maximum depth of the search, and maximum number of files.
const MAX_DEPTH: usize = 8;
const MAX_FILES: usize = 10_000;

/// Files next to definitions that are not definitions, in lower case.
const IGNORED_FILES: [&str; 10] = [
    "readme.md",
    "changelog.md",
    "contributing.md",
    "license.md",
    "security.md",
    "claude.md",
    "gemini.md",
    "soul.md",
    "skill.md",
    "agents.md",
];

/// Files that were found, sorted by name.
#[derive(Default)]
pub(super) struct AgentFileWalk {
    pub(super) files: Vec<PathBuf>,
    pub(super) problems: Vec<AgentProblem>,
    visited: HashSet<(u64, u64)>,
    is_full: bool,
}

impl AgentFileWalk {
    /// Searches a folder; a missing folder has no files.
    pub(super) fn of(folder: &Path) -> AgentFileWalk {
        let mut walk = AgentFileWalk::default();
        if !matches!(std::fs::metadata(folder), Err(error) if is_absent(&error)) {
            walk.folder(folder, 0);
        }
        walk
    }

    fn problem(&mut self, path: &Path, cause: impl Into<String>) {
        self.problems.push(AgentProblem::refused(path, DefinitionError::new(cause)));
    }

    fn folder(&mut self, folder: &Path, depth: usize) {
        if depth > MAX_DEPTH {
            return self.problem(
                folder,
                format!("is nested more than {MAX_DEPTH} directories deep and was not searched"),
            );
        }
        // A symbolic link may lead back to a folder that was already searched.
        match std::fs::metadata(folder) {
            Ok(metadata) if self.visited.insert((metadata.dev(), metadata.ino())) => {}
            Ok(_) => return,
            Err(error) => return self.problem(folder, format!("cannot search the directory: {error}")),
        }
        let names = match names(folder) {
            Ok(names) => names,
            Err(error) => return self.problem(folder, format!("cannot search the directory: {error}")),
        };
        let agent_file = ["AGENT.md", "AGENTS.md"]
            .into_iter()
            .find(|agent_file| depth > 0 && names.iter().any(|name| name == agent_file));
        if let Some(agent_file) = agent_file {
            return self.files.push(folder.join(agent_file));
        }
        for name in names {
            self.entry(&folder.join(&name), &name, depth);
        }
    }

    fn entry(&mut self, path: &Path, name: &str, depth: usize) {
        if name.starts_with('.') {
            return;
        }
        let is_folder = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
        if is_folder {
            return self.folder(path, depth + 1);
        }
        if !can_be_a_definition(path) {
            return;
        }
        if self.files.len() < MAX_FILES {
            self.files.push(path.to_owned());
        } else if !self.is_full {
            self.is_full = true;
            self.problem(
                path,
                format!("more than {MAX_FILES} files found; this one and the following were not read"),
            );
        }
    }
}

fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        // A name that is not UTF-8 cannot become an id.
        names.extend(entry?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

fn can_be_a_definition(path: &Path) -> bool {
    let name = file_name(path);
    let is_hidden_from_gemini = name.starts_with('_');
    Syntax::of(path).is_some()
        && !is_hidden_from_gemini
        && !IGNORED_FILES.contains(&name.to_lowercase().as_str())
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}
