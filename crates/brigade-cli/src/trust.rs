//! Which project the work is in, and whether the person trusts its files.
//!
//! A project can set permissions, start servers and define agents, so whoever writes its files could act in the
//! person's name. They count only after `brigade trust`, and only as long as they stay as they were then.

mod files;
pub(crate) mod instructions;
mod record;

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::finish::quoted;
use crate::output;
use crate::safe;
use crate::settings::Environment;

#[cfg(test)]
pub(crate) use files::COVERED;
pub(crate) use files::{Content, Files, MCP_FILE};
pub(crate) use record::{Accepted, Entry, Record};

/// A project whose files may be used.
#[derive(Debug)]
pub(crate) struct TrustedProject {
    /// Its folder, without symbolic links on the way.
    pub(crate) root: PathBuf,
    /// Its files as they were when their hash was compared. What is read from here is what was trusted, also when
    /// somebody writes to the folder at this moment.
    pub(crate) files: Files,
}

/// How the person stands to the files of a project.
#[derive(Debug)]
pub(crate) enum Standing {
    /// They are trusted as they are.
    Trusted(Files),
    /// They were never trusted.
    Unknown,
    /// They are not what was trusted.
    Changed,
    /// They cannot be looked at as a whole, for this reason.
    Unfit(String),
}

/// The project that a folder belongs to, if its files may be used. Where they may not, one line on standard error
/// says how to change that; so this is asked once for each command, and `Settings::project` keeps the answer.
pub(crate) fn project(environment: &Environment, folder: &Path) -> Result<Option<TrustedProject>, Failure> {
    let Some(root) = find(environment, folder) else { return Ok(None) };
    let reason = match standing(&Record::read(environment)?, &root) {
        Standing::Trusted(files) => return Ok(Some(TrustedProject { root, files })),
        Standing::Unknown => {
            let contents = Files::read(&root).map(|files| files.contents()).unwrap_or_default();
            let contents = if contents.is_empty() { contents } else { format!(" ({contents})") };
            format!("they are not trusted{contents}")
        }
        Standing::Changed => "they have changed since they were trusted".to_owned(),
        Standing::Unfit(problem) => problem,
    };
    let place = root.display().to_string();
    let line = format!(
        "brigade: the settings, agents and skills of {place} are ignored: {reason}. Look and decide: brigade trust {}",
        quoted(&place)
    );
    output::note(&safe::line(&line));
    Ok(None)
}

/// The nearest project at or above a folder. The search ends at the person's own folders, which are no project.
pub(crate) fn find(environment: &Environment, folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let own = |folder: &Path| environment.is_the_persons(folder);
    let near = folder.ancestors().take_while(|folder| !own(folder));
    near.into_iter().find(|folder| is_project(folder)).map(Path::to_path_buf)
}

fn is_project(folder: &Path) -> bool {
    let has_servers = folder.join(MCP_FILE).symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    // A symbolic link does not make a project.
    has_servers || files::COVERED.iter().any(|mark| is_inside(folder, mark))
}

/// Whether a folder has a folder of this name that no symbolic link leads to.
fn is_inside(folder: &Path, name: &str) -> bool {
    let mut place = folder.to_path_buf();
    Path::new(name).iter().all(|part| {
        place.push(part);
        place.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
    })
}

/// The folder that trust in the instructions of `folder` is recorded under, if there is no project.
pub(crate) fn instructions_root(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let has_any = instructions::all(&folder).values().any(Option::is_some);
    has_any.then(|| instructions::git_root(&folder).unwrap_or(folder))
}

/// Compares a project with what is on record.
pub(crate) fn standing(record: &Record, root: &Path) -> Standing {
    let Some(trusted) = record.hash(root) else { return Standing::Unknown };
    match Files::read(root) {
        Ok(files) if files.hash() == trusted => Standing::Trusted(files),
        Ok(_) => Standing::Changed,
        Err(problem) => Standing::Unfit(problem),
    }
}
