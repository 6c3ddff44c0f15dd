//! Detection of the current project, and whether the user trusts its files.
//!
//! A project can set permissions, start servers and define agents, so the authors of its files could act with the
//! user's authority. The files are used only after `brigade trust`, and only while they are unchanged.

mod files;
pub(crate) mod instructions;
mod trust_store;

use std::path::{Path, PathBuf};

use brigade::pinned_files::PinnedFiles;
use brigade_core::Hash;
use brigade_sandbox::is_placeholder;

use crate::error::CliError;
use crate::output;
use crate::sanitize;
use crate::settings::Environment;
use crate::summary::shell_quoted;

pub(crate) use files::{FileContent, MCP_FILE, ProjectFiles, ScanError};
pub(crate) use trust_store::{Acceptance, TrustEntry, TrustStore};

/// Project whose files may be used.
#[derive(Debug)]
pub(crate) struct TrustedProject {
    /// Root folder, with symbolic links resolved.
    pub(crate) root: PathBuf,
    /// Files as they were when their hash was checked. Reading from here returns what was trusted, even if the folder
    /// is being changed at the same time.
    pub(crate) files: ProjectFiles,
}

impl TrustedProject {
    /// Content with which agents and skills of the project are used, also if they are read again.
    pub(crate) fn pinned(&self) -> PinnedFiles {
        let directories = files::covered_dirs().map(|directory| self.root.join(directory)).collect();
        let contents = self.files.iter().filter_map(|(path, content)| match content {
            FileContent::File(bytes) => Some((self.root.join(path), Hash::of(bytes))),
            FileContent::Link(_) | FileContent::Other(_) => None,
        });
        PinnedFiles::new(directories, contents)
    }
}

/// Trust in the files of a project.
#[derive(Debug)]
pub(crate) enum TrustStatus {
    /// The files are trusted and unchanged.
    Trusted(ProjectFiles),
    /// The files were never trusted.
    Unknown,
    /// The files have changed since they were trusted.
    Changed,
    /// The files cannot be read completely, for this reason.
    Invalid(ScanError),
}

/// Loads the project of a folder if its files are trusted. Otherwise a line on standard error says how to trust them.
/// Call this once per command; `Settings::project` keeps the result.
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
        TrustStatus::Invalid(problem) => format!("{problem}. Fix this first"),
    };
    let path = root.display().to_string();
    let line = format!(
        "brigade: the settings, agents and skills of {path} are ignored: {reason}. To review and trust them: brigade trust {}",
        shell_quoted(&path)
    );
    output::note(&sanitize::line(&line));
    Ok(None)
}

/// Nearest project at or above a folder. The search stops at the user's own folders, which are not projects.
pub(crate) fn find(environment: &Environment, folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let is_user_dir = |folder: &Path| environment.is_user_home(folder);
    let near = folder.ancestors().take_while(|folder| !is_user_dir(folder));
    near.into_iter().find(|folder| is_project(folder)).map(Path::to_path_buf)
}

fn is_project(folder: &Path) -> bool {
    let has_servers = folder.join(MCP_FILE).symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    // A symbolic link does not make a folder a project.
    has_servers || files::covered_dirs().any(|mark| has_real_dir(folder, mark))
}

/// Whether a folder contains this folder without a symbolic link in its path.
fn has_real_dir(folder: &Path, name: &str) -> bool {
    let mut path = folder.to_path_buf();
    Path::new(name).iter().all(|part| {
        path.push(part);
        path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) && !is_placeholder(&path)
    })
}

/// Folder under which trust in the instructions of `folder` is recorded, if there is no project.
pub(crate) fn instructions_root(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let has_any = instructions::all(&folder).values().any(Option::is_some);
    has_any.then(|| instructions::git_root(&folder).unwrap_or(folder))
}

/// Compares a project with its recorded hash.
pub(crate) fn trust_status(store: &TrustStore, root: &Path) -> TrustStatus {
    let Some(trusted) = store.hash(root) else { return TrustStatus::Unknown };
    match ProjectFiles::read(root) {
        Ok(files) if files.hash() == trusted => TrustStatus::Trusted(files),
        Ok(_) => TrustStatus::Changed,
        Err(problem) => TrustStatus::Invalid(problem),
    }
}
