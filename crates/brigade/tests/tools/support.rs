//! Workspace for tool tests, with a folder next to it that must stay unreachable.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade::tool::{EditPlan, Files, ToolContext, Toolbox, Workspace};
use brigade_core::permission::{Mode, Permissions, Rule};
use brigade_core::{CallId, SessionId, ToolOutput};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

pub(super) const SECRET: &str = "outside secret";

pub(super) struct ToolHarness {
    folder: TempDir,
    pub(super) files: Files,
}

impl ToolHarness {
    /// Creates a workspace without rules.
    pub(super) fn new() -> ToolHarness {
        ToolHarness::with(Permissions { mode: Mode::Auto, ..Permissions::default() }, &[""])
    }

    /// Creates a workspace with these deny rules.
    pub(super) fn denying(rules: &[&str]) -> ToolHarness {
        let deny = rules.iter().map(|rule| rule.parse::<Rule>().unwrap()).collect();
        ToolHarness::with(Permissions { mode: Mode::Auto, deny, ..Permissions::default() }, &[""])
    }

    /// Creates a workspace with these ask rules.
    pub(super) fn asking(rules: &[&str]) -> ToolHarness {
        let ask = rules.iter().map(|rule| rule.parse::<Rule>().unwrap()).collect();
        ToolHarness::with(Permissions { mode: Mode::Auto, ask, ..Permissions::default() }, &[""])
    }

    pub(super) fn with(permissions: Permissions, paths: &[&str]) -> ToolHarness {
        let folder = tempfile::tempdir().unwrap();
        for name in ["w", "w2"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("secret"), SECRET).unwrap();
        std::fs::write(folder.path().join("w2/secret"), SECRET).unwrap();
        let workspace = Workspace::open(&folder.path().join("w")).unwrap();
        let paths: BTreeSet<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        ToolHarness { files: Files::new(workspace, Arc::new(permissions), paths), folder }
    }

    pub(super) fn outside(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.files.workspace().root().join(path)
    }

    /// Writes a file into the workspace.
    pub(super) fn put(&self, path: &str, content: impl AsRef<[u8]>) -> &ToolHarness {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    pub(super) fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    /// Creates a symbolic link in the workspace.
    pub(super) fn link(&self, path: &str, target: impl AsRef<Path>) -> &ToolHarness {
        std::os::unix::fs::symlink(target, self.path(path)).unwrap();
        self
    }

    pub(super) fn context(&self) -> ToolContext {
        ToolContext {
            session: SessionId::root(7),
            call: CallId { turn: 1, index: 0 },
            files: self.files.clone(),
            shell: None,
            sandbox: brigade::sandbox::CommandSandbox::none(),
            hosts: brigade::tool::HostAsker::deny(),
            stop: watch::channel(false).1,
            remote_context: brigade_core::RemoteContext::default(),
            loan: brigade::tool::RemoteLoan::default(),
            progress: brigade::tool::ProgressReporter::default(),
            seen: brigade::tool::SeenSlot::default(),
        }
    }

    /// Calls a tool.
    pub(super) fn call(&self, tool: &str, arguments: Value) -> ToolOutput {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let toolbox = Toolbox::standard();
        runtime.block_on(toolbox.get(tool).unwrap().run(arguments, &self.context()))
    }

    /// Calls a tool and expects success.
    pub(super) fn ok(&self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments);
        assert!(!output.is_error(), "{tool} failed: {}", output.text);
        output.text.to_string()
    }

    /// Calls a tool and expects an error.
    pub(super) fn error(&self, tool: &str, arguments: Value) -> String {
        let output = self.call(tool, arguments);
        assert!(output.is_error(), "{tool} worked: {}", output.text);
        output.text.to_string()
    }

    pub(super) fn plan(&self, tool: &str, arguments: Value) -> Result<EditPlan, String> {
        let toolbox = Toolbox::standard();
        toolbox.get(tool).unwrap().plan(arguments, &self.files).map_err(|output| output.text.to_string())
    }

    /// Plans a change and applies it, as the driver does.
    pub(super) fn edit(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let plan = self.plan(tool, arguments)?;
        let outcome = self.files.replace(&plan.path, &plan.content, plan.before);
        outcome.map(|()| plan.report).map_err(|error| error.to_string())
    }
}
