//! Brigade's own files are refused under every name.

use std::path::Path;
use std::sync::Arc;

use brigade::sandbox::SandboxSettings;
use brigade::tool::{FileError, FileGuard, Files};
use brigade_core::Hash;
use serde_json::json;

use super::support::ToolHarness;

const CAP: u64 = 1 << 20;

/// Workspace whose guard knows a data directory next to it, which the tests can move into the workspace.
fn guarded() -> ToolHarness {
    let mut harness = ToolHarness::new();
    let data = harness.outside().join("data");
    std::fs::create_dir_all(data.join("logins/deep")).unwrap();
    for name in ["sessions.db", "trust.json", "logins/deep/token"] {
        std::fs::write(data.join(name), "CANARY").unwrap();
    }
    harness.guard(&data);
    harness.put("code", "CANARY of the workspace");
    harness
}

impl ToolHarness {
    fn guard(&mut self, private: &Path) {
        let settings = SandboxSettings { private: vec![private.to_path_buf()], ..SandboxSettings::default() };
        let guard = FileGuard::new(self.files.workspace(), &settings);
        self.files = self.files.clone().guarded(Arc::new(guard));
    }
}

#[track_caller]
fn assert_refused(harness: &ToolHarness, path: &str) {
    let is_private =
        |error: FileError| assert!(matches!(error, FileError::Private { .. }), "{path}: {error:?}");
    let files: &Files = &harness.files;
    is_private(files.read(path, CAP).unwrap_err());
    is_private(files.replace(path, b"x", Some(Hash::of(b"CANARY"))).unwrap_err());
    is_private(files.remove(path, Hash::of(b"CANARY")).unwrap_err());
    assert!(harness.error("read_file", json!({ "path": path })).contains("Brigade's own files"));
    assert!(!harness.error("grep", json!({ "path": path, "pattern": "CANARY" })).contains("CANARY"));
    assert_eq!(std::fs::read(harness.path(path)).unwrap(), b"CANARY");
}

#[test]
fn hard_link_to_a_private_file_is_refused() {
    let harness = guarded();
    for (target, link) in [("sessions.db", "a.txt"), ("logins/deep/token", "b.txt")] {
        std::fs::hard_link(harness.outside().join("data").join(target), harness.path(link)).unwrap();
        assert_refused(&harness, link);
    }
    assert_eq!(harness.ok("grep", json!({ "pattern": "CANARY" })), "code:1: CANARY of the workspace\n");
    // A hard link to another file is like any other name.
    std::fs::hard_link(harness.path("code"), harness.path("other")).unwrap();
    assert!(harness.files.read("other", CAP).is_ok());
}

#[test]
fn private_directory_in_the_workspace_is_refused_after_it_was_renamed() {
    let mut harness = guarded();
    std::fs::rename(harness.outside().join("data"), harness.path("data")).unwrap();
    harness.guard(&harness.path("data"));
    let check = |harness: &ToolHarness, at: &str| {
        for file in ["sessions.db", "logins/deep/token"] {
            assert_refused(harness, &format!("{at}/{file}"));
        }
        let created = format!("{at}/logins/new");
        assert!(matches!(harness.files.replace(&created, b"x", None), Err(FileError::Private { .. })));
        assert!(!harness.path(&created).exists());
        assert!(harness.error("list_dir", json!({ "path": at })).contains("Brigade's own files"));
        assert_eq!(harness.ok("grep", json!({ "pattern": "CANARY" })), "code:1: CANARY of the workspace\n");
        assert!(!harness.ok("glob", json!({ "pattern": "**/*" })).contains("token"));
    };
    check(&harness, "data");
    harness.link("way", "data");
    check(&harness, "way");
    // The guard finds the directory by its path, and then compares inodes.
    std::fs::create_dir(harness.path("deep")).unwrap();
    std::fs::rename(harness.path("data"), harness.path("deep/moved")).unwrap();
    harness.link("data", "deep/moved");
    check(&harness, "deep/moved");
}

#[test]
fn workspace_inside_a_private_directory_has_no_files() {
    let mut harness = guarded();
    let outside = harness.outside().to_path_buf();
    harness.guard(&outside);
    assert!(matches!(harness.files.read("code", CAP), Err(FileError::Private { .. })));
    assert!(matches!(harness.files.replace("new", b"x", None), Err(FileError::Private { .. })));
    assert!(!harness.path("new").exists());
}

#[test]
fn file_that_a_private_link_leads_to_is_private() {
    let harness = guarded();
    harness.put("dotfiles/config.toml", "CANARY");
    let link = harness.outside().join("data/config.toml");
    std::os::unix::fs::symlink(harness.path("dotfiles/config.toml"), link).unwrap();
    assert_refused(&harness, "dotfiles/config.toml");
}
