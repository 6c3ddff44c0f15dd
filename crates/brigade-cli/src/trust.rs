//! Which project the work is in, and whether the person trusts its files.
//!
//! A project can set permissions, start servers and define agents, so whoever writes its files could act in the
//! person's name. They count only after `brigade trust`, and only as long as they stay as they were then.

mod files;
pub(crate) mod instructions;
mod trust_store;

use std::path::{Path, PathBuf};

use crate::error::CliError;
use crate::output;
use crate::sanitize;
use crate::settings::Environment;
use crate::summary::shell_quoted;

#[cfg(test)]
pub(crate) use files::COVERED_DIRS;
pub(crate) use files::{FileContent, MCP_FILE, ProjectFiles};
pub(crate) use trust_store::{Acceptance, TrustEntry, TrustStore};

/// A project whose files may be used.
#[derive(Debug)]
pub(crate) struct TrustedProject {
    /// Its folder, without symbolic links on the way.
    pub(crate) root: PathBuf,
    /// Its files as they were when their hash was compared. What is read from here is what was trusted, also when
    /// somebody writes to the folder at this moment.
    pub(crate) files: ProjectFiles,
}

/// How the person stands to the files of a project.
#[derive(Debug)]
pub(crate) enum TrustStatus {
    /// They are trusted as they are.
    Trusted(ProjectFiles),
    /// They were never trusted.
    Unknown,
    /// They are not what was trusted.
    Changed,
    /// They cannot be looked at as a whole, for this reason.
    Invalid(String),
}

/// The project that a folder belongs to, if its files may be used. Where they may not, one line on standard error
/// says how to change that; so this is asked once for each command, and `Settings::project` keeps the answer.
pub(crate) fn load_trusted_project(
    environment: &Environment,
    folder: &Path,
) -> Result<Option<TrustedProject>, CliError> {
    let Some(root) = find(environment, folder) else { return Ok(None) };
    let reason = match trust_status(&TrustStore::read(environment)?, &root) {
        TrustStatus::Trusted(files) => return Ok(Some(TrustedProject { root, files })),
        TrustStatus::Unknown => {
            let contents = ProjectFiles::read(&root).map(|files| files.contents()).unwrap_or_default();
            let contents = if contents.is_empty() { contents } else { format!(" ({contents})") };
            format!("they are not trusted{contents}")
        }
        TrustStatus::Changed => "they have changed since they were trusted".to_owned(),
        TrustStatus::Invalid(problem) => problem,
    };
    let path = root.display().to_string();
    let line = format!(
        "brigade: the settings, agents and skills of {path} are ignored: {reason}. Look and decide: brigade trust {}",
        shell_quoted(&path)
    );
    output::note(&sanitize::line(&line));
    Ok(None)
}

/// The nearest project at or above a folder. The search ends at the person's own folders, which are no project.
pub(crate) fn find(environment: &Environment, folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let is_user_dir = |folder: &Path| environment.is_user_home(folder);
    let near = folder.ancestors().take_while(|folder| !is_user_dir(folder));
    near.into_iter().find(|folder| is_project(folder)).map(Path::to_path_buf)
}

fn is_project(folder: &Path) -> bool {
    let has_servers = folder.join(MCP_FILE).symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    // A symbolic link does not make a project.
    has_servers || files::COVERED_DIRS.iter().any(|mark| has_real_dir(folder, mark))
}

/// Whether a folder has a folder of this name that no symbolic link leads to.
fn has_real_dir(folder: &Path, name: &str) -> bool {
    let mut path = folder.to_path_buf();
    Path::new(name).iter().all(|part| {
        path.push(part);
        path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
    })
}

/// The folder that trust in the instructions of `folder` is recorded under, if there is no project.
pub(crate) fn instructions_root(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let has_any = instructions::all(&folder).values().any(Option::is_some);
    has_any.then(|| instructions::git_root(&folder).unwrap_or(folder))
}

/// Compares a project with what is on record.
pub(crate) fn trust_status(store: &TrustStore, root: &Path) -> TrustStatus {
    let Some(trusted) = store.hash(root) else { return TrustStatus::Unknown };
    match ProjectFiles::read(root) {
        Ok(files) if files.hash() == trusted => TrustStatus::Trusted(files),
        Ok(_) => TrustStatus::Changed,
        Err(problem) => TrustStatus::Invalid(problem),
    }
}
