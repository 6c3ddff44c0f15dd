//! Test servers, and checks of their processes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brigade::Secret;
use brigade::mcp::{ServerConfig, Servers, StdioCommand, Transport};
use brigade::sandbox::ServerSandbox;
use brigade::tool::{AnyTool, Files, ProgressReporter, RemoteLoan, ToolContext, Workspace};
use brigade_core::permission::Permissions;
use brigade_core::{CallId, RemoteContext, SessionId, ToolOutput};
use brigade_testing::TestProgram;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::fixture;

/// Timeout of a call in tests.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum wait until a process must be gone.
const MAX_WAIT: Duration = Duration::from_secs(5);

brigade_testing::guard_entry!();

const SERVER: TestProgram = TestProgram::new(module_path!(), "server_entry");

#[test]
#[ignore = "the entry point of a server, not a test"]
fn server_entry() {
    if SERVER.is_running() {
        fixture::serve();
    }
}

/// A temporary directory, and a context for calls in it.
pub(super) struct McpHarness {
    folder: TempDir,
    pub(super) stop: watch::Sender<bool>,
    progress: Arc<Mutex<Vec<String>>>,
}

impl McpHarness {
    pub(super) fn new() -> McpHarness {
        McpHarness {
            folder: tempfile::tempdir().unwrap(),
            stop: watch::channel(false).0,
            progress: Arc::default(),
        }
    }

    /// Returns the reported progress of calls.
    pub(super) fn progress(&self) -> Vec<String> {
        self.progress.lock().unwrap().clone()
    }

    /// The origin of all calls.
    pub(super) fn remote_context(&self) -> RemoteContext {
        RemoteContext {
            lineage: vec!["abc".to_owned()],
            depth: 2,
            max_depth: Some(4),
            tokens: Some(1000),
            ..RemoteContext::default()
        }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.folder.path().to_path_buf()
    }

    /// Returns what the server recorded.
    pub(super) fn notes(&self) -> String {
        std::fs::read_to_string(self.root().join("notes")).unwrap_or_default()
    }

    /// Configuration of a server with this behaviour.
    pub(super) fn server(&self, name: &str, behaviour: &str) -> ServerConfig {
        let notes = self.root().join("notes").display().to_string();
        let environment = [
            (fixture::BEHAVIOUR_VARIABLE, behaviour),
            (fixture::NOTES_VARIABLE, &notes),
            ("TOKEN", "sesame-7"),
            ("PATH", "/usr/bin:/bin"),
        ];
        let (command, arguments) = SERVER.command();
        let program = StdioCommand {
            guard: guard(),
            directory: self.root(),
            command,
            arguments,
            environment: environment.map(|(name, value)| (name.to_owned(), Secret::new(value))).into(),
            sandbox: ServerSandbox::default(),
        };
        ServerConfig {
            name: name.to_owned(),
            transport: Transport::Stdio(program),
            call_timeout: CALL_TIMEOUT,
            start_timeout: Duration::from_secs(20),
        }
    }

    /// Starts one server called `s` and asserts that it has no problems.
    pub(super) async fn start(&self, behaviour: &str) -> Servers {
        let servers = Servers::start(vec![self.server("s", behaviour)]).await;
        assert_eq!(servers.problems(), []);
        servers
    }

    pub(super) async fn call(&self, servers: &Servers, tool: &str, arguments: Value) -> ToolOutput {
        let files = Files::new(
            Workspace::open(&self.root()).unwrap(),
            Arc::new(Permissions::default()),
            [String::new()].into(),
        );
        let context = ToolContext {
            session: SessionId::root(7),
            call: CallId { turn: 1, index: 0 },
            files,
            shell: None,
            sandbox: brigade::sandbox::CommandSandbox::none(),
            hosts: brigade::tool::HostAsker::deny(),
            stop: self.stop.subscribe(),
            remote_context: self.remote_context(),
            loan: RemoteLoan::default(),
            progress: ProgressReporter::new({
                let progress = self.progress.clone();
                move |line| progress.lock().unwrap().push(line)
            }),
            seen: brigade::tool::SeenSlot::default(),
        };
        self::tool(servers, tool).run(arguments, &context).await
    }

    /// Calls a tool and asserts that it succeeds.
    pub(super) async fn ok(&self, servers: &Servers, tool: &str) -> String {
        let output = self.call(servers, tool, json!({ "text": "hi" })).await;
        assert!(!output.is_error(), "{tool} failed: {}", output.text);
        output.text.to_string()
    }

    /// Calls a tool and asserts that it fails soon.
    pub(super) async fn error(&self, servers: &Servers, tool: &str) -> String {
        let begun = Instant::now();
        let output = self.call(servers, tool, json!({ "text": "hi" })).await;
        assert!(output.is_error(), "{tool} worked: {}", output.text);
        assert!(begun.elapsed() < CALL_TIMEOUT + MAX_WAIT, "{tool} took {:?}", begun.elapsed());
        output.text.to_string()
    }

    /// Returns the process ids of the server and of a process that it started.
    pub(super) async fn pids(&self, servers: &Servers) -> Vec<u32> {
        let text = self.ok(servers, "mcp__s__pids").await;
        let pids: Vec<u32> = text.split(' ').map(|pid| pid.parse().unwrap()).collect();
        // A process that was just started has no command line for a moment.
        until("both run", || pids.iter().all(|pid| is_alive(*pid))).await;
        pids
    }
}

pub(super) fn tool<'a>(servers: &'a Servers, name: &str) -> &'a Arc<dyn AnyTool> {
    servers.tools().iter().find(|tool| tool.spec().name == name).unwrap()
}

pub(super) fn names(servers: &Servers) -> Vec<&str> {
    servers.tools().iter().map(|tool| tool.spec().name.as_str()).collect()
}

fn is_alive(pid: u32) -> bool {
    // A zombie has no command line.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Waits until none of these processes is alive.
pub(super) async fn wait_until_gone(pids: &[u32]) {
    until("all processes are gone", || !pids.iter().any(|pid| is_alive(*pid))).await;
}

/// Polls until the condition holds.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < MAX_WAIT, "not within {MAX_WAIT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
