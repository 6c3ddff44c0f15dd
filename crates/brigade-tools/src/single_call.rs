//! Calls of a tool outside of a run, for its unit tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade_core::event::Effect;
use brigade_core::permission::{Mode, Permissions};
use brigade_core::{CallId, RemoteContext, SessionId, ToolOutput};
use serde_json::Value;
use tokio::sync::watch;

use super::{Files, HostAsker, ProgressReporter, RemoteLoan, SeenSlot, ToolContext, Toolbox, Workspace};
use brigade_base::sandbox::CommandSandbox;

impl ToolContext {
    /// Creates the context of a call outside of a run. The tool may access the whole workspace. The context has no
    /// shell and no budget for remote work.
    pub fn standalone(workspace: &Workspace) -> ToolContext {
        let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
        let paths = BTreeSet::from([String::new()]);
        ToolContext {
            session: SessionId::root(0),
            call: CallId { turn: 1, index: 0 },
            files: Files::new(workspace.clone(), Arc::new(permissions), paths),
            shell: None,
            sandbox: CommandSandbox::none(),
            hosts: HostAsker::deny(),
            stop: watch::channel(false).1,
            remote_context: RemoteContext::default(),
            loan: RemoteLoan::default(),
            progress: ProgressReporter::default(),
            seen: SeenSlot::default(),
        }
    }
}

impl Toolbox {
    /// Runs one call outside of a run, for the unit tests of a tool. The arguments are checked and converted as in a
    /// run. No permission is checked, and nothing is recorded.
    ///
    /// ```
    /// # mod brigade { pub use brigade_tools::*; }
    /// use brigade::{ToolContext, Toolbox, Workspace};
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let folder = tempfile::tempdir()?;
    /// std::fs::write(folder.path().join("tea.txt"), "green")?;
    /// let context = ToolContext::standalone(&Workspace::open(folder.path())?);
    /// let output = Toolbox::standard().call("read_file", json!({ "path": "tea.txt" }), &context).await;
    /// assert!(output.text.as_str().contains("green"));
    /// # Ok(()) }
    /// ```
    pub async fn call(&self, tool: &str, arguments: Value, context: &ToolContext) -> ToolOutput {
        let Some(tool) = self.get(tool) else {
            return ToolOutput::error(format!("Unknown tool `{tool}`."));
        };
        if tool.effect() != Effect::Edit {
            return tool.run(arguments, context).await;
        }
        let plan = match tool.plan(arguments, &context.files) {
            Ok(plan) => plan,
            Err(output) => return output,
        };
        match context.files.replace(&plan.path, &plan.content, plan.before) {
            Ok(()) => ToolOutput::ok(plan.report),
            Err(error) => ToolOutput::error(error.to_string()),
        }
    }
}
