//! Skills and instructions that a user and a project give to agents beside the task.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use brigade::skills::Problem;
use brigade::{Skills, Store};
use brigade_core::text::cut;

use crate::failure::Failure;
use crate::finish::quoted;
use crate::output;
use crate::safe;
use crate::settings::{FOREIGN_SKILLS, Settings};
use crate::trust::instructions::{self, Instruction, InstructionFile, NAMES};
use crate::trust::{Accepted, Record};

/// Bytes of instructions that agents read, of all files together.
const MAX_INSTRUCTION_BYTES: usize = 64 * 1024;
/// The folder of our skills in a project.
const PROJECT_SKILLS: &str = ".brigade/skills";
/// Skills with problems that are named before a run.
const SHOWN_PROBLEMS: usize = 3;

/// The skills there are. What is wrong with others is said on standard error.
pub(crate) fn skills(settings: &Settings) -> Skills {
    let (skills, problems) = discovered(settings);
    for problem in problems.iter().take(SHOWN_PROBLEMS) {
        warn(&problem.to_string());
    }
    if problems.len() > SHOWN_PROBLEMS {
        let more = problems.len() - SHOWN_PROBLEMS;
        warn(&format!("{more} more skills have problems. See them with: brigade doctor"));
    }
    skills
}

/// The skills there are, and what is wrong with others.
pub(crate) fn discovered(settings: &Settings) -> (Skills, Vec<Problem>) {
    let mut folders = project_skills(settings);
    folders.extend(settings.skills.iter().cloned());
    Skills::discover(&folders)
}

/// The folders of a project in which skills may be. A skill tells an agent what to do, so a project has to be trusted
/// first.
fn project_skills(settings: &Settings) -> Vec<PathBuf> {
    let Some(project) = &settings.project else { return Vec::new() };
    let names = [PROJECT_SKILLS].into_iter().chain(FOREIGN_SKILLS);
    names.map(|name| project.root.join(name)).filter(|folder| folder.is_dir()).collect()
}

/// Instructions of the project for all agents that work in it.
#[derive(Debug, Default)]
pub(crate) struct Instructions {
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
pub(crate) async fn instructions(settings: &Settings, store: &dyn Store) -> Result<Instructions, Failure> {
    let Ok(folder) = settings.folder.canonicalize() else { return Ok(Instructions::default()) };
    let mut found = Instructions::default();
    for name in NAMES {
        let mut files = Vec::new();
        for place in instructions::folders(&folder) {
            match instructions::read(&place, name, &settings.permissions) {
                Instruction::Absent => {}
                Instruction::Unusable(cause) => {
                    let path = place.join(name);
                    found.problems.push(InstructionProblem {
                        path,
                        cause: format!("is not used: {cause}"),
                        accept: None,
                    });
                }
                Instruction::Found(file) => match objection(settings, store, &file).await? {
                    None => files.push(file),
                    Some(cause) => found.problems.push(InstructionProblem {
                        path: file.path,
                        cause: format!("is not used: {cause}"),
                        accept: Some(format!("brigade trust {}", quoted(&folder.display().to_string()))),
                    }),
                },
            }
        }
        if !files.is_empty() {
            found.take(files, &folder);
            break;
        }
    }
    Ok(found)
}

/// Reason against a file that agents would follow, if there is one.
async fn objection(
    settings: &Settings,
    store: &dyn Store,
    file: &InstructionFile,
) -> Result<Option<&'static str>, Failure> {
    let content = file.hash();
    match Record::read(&settings.environment)?.accepted(&file.path, content) {
        Accepted::Yes => Ok(None),
        Accepted::Changed => Ok(Some("it has changed since you trusted it")),
        Accepted::Unasked if store.has_edit(content).await? => Ok(Some("an agent wrote it")),
        Accepted::Unasked => Ok(None),
    }
}

impl Instructions {
    /// Takes the text of files, the nearest last. What is too much is left out from the farthest.
    fn take(&mut self, files: Vec<InstructionFile>, folder: &Path) {
        let mut left = MAX_INSTRUCTION_BYTES;
        let mut parts = Vec::new();
        for file in files.iter().rev() {
            let text = String::from_utf8_lossy(&file.content);
            let mut part = cut(&text, left).to_owned();
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
            several => Some(joined(several, folder).into()),
        };
        self.used = files.into_iter().map(|file| file.path).collect();
    }

    /// Says on standard error what is not used, once for each process.
    pub(crate) fn warn(&self) {
        for problem in &self.problems {
            let (path, cause) = (problem.path.display(), &problem.cause);
            match &problem.accept {
                Some(command) => warn(&format!("{path} {cause}. Look at it, and accept it with: {command}")),
                None => warn(&format!("{path} {cause}")),
            }
        }
    }
}

/// Texts of several files, each below its path as it is seen from the working folder.
fn joined(parts: &[(&PathBuf, String)], folder: &Path) -> String {
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
fn warn(text: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
    if is_new {
        output::note(&format!("warning: {}", safe::line(text)));
    }
}
