//! Skills and instructions that the user and the project provide to agents in addition to the task.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade::project_files::SKILL_DIRS;
use brigade::skills::SkillProblem;
use brigade::{Skills, Store};
use brigade_core::text::truncate_bytes;

use crate::error::CliError;
use crate::output;
use crate::settings::Settings;
use crate::summary::shell_quoted;
use crate::trust::instructions::{self, FILE_NAMES, InstructionFile, InstructionLookup};
use crate::trust::{Acceptance, TrustStore};

/// Maximum bytes of instructions in a prompt, over all files.
const MAX_INSTRUCTION_BYTES: usize = 64 * 1024;
/// Folder of Brigade's skills in a project.
const PROJECT_SKILLS: &str = ".brigade/skills";
/// Maximum number of skill problems that are reported before a run.
const MAX_SHOWN_PROBLEMS: usize = 3;

/// Loads the skills. Problems are reported on standard error.
pub(crate) fn skills(settings: &Settings) -> Skills {
    let (skills, problems) = discover_skills(settings);
    for problem in problems.iter().take(MAX_SHOWN_PROBLEMS) {
        output::warn_once(&problem.to_string());
    }
    if problems.len() > MAX_SHOWN_PROBLEMS {
        let more = problems.len() - MAX_SHOWN_PROBLEMS;
        let skills = if more == 1 {
            "1 more skill has a problem".to_owned()
        } else {
            format!("{more} more skills have problems")
        };
        output::warn_once(&format!("{skills}. List all problems with: brigade doctor"));
    }
    skills
}

/// Loads the skills. Returns them with all problems.
pub(crate) fn discover_skills(settings: &Settings) -> (Skills, Vec<SkillProblem>) {
    let mut folders = project_skill_folders(settings);
    folders.extend(settings.skills.iter().cloned());
    Skills::discover_pinned(&folders, &settings.pinned_files())
}

/// Skill folders of a project. A skill instructs agents, so only a trusted project has any.
fn project_skill_folders(settings: &Settings) -> Vec<PathBuf> {
    let Some(project) = &settings.project else { return Vec::new() };
    let names = [PROJECT_SKILLS].into_iter().chain(SKILL_DIRS);
    names.map(|name| project.root.join(name)).filter(|folder| folder.is_dir()).collect()
}

/// Instructions of a project for all agents that work in it.
#[derive(Debug, Default)]
pub(crate) struct ProjectInstructions {
    /// Text for the agents, if there is any.
    pub(crate) text: Option<Arc<str>>,
    /// Files that the text comes from, the nearest last.
    pub(crate) used: Vec<PathBuf>,
    /// Files that are not used, or not completely.
    pub(crate) problems: Vec<InstructionProblem>,
}

/// Reason why an instruction file is not used, or not completely.
#[derive(Debug)]
pub(crate) struct InstructionProblem {
    pub(crate) path: PathBuf,
    pub(crate) cause: String,
    /// Command that accepts the current file, if the user can accept it.
    pub(crate) accept: Option<String>,
}

/// Reads the instructions for the working folder. A file is used unless an agent wrote its content, or it has changed
/// since the user accepted it with `brigade trust`.
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

/// Reason to reject an instruction file, if there is one.
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
    /// Adds the text of files, the nearest last. If it is too long, the farthest files are cut.
    fn add_files(&mut self, files: Vec<InstructionFile>, folder: &Path) {
        let mut left = MAX_INSTRUCTION_BYTES;
        let mut parts = Vec::new();
        for file in files.iter().rev() {
            let text = String::from_utf8_lossy(&file.content);
            let mut part = truncate_bytes(&text, left).to_owned();
            left -= part.len();
            if part.len() < text.len() {
                let name = file.path.file_name().unwrap_or_default().to_string_lossy();
                part.push_str(&format!("\n(the rest of {name} is omitted)"));
                self.problems.push(InstructionProblem {
                    path: file.path.clone(),
                    cause: format!(
                        "is truncated: agents read at most {} KiB of instructions, starting with the nearest files",
                        MAX_INSTRUCTION_BYTES >> 10
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

    /// Reports the problems on standard error, once per process.
    pub(crate) fn warn_once(&self) {
        for problem in &self.problems {
            let (path, cause) = (problem.path.display(), &problem.cause);
            match &problem.accept {
                Some(command) => {
                    output::warn_once(&format!("{path} {cause}. Review it, then accept it with: {command}"))
                }
                None => output::warn_once(&format!("{path} {cause}")),
            }
        }
    }
}

/// Texts of several files, each below its path relative to the working folder.
fn join_files(parts: &[(&PathBuf, String)], folder: &Path) -> String {
    let mut text =
        "If these files contradict each other, follow the one that comes later in this text.".to_owned();
    for (path, part) in parts {
        let above = path.parent().and_then(|place| folder.strip_prefix(place).ok());
        let way = "../".repeat(above.map_or(0, |way| way.components().count()));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        text.push_str(&format!("\n\n## {way}{name}\n\n{}", part.trim()));
    }
    text
}
