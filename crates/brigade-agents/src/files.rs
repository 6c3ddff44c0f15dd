//! Definitions in files.

mod authority;
mod build;
mod document;
mod file;
mod format;
mod id;
mod keys;
mod lines;
mod model;
mod problem;
mod read;
mod restrictions;
mod secret;
mod tools_key;
mod value;
mod walk;
mod yaml;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use brigade_base::Secret;
use brigade_base::pinned_files::PinnedFiles;
use brigade_core::Agent;

use crate::id::{id_of_folder, is_id};
use crate::{AgentCatalog, AgentProblem, LoadError, ProblemKind};
pub use format::Format;
pub use problem::{KeyNote, KeyStatus};

use walk::AgentFileWalk;

/// Definition and the file that it comes from.
#[derive(Debug, Clone)]
pub struct AgentDefinition {
    /// Agent as it is stored and displayed, without its API key.
    pub agent: Agent,
    /// API key of its provider, if the file contains one.
    pub api_key: Option<Secret>,
    /// Path of the file.
    pub file: PathBuf,
    /// Format of the file.
    pub format: Format,
    /// Notes on the keys of the file.
    pub notes: Vec<KeyNote>,
}

/// Reason why a file yields no definition, with notes on its keys.
#[derive(Debug, Clone)]
pub struct LoadFailure {
    /// Reason for the failure.
    pub problem: AgentProblem,
    /// Notes on the keys that were read.
    pub notes: Vec<KeyNote>,
}

/// Result of reading a file.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// Path of the file.
    pub file: PathBuf,
    /// Format of the file.
    pub format: Format,
    /// Definition, or the reason why there is none.
    pub outcome: Result<AgentDefinition, LoadFailure>,
}

/// Definitions beneath a folder.
#[derive(Debug, Clone, Default)]
pub struct Discovered {
    /// Usable definitions, by id.
    pub definitions: Vec<AgentDefinition>,
    /// Problems of the files that were skipped.
    pub problems: Vec<AgentProblem>,
}

impl Discovered {
    /// Returns the definition of an id, or the reason why it is not usable. The name of an agent's own folder
    /// counts as its id.
    pub fn definition(mut self, id: &str) -> Result<AgentDefinition, LoadError> {
        let known = id_of_folder(id).unwrap_or_default();
        if let Some(at) = self.definitions.iter().position(|definition| definition.agent.id == known) {
            return Ok(self.definitions.swap_remove(at));
        }
        let quoted = format!("`{known}`");
        let concerns = |problem: &AgentProblem| match problem.kind {
            ProblemKind::Refused => id::id_from_file(&problem.file).is_some_and(|other| other == known),
            ProblemKind::Duplicate => problem.cause.contains(&quoted),
            ProblemKind::Shadowed => false,
        };
        let problem = self.problems.into_iter().find(concerns);
        Err(problem.map_or_else(|| LoadError::NotFound(id.to_owned()), LoadError::Invalid))
    }
}

impl AgentCatalog {
    /// Loads the definitions of several folders with [`discover_all`], and returns the problems of the other files.
    pub fn from_folders(folders: &[impl AsRef<Path>]) -> (AgentCatalog, Vec<AgentProblem>) {
        AgentCatalog::from_pinned_folders(folders, PinnedFiles::default())
    }

    /// Loads the definitions of several folders. Those in pinned directories are used only with their pinned content,
    /// now and when they are loaded again.
    pub fn from_pinned_folders(
        folders: &[impl AsRef<Path>],
        pinned: PinnedFiles,
    ) -> (AgentCatalog, Vec<AgentProblem>) {
        let found = discover_pinned(folders, &pinned);
        let mut catalog = AgentCatalog { pinned, ..AgentCatalog::new() };
        for definition in found.definitions {
            catalog.files.insert(definition.agent.id.clone(), definition.file);
            catalog.agents.push(definition.agent);
        }
        (catalog, found.problems)
    }

    /// Returns the file of a definition.
    pub fn file(&self, id: &str) -> Option<&Path> {
        self.files.get(id).map(PathBuf::as_path)
    }

    /// Loads the current definition from its file, with its API key.
    pub fn definition(&self, id: &str) -> Result<AgentDefinition, LoadError> {
        let file = self.files.get(id).ok_or_else(|| LoadError::NotFound(id.to_owned()))?;
        if !file.exists() {
            return Err(LoadError::NotFound(id.to_owned()));
        }
        find_by_id(read::read(file, &self.pinned), id)
    }
}

/// Loads the definition of an id beneath a folder. The name of an agent's own folder counts as its id.
pub fn load(folder: &Path, id: &str) -> Result<AgentDefinition, LoadError> {
    for file_name in ["AGENT.md", "AGENTS.md"] {
        let file = folder.join(id).join(file_name);
        if is_id(id) && file.symlink_metadata().is_ok() && !has_other_folder(folder, id) {
            return find_by_id(read::read(&file, &PinnedFiles::default()), id);
        }
    }
    discover(folder).definition(id)
}

