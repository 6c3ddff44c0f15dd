//! What a person and a project give to agents beside the task: skills and instructions.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use brigade::skills::Problem;
use brigade::tool::{FileError, Files};
use brigade::{Skills, Workspace};
use brigade_core::permission::Permissions;
use brigade_core::text::cut;

use crate::output;
use crate::safe;
use crate::settings::Settings;

/// The file in which a project instructs agents.
const INSTRUCTIONS: &str = "AGENTS.md";
/// How much of it every agent reads.
const MAX_INSTRUCTIONS: usize = 64 * 1024;
/// A larger file is not even begun.
const MAX_FILE: u64 = 1 << 20;
/// Where a project keeps skills.
const PROJECT_SKILLS: [&str; 2] = [".brigade/skills", ".claude/skills"];

/// The skills there are. What is wrong with others is said on standard error.
pub(crate) fn skills(settings: &Settings) -> Skills {
    let (skills, problems) = discovered(settings);
    for problem in problems {
        warn(&problem.to_string());
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
    PROJECT_SKILLS.iter().map(|name| project.root.join(name)).filter(|folder| folder.is_dir()).collect()
}

/// What the project says to all agents that work in it, if it says anything that they may read.
pub(crate) fn instructions(workspace: &Workspace, permissions: &Permissions) -> Option<Arc<str>> {
    let everywhere = BTreeSet::from([String::new()]);
    let files = Files::new(workspace.clone(), Arc::new(permissions.clone()), everywhere);
    let content = match files.read(INSTRUCTIONS, MAX_FILE) {
        Ok(content) => content,
        // Most projects have none, and where a rule hides it, that is how it is meant.
        Err(FileError::NotFound { .. } | FileError::Forbidden { .. }) => return None,
        Err(FileError::TooLarge { .. }) => {
            warn(&format!("{INSTRUCTIONS} holds more than {MAX_FILE} bytes and is not used"));
            return None;
        }
        Err(error) => {
            warn(&format!("{INSTRUCTIONS} is not used: {error}"));
            return None;
        }
    };
    let text = String::from_utf8_lossy(&content);
    if text.len() <= MAX_INSTRUCTIONS {
        return Some(text.into());
    }
    warn(&format!("{INSTRUCTIONS} is long: agents read its first {MAX_INSTRUCTIONS} bytes"));
    Some(format!("{}\n(the rest of {INSTRUCTIONS} is left out)", cut(&text, MAX_INSTRUCTIONS)).into())
}

fn warn(text: &str) {
    output::note(&format!("warning: {}", safe::line(text)));
}
