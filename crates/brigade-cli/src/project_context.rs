//! Skills and instructions that a user and a project give to agents beside the task.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use brigade::skills::SkillProblem;
use brigade::{Skills, Store};
use brigade_core::text::truncate_bytes;

use crate::error::CliError;
use crate::output;
use crate::sanitize;
use crate::settings::{OTHER_SKILL_DIRS, Settings};
use crate::summary::shell_quoted;
use crate::trust::instructions::{self, FILE_NAMES, InstructionFile, InstructionLookup};
use crate::trust::{Acceptance, TrustStore};

/// Bytes of instructions that agents read, of all files together.
const MAX_INSTRUCTION_BYTES: usize = 64 * 1024;
/// The folder of our skills in a project.
const PROJECT_SKILLS: &str = ".brigade/skills";
/// Skills with problems that are named before a run.
const MAX_SHOWN_PROBLEMS: usize = 3;

/// The skills there are. What is wrong with others is said on standard error.
pub(crate) fn skills(settings: &Settings) -> Skills {
    let (skills, problems) = discover_skills(settings);
    for problem in problems.iter().take(MAX_SHOWN_PROBLEMS) {
        warn_once(&problem.to_string());
    }
    if problems.len() > MAX_SHOWN_PROBLEMS {
        let more = problems.len() - MAX_SHOWN_PROBLEMS;
        warn_once(&format!("{more} more skills have problems. See them with: brigade doctor"));
    }
    skills
}

/// The skills there are, and what is wrong with others.
pub(crate) fn discover_skills(settings: &Settings) -> (Skills, Vec<SkillProblem>) {
    let mut folders = project_skill_folders(settings);
    folders.extend(settings.skills.iter().cloned());
    Skills::discover(&folders)
}

/// The folders of a project in which skills may be. A skill tells an agent what to do, so a project has to be trusted
/// first.
fn project_skill_folders(settings: &Settings) -> Vec<PathBuf> {
    let Some(project) = &settings.project else { return Vec::new() };
    let names = [PROJECT_SKILLS].into_iter().chain(OTHER_SKILL_DIRS);
    names.map(|name| project.root.join(name)).filter(|folder| folder.is_dir()).collect()
}

/// Instructions of the project for all agents that work in it.
#[derive(Debug, Default)]
pub(crate) struct ProjectInstructions {
    /// Text that agents read, if there is any.
    pub(crate) text: Option<Arc<str>>,
    /// Files that it comes from, the nearest last.
    pub(crate) used: Vec<PathBuf>,
    /// Files that are not used as they are.
    pub(crate) problems: Vec<InstructionProblem>,
}

/// Reason why an instruction file is not used, or not all of it.
#[derive(Debug)]
pub(crate) struct InstructionProblem {
    pub(crate) path: PathBuf,
    pub(crate) cause: String,
    /// The command that accepts the file as it is, if the user can accept it.
    pub(crate) accept: Option<String>,
}

/// Reads the instructions that apply to work in the folder of the settings. A file is used as it is found, unless an agent
/// wrote its content or it has changed since the user accepted it with `brigade trust`.
pub(crate) async fn instructions(
    settings: &Settings,
    store: &dyn Store,
) -> Result<ProjectInstructions, CliError> {
    let Ok(folder) = settings.folder.canonicalize() else { return Ok(ProjectInstructions::default()) };
    let mut found = ProjectInstructions::default();
    for name in FILE_NAMES {
        let mut files = Vec::new();
        for place in instructions::folders(&folder) {
            match instructions::read(&place, name, &settings.permissions) {
                InstructionLookup::Absent => {}
                InstructionLookup::Unusable(cause) => {
                    let path = place.join(name);
                    found.problems.push(InstructionProblem {
                        path,
                        cause: format!("is not used: {cause}"),
                        accept: None,
                    });
                }
                InstructionLookup::Found(file) => match rejection_reason(settings, store, &file).await? {
                    None => files.push(file),
                    Some(cause) => found.problems.push(InstructionProblem {
                        path: file.path,
                        cause: format!("is not used: {cause}"),
                        accept: Some(format!(
                            "brigade trust {}",
                            shell_quoted(&folder.display().to_string())
                        )),
                    }),
                },
            }
        }
        if !files.is_empty() {
            found.add_files(files, &folder);
            break;
        }
    }
    Ok(found)
}

/// Reason against a file that agents would follow, if there is one.
async fn rejection_reason(
    settings: &Settings,
    store: &dyn Store,
    file: &InstructionFile,
) -> Result<Option<&'static str>, CliError> {
    let content = file.hash();
    match TrustStore::read(&settings.environment)?.accepted(&file.path, content) {
        Acceptance::Yes => Ok(None),
        Acceptance::Changed => Ok(Some("it has changed since you trusted it")),
        Acceptance::NeverAsked if store.has_edit(content).await? => Ok(Some("an agent wrote it")),
        Acceptance::NeverAsked => Ok(None),
    }
}

impl ProjectInstructions {
    /// Takes the text of files, the nearest last. What is too much is left out from the farthest.
    fn add_files(&mut self, files: Vec<InstructionFile>, folder: &Path) {
        let mut left = MAX_INSTRUCTION_BYTES;
        let mut parts = Vec::new();
        for file in files.iter().rev() {
            let text = String::from_utf8_lossy(&file.content);
            let mut part = truncate_bytes(&text, left).to_owned();
            left -= part.len();
            if part.len() < text.len() {
                let name = file.path.file_name().unwrap_or_default().to_string_lossy();
                part.push_str(&format!("\n(the rest of {name} is left out)"));
                self.problems.push(InstructionProblem {
                    path: file.path.clone(),
                    cause: format!(
                        "is long: agents read {MAX_INSTRUCTION_BYTES} bytes of instructions, the nearest first"
                    ),
                    accept: None,
                });
            }
            parts.push((&file.path, part));
        }
        parts.reverse();
        self.text = match parts.as_slice() {
            [(_, only)] => Some(only.as_str().into()),
            several => Some(join_files(several, folder).into()),
        };
        self.used = files.into_iter().map(|file| file.path).collect();
    }

    /// Says on standard error what is not used, once for each process.
    pub(crate) fn warn_once(&self) {
        for problem in &self.problems {
            let (path, cause) = (problem.path.display(), &problem.cause);
            match &problem.accept {
                Some(command) => {
                    warn_once(&format!("{path} {cause}. Look at it, and accept it with: {command}"))
                }
                None => warn_once(&format!("{path} {cause}")),
            }
        }
    }
}

/// Texts of several files, each below its path as it is seen from the working folder.
fn join_files(parts: &[(&PathBuf, String)], folder: &Path) -> String {
    let mut text = "If two of these files disagree, follow the later one.".to_owned();
    for (path, part) in parts {
        let above = path.parent().and_then(|place| folder.strip_prefix(place).ok());
        let way = "../".repeat(above.map_or(0, |way| way.components().count()));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        text.push_str(&format!("\n\n## {way}{name}\n\n{}", part.trim()));
    }
    text
}

/// Says something on standard error once: a chat reads the same files again whenever a setting changes.
fn warn_once(text: &str) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
    if is_new {
        output::note(&format!("warning: {}", sanitize::line(text)));
    }
}
