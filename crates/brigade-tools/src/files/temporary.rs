//! Files that the commands of a tree have written to their private `/tmp`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_core::permission::{Action, ActionKind, AskReason, Subject, Verdict};

use super::workspace::RequestedPath;
use super::{FileError, Files, OpenedFile, Workspace, escape_controls};

/// The directory as commands see it.
const TEMPORARY: &str = "/tmp";

impl Files {
    /// Makes the files of a directory readable below `/tmp`, as the commands of a tree see it. The directory may not exist
    /// yet. An agent that may not access the whole workspace cannot read them.
    #[must_use]
    pub fn with_temporary(self, directory: Option<PathBuf>) -> Files {
        let has_all = self.paths.contains("");
        Files { temporary: directory.filter(|_| has_all).map(Arc::from), ..self }
    }

    /// Opens a file below the private `/tmp`. Returns `None` if the path does not lead there.
    pub(super) fn open_temporary(&self, path: &str) -> Option<Result<OpenedFile, FileError>> {
        let directory = self.temporary.as_deref()?;
        let below = Path::new(path).strip_prefix(TEMPORARY).ok()?;
        if Path::new(path).starts_with(self.workspace.root()) {
            return None;
        }
        Some(self.open_below(directory, below, path))
    }

    fn open_below(&self, directory: &Path, below: &Path, path: &str) -> Result<OpenedFile, FileError> {
        let shown = || escape_controls(path);
        let Ok(root) = Workspace::open(directory) else {
            return Err(FileError::NotFound { path: shown() });
        };
        let requested = root.parse_path(&below.to_string_lossy())?;
        let requested = RequestedPath { display: shown(), ..requested };
        // The rules name the file as the agent does.
        let check = |real: &Path| self.check_temporary(&requested, real);
        check(Path::new(&requested.lexical))?;
        // The directory belongs to Brigade, and commands can reach nothing else of it.
        let files = Files { workspace: root, guard: Arc::default(), ..self.clone() };
        let found = files.open_requested(&requested, check)?;
        Ok(OpenedFile { real: Path::new(TEMPORARY).join(&found.real), ..found })
    }

    /// Applies the rules to a file below `/tmp`. Nothing was approved for another name than that of the call.
    fn check_temporary(&self, requested: &RequestedPath, below: &Path) -> Result<(), FileError> {
        let named = Path::new(TEMPORARY).join(below);
        let subject = Subject::Path(&named.to_string_lossy());
        let action = Action { tool: "a read", kind: ActionKind::Pure, subject };
        let path = requested.display.clone();
        match self.permissions.check(&action) {
            Verdict::Deny { reason } => Err(FileError::Forbidden { path, reason }),
            Verdict::Ask { reason: AskReason::Rule(rule) } if below != Path::new(&requested.lexical) => {
                let real = escape_controls(&named.to_string_lossy());
                Err(FileError::RuleAsksForRealPath { path, real, rule: rule.to_string() })
            }
            Verdict::Ask { .. } | Verdict::Allow => Ok(()),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use brigade_core::permission::{Mode, Permissions};

    use super::*;

    fn read(files: &Files, path: &str) -> Result<String, String> {
        let content = files.read(path, 1000).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&content).into_owned())
    }

    #[test]
    fn files_of_the_private_directory_can_be_read_and_nothing_beyond_them() {
        let root = tempfile::tempdir().unwrap();
        let (work, temporary) = (root.path().join("work"), root.path().join("tree/tmp"));
        fs::create_dir_all(&work).unwrap();
        let rules = Permissions {
            mode: Mode::Plan,
            deny: vec!["read_file(/tmp/closed/**)".parse().unwrap()],
            ..Permissions::default()
        };
        let files = |paths: BTreeSet<String>| {
            let workspace = Workspace::open(&work).unwrap();
            Files::new(workspace, Arc::new(rules.clone()), paths).with_temporary(Some(temporary.clone()))
        };
        let all = files([String::new()].into());
        assert!(read(&all, "/tmp/out").unwrap_err().contains("does not exist"), "no command has run yet");
        fs::create_dir_all(temporary.join("closed")).unwrap();
        fs::write(temporary.join("out"), "made by a command").unwrap();
        fs::write(temporary.join("closed/x"), "closed").unwrap();
        fs::write(root.path().join("secret"), "CANARY").unwrap();
        for (name, target) in
            [("up", "../../secret"), ("away", "/etc/passwd"), ("near", "out"), ("in", "closed/x")]
        {
            std::os::unix::fs::symlink(target, temporary.join(name)).unwrap();
        }
        assert_eq!(read(&all, "/tmp/out").unwrap(), "made by a command");
        assert_eq!(read(&all, "/tmp/./closed/../near").unwrap(), "made by a command");
        for path in ["/tmp/closed/x", "/tmp/in", "/tmp/./closed/x"] {
            assert!(read(&all, path).unwrap_err().contains("is denied"), "{path}");
        }
        for path in
            ["/tmp/up", "/tmp/away", "/tmp/../etc/passwd", "/tmp/../../secret", "/tmp", "/tmp/", "/tmpx"]
        {
            assert!(read(&all, path).is_err(), "{path}");
        }
        let part = files(["src".to_owned()].into());
        assert!(read(&part, "/tmp/out").unwrap_err().contains("outside the workspace"));
        // A workspace below `/tmp` is at its own place.
        fs::write(work.join("file"), "of the workspace").unwrap();
        let absolute = work.canonicalize().unwrap().join("file");
        assert_eq!(read(&all, absolute.to_str().unwrap()).unwrap(), "of the workspace");
    }
}