/// Whether a folder with another spelling has the same id.
fn has_other_folder(folder: &Path, id: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_other = |name: &str| name != id && id_of_folder(name).is_some_and(|other| other == id);
    names.any(|name| is_other(&name) && folder.join(name).is_dir())
}

/// Finds all definitions beneath a folder. An invalid one is skipped and reported; a missing folder has none.
pub fn discover(folder: &Path) -> Discovered {
    discover_folder(folder, &PinnedFiles::default())
}

fn discover_folder(folder: &Path, pinned: &PinnedFiles) -> Discovered {
    let mut walk = AgentFileWalk::of(folder);
    let mut by_id: BTreeMap<String, Vec<AgentDefinition>> = BTreeMap::new();
    let mut problems = std::mem::take(&mut walk.problems);
    for report in walk.files.iter().flat_map(|file| read::read(file, pinned)) {
        match report.outcome {
            Ok(definition) => by_id.entry(definition.agent.id.clone()).or_default().push(definition),
            Err(refusal) => problems.push(refusal.problem),
        }
    }
    let mut definitions = Vec::new();
    for (id, mut same) in by_id {
        match same.as_slice() {
            [_] => definitions.append(&mut same),
            several => problems.extend(duplicates(&id, several)),
        }
    }
    Discovered { definitions, problems }
}

/// Finds the definitions of several folders. If two have the same id, the first folder wins. Shadowed and unusable
/// definitions are reported.
pub fn discover_all(folders: &[impl AsRef<Path>]) -> Discovered {
    discover_pinned(folders, &PinnedFiles::default())
}

fn discover_pinned(folders: &[impl AsRef<Path>], pinned: &PinnedFiles) -> Discovered {
    let mut problems = Vec::new();
    let mut searched = HashSet::new();
    let mut by_id: BTreeMap<String, AgentDefinition> = BTreeMap::new();
    for place in folders.iter().map(AsRef::as_ref) {
        // The project folder and the home folder may be the same.
        if place.canonicalize().is_ok_and(|real| !searched.insert(real)) {
            continue;
        }
        let here = discover_folder(place, pinned);
        problems.extend(here.problems);
        for definition in here.definitions {
            match by_id.get(&definition.agent.id) {
                Some(first) => problems.push(shadowed(&definition, first)),
                None => drop(by_id.insert(definition.agent.id.clone(), definition)),
            }
        }
    }
    Discovered { definitions: by_id.into_values().collect(), problems }
}

/// Reads a file, or every file beneath a folder, and reports on each key.
pub fn lint(path: &Path) -> (Vec<FileReport>, Vec<AgentProblem>) {
    if !path.is_dir() {
        return (read::read(path, &PinnedFiles::default()), Vec::new());
    }
    let walk = AgentFileWalk::of(path);
    let unpinned = PinnedFiles::default();
    let reports: Vec<FileReport> = walk.files.iter().flat_map(|file| read::read(file, &unpinned)).collect();
    let mut problems = walk.problems;
    let mut by_id: BTreeMap<&str, Vec<&AgentDefinition>> = BTreeMap::new();
    for definition in reports.iter().filter_map(|report| report.outcome.as_ref().ok()) {
        by_id.entry(&definition.agent.id).or_default().push(definition);
    }
    for (id, same) in by_id.iter().filter(|(_, same)| same.len() > 1) {
        problems.extend(duplicates(id, same));
    }
    (reports, problems)
}

fn find_by_id(reports: Vec<FileReport>, id: &str) -> Result<AgentDefinition, LoadError> {
    let mut refusal = None;
    for report in reports {
        match report.outcome {
            Ok(definition) if definition.agent.id == id => return Ok(definition),
            Ok(_) => {}
            Err(refused) => refusal = Some(refused.problem),
        }
    }
    Err(refusal.map_or_else(|| LoadError::NotFound(id.to_owned()), LoadError::Invalid))
}

/// Creates a problem for each file after the first, which also names the first.
fn duplicates(id: &str, same: &[impl std::borrow::Borrow<AgentDefinition>]) -> Vec<AgentProblem> {
    let files: Vec<&Path> = same.iter().map(|definition| definition.borrow().file.as_path()).collect();
    let Some((first, rest)) = files.split_first() else { return Vec::new() };
    let problem = |file: &&Path| AgentProblem {
        file: file.to_path_buf(),
        line: None,
        kind: ProblemKind::Duplicate,
        cause: format!(
            "duplicate id `{id}`, also defined in {}. Neither file is used. Rename one of them.",
            first.display()
        ),
    };
    rest.iter().map(problem).collect()
}

fn shadowed(definition: &AgentDefinition, first: &AgentDefinition) -> AgentProblem {
    AgentProblem {
        file: definition.file.clone(),
        line: None,
        kind: ProblemKind::Shadowed,
        cause: format!("`{}` is overridden by {}", definition.agent.id, first.file.display()),
    }
}
