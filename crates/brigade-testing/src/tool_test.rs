//! Single tool calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brigade::core::message::Stop;
use brigade::core::permission::{Mode, Permissions};
use brigade::core::{CallId, Event, RemoteContext, SessionId, ToolOutput, Usage};
use brigade::model::script::Script as ScriptedModel;
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::sandbox::CommandSandbox;
use brigade::tool::{Files, HostAsker, ProgressReporter, RemoteLoan, SeenSlot, Tool, ToolContext};
use brigade::{Models, Runtime, Settings, Task, Workspace};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::Value;
use tokio::sync::watch;

use crate::script::{Reply, Script};

/// Maximum duration of the calls of a test.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of the model in the settings.
const MODEL: &str = "test";

/// Tool calls of one agent, with a workspace in a temporary directory.
///
/// The calls run in a real session: permissions are checked, edits are refused if the agent has not seen the file, and
/// delegation tools start children. The permission mode is `auto`; [`ToolTest::settings`] narrows it.
///
/// ```
/// use brigade_testing::{ToolTest, reply};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let test = ToolTest::new().child("Reader", [reply("It is a list.")]);
/// test.put("notes.txt", "milk\n");
///
/// // A tool, called alone.
/// let output = test.call("grep", json!({ "pattern": "milk" })).await;
/// assert_eq!(output.text.as_str(), "notes.txt:1: milk\n");
///
/// // An edit of a file that the agent has not read.
/// let output = test.call("write_file", json!({ "path": "notes.txt", "content": "" })).await;
/// assert!(output.is_error());
///
/// // A delegation tool, with a scripted child.
/// let output = test.call("delegate", json!({ "role": "Reader", "task": "Read notes.txt." })).await;
/// assert_eq!(output.text.as_str(), "[Reader]: It is a list.");
/// # }
/// ```
///
/// Add your own tools with [`ToolTest::tool`], and restrict permissions with [`ToolTest::settings`]:
///
/// ```
/// use brigade::core::permission::Mode;
/// use brigade_testing::ToolTest;
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let test = ToolTest::new().settings(|settings| settings.permissions.mode = Mode::Plan);
/// let output = test.call("write_file", json!({ "path": "a.txt", "content": "a" })).await;
/// assert!(output.is_error() && !test.path("a.txt").exists());
/// # }
/// ```
pub struct ToolTest {
    folder: tempfile::TempDir,
    settings: Settings,
    children: Script,
}

impl ToolTest {
    /// Creates an empty workspace, the built-in tools and the permission mode `auto`.
    ///
    /// # Panics
    ///
    /// Panics if the temporary directory cannot be created.
    #[expect(clippy::new_without_default, reason = "creates a directory")]
    pub fn new() -> ToolTest {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(MODEL, Workspace::open(folder.path()).unwrap());
        settings.permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
        ToolTest { folder, settings, children: Script::new() }
    }

    /// Changes the settings of the runtime: permissions, limits, tools, agents.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> ToolTest {
        change(&mut self.settings);
        self
    }

    /// Adds a tool.
    pub fn tool(self, tool: impl Tool) -> ToolTest {
        self.settings(|settings| settings.tools = std::mem::take(&mut settings.tools).with(tool))
    }

    /// Adds the replies of a child, given by its role or agent id: one for each turn.
    pub fn child(mut self, agent: &str, replies: impl IntoIterator<Item = Reply>) -> ToolTest {
        self.children = self.children.agent(agent, replies);
        self
    }

    /// Returns the path of a file in the workspace.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a file into the workspace, with its directories.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be written.
    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) -> &ToolTest {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, content).unwrap();
        self
    }

    /// Reads a file of the workspace.
    ///
    /// # Panics
    ///
    /// Panics if the file does not exist or is not UTF-8.
    pub fn get(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    /// Makes one call and returns its result.
    ///
    /// # Panics
    ///
    /// Panics if the call does not end within a minute.
    pub async fn call(&self, tool: &str, arguments: Value) -> ToolOutput {
        self.calls([(tool, arguments)]).await.remove(0)
    }

    /// Makes calls of one agent, one after the other, and returns their results.
    ///
    /// # Panics
    ///
    /// Panics if the calls do not end within a minute, or if the session ends before the last one.
    pub async fn calls<'a>(&self, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Vec<ToolOutput> {
        let calls: Vec<_> =
            calls.into_iter().map(|(tool, arguments)| (tool.to_owned(), arguments.to_string())).collect();
        let count = calls.len();
        let children = self.children.clone().reply("The script of the test has no reply for this agent.");
        let model = CallingModel { calls: calls.into(), children: children.model() };
        let models = Models::default().with(MODEL, model);
        let runtime = Runtime::in_memory(self.settings.clone(), models);
        let run = runtime.start(Task::new("Make the calls of the test.")).await.unwrap();
        let session = run.session().clone();
        let result = tokio::time::timeout(CALL_TIMEOUT, run.result()).await.expect("the calls end").unwrap();
        let records = runtime.store().read(&session, 0).await.unwrap();
        let outputs = records.into_iter().filter_map(|record| match record.event {
            Event::ToolEnded { output, .. } => Some(output),
            _ => None,
        });
        let outputs: Vec<ToolOutput> = outputs.collect();
        assert_eq!(outputs.len(), count, "the session ended early: {:?}", result.outcome);
        outputs
    }

    /// Returns the context of a call outside of a session, to run a [`Tool`] directly. Only the file rules of the
    /// permissions apply.
    pub fn context(&self) -> ToolContext {
        let permissions = Arc::new(self.settings.permissions.clone());
        ToolTest::context_with(Files::new(
            self.settings.workspace.clone(),
            permissions,
            [String::new()].into(),
        ))
    }

    /// Returns the context of a call outside of a session with these files.
    pub fn context_with(files: Files) -> ToolContext {
        ToolContext {
            session: SessionId::root(7),
            call: CallId { turn: 1, index: 0 },
            files,
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

/// Model that makes one call in each turn of the lead. Children get the replies of a script.
struct CallingModel {
    calls: Arc<[(String, String)]>,
    children: ScriptedModel,
}

impl Model for CallingModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        if !request.session.is_root() {
            return self.children.stream(request);
        }
        let index = usize::try_from(request.turn).unwrap_or_default().saturating_sub(1);
        let chunks = match self.calls.get(index).cloned() {
            Some((name, arguments)) => vec![
                Chunk::Call { name, provider_id: None },
                Chunk::Arguments(arguments),
                Chunk::Usage(Usage::default()),
                Chunk::Done(Stop::Calls),
            ],
            None => {
                vec![Chunk::Text("done".to_owned()), Chunk::Usage(Usage::default()), Chunk::Done(Stop::End)]
            }
        };
        stream::iter(chunks.into_iter().map(Ok)).boxed()
    }

    fn model_info(&self, model: &str) -> ModelInfo {
        self.children.model_info(model)
    }
}
