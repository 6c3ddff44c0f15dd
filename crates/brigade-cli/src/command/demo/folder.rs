//! The temporary folder of the demo: the project, the session store, the script and the list of model requests.

use std::path::{Path, PathBuf};

use brigade_core::permission::Mode;
use tempfile::TempDir;

use crate::args::Flags;
use crate::error::CliError;
use crate::settings::{SCRIPT_PREFIX, Settings};

const SCRIPT: &str = include_str!("../../../demo/script.toml");
const PROJECT: [(&str, &str); 5] = [
    ("README.md", include_str!("../../../demo/project/README.md")),
    ("price.sh", include_str!("../../../demo/project/price.sh")),
    ("test.sh", include_str!("../../../demo/project/test.sh")),
    ("notes/ideas.txt", include_str!("../../../demo/project/notes/ideas.txt")),
    ("notes/known-bugs.txt", include_str!("../../../demo/project/notes/known-bugs.txt")),
];

/// Budget of the run: tokens, and nano-dollars.
const BUDGET_TOKENS: u64 = 200_000;
const BUDGET_USD: u64 = 1_000_000_000;

/// A folder with everything that the demo writes.
pub(super) struct DemoFolder {
    root: PathBuf,
    /// Removes the folder. Absent in the worker, which does not own it.
    owned: Option<TempDir>,
}

impl DemoFolder {
    /// Creates the folder with the project and the script.
    pub(super) fn create() -> Result<DemoFolder, CliError> {
        let owned = tempfile::Builder::new().prefix("brigade-demo-").tempdir().map_err(not_created)?;
        let folder = DemoFolder { root: owned.path().to_path_buf(), owned: Some(owned) };
        folder.write_project()?;
        // The model appends each request to this file, so that repeated requests are counted outside the log.
        let journal = toml::Value::String(folder.requests_file().display().to_string());
        std::fs::write(folder.script_file(), format!("journal = {journal}\n{SCRIPT}"))
            .map_err(not_created)?;
        Ok(folder)
    }

    /// The folder that another process has created.
    pub(super) fn at(root: PathBuf) -> DemoFolder {
        DemoFolder { root, owned: None }
    }

    /// Removes the folder.
    pub(super) fn remove(mut self) -> Result<(), CliError> {
        let removed = self.owned.take().map_or(Ok(()), TempDir::close);
        removed.map_err(|error| {
            CliError::failed(format!("cannot remove {}: {error}. Remove it manually.", self.root.display()))
        })
    }

    /// Leaves the folder where it is.
    pub(super) fn keep(self) -> PathBuf {
        self.owned.map_or(self.root, TempDir::keep)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The session store.
    pub(super) fn store(&self) -> PathBuf {
        self.root.join("sessions.db")
    }

    fn script_file(&self) -> PathBuf {
        self.root.join("script.toml")
    }

    fn requests_file(&self) -> PathBuf {
        self.root.join("requests.log")
    }

    /// The requests that reached the model: session and turn of each, in order.
    pub(super) fn requests(&self) -> Vec<(String, u32)> {
        let text = std::fs::read_to_string(self.requests_file()).unwrap_or_default();
        let request = |line: &str| {
            let mut words = line.split(' ');
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        };
        text.lines().filter_map(request).collect()
    }

    /// Flags of the run.
    pub(super) fn flags(&self) -> Flags {
        Flags {
            model: Some(format!("{SCRIPT_PREFIX}{}", self.script_file().display())),
            mode: Some(Mode::Auto),
            cwd: Some(self.root.join("project")),
            budget_tokens: Some(BUDGET_TOKENS),
            budget_usd: Some(BUDGET_USD),
            ..Flags::default()
        }
    }

    /// Settings of the run, which no configuration of the user changes.
    pub(super) fn settings(&self) -> Result<Settings, CliError> {
        Settings::load_for_demo(&self.flags(), self.store())
    }

    fn write_project(&self) -> Result<(), CliError> {
        use std::os::unix::fs::PermissionsExt;
        for (name, content) in PROJECT {
            let file = self.root.join("project").join(name);
            if let Some(parent) = file.parent() {
                std::fs::create_dir_all(parent).map_err(not_created)?;
            }
            std::fs::write(&file, content).map_err(not_created)?;
            if name.ends_with(".sh") {
                std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))
                    .map_err(not_created)?;
            }
        }
        Ok(())
    }
}

fn not_created(error: std::io::Error) -> CliError {
    CliError::failed(format!(
        "cannot create the demo's project: {error}. Set TMPDIR to a writable directory with free space."
    ))
}
