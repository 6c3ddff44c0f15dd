//! A server over an in-memory store, a scripted model, and clients.

use std::io::Write;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use brigade::core::{Event, SessionId, Status};
use brigade::store::MemoryStore;
use brigade::{Models, Settings, Store, Workspace};
use brigade_mcp::{Server, stdio};
use brigade_testing::{Fault, Script, fault, reply};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams,
    ElicitResult, ElicitationAction, ErrorData, Implementation, MetaObject, ProgressNotificationParam,
    ProtocolVersion, RequestMetaObject,
};
use rmcp::service::{ClientLifecycleMode, NotificationContext, RequestContext, RunningService};
use rmcp::{ClientHandler, ClientServiceExt, RoleClient, ServiceExt};
use serde_json::Value;
use tokio::io::DuplexStream;

/// Time limit of a test.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A child that replies.
pub(crate) fn four() -> Script {
    Script::new().reply(reply("Four.").tokens(10, 5))
}

/// A child that never replies.
pub(crate) fn hangs() -> Script {
    Script::new().reply(fault(Fault::Hang))
}

pub(crate) struct TestServer {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) server: Server,
    _watchdog: Watchdog,
}

/// Aborts the tests if one hangs. A missing response would otherwise be waited for forever.
pub(crate) struct Watchdog(#[expect(dead_code, reason = "dropping it is what is heard")] mpsc::Sender<()>);

impl Watchdog {
    pub(crate) fn new() -> Watchdog {
        let (alive, ended) = mpsc::channel();
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        std::thread::spawn(move || {
            if ended.recv_timeout(3 * TEST_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                // A panic in this thread would go unnoticed, and this output is not captured.
                let _ = writeln!(std::io::stderr(), "{test} hangs");
                std::process::exit(101);
            }
        });
        Watchdog(alive)
    }
}

impl TestServer {
    pub(crate) fn new(script: Script) -> TestServer {
        TestServer::with(script, |_| {})
    }

    pub(crate) fn with(script: Script, tweak: impl Fn(&mut Settings)) -> TestServer {
        let (store, folder) = (Arc::new(MemoryStore::new()), tempfile::tempdir().unwrap());
        let mut settings = Settings::new("script", Workspace::open(folder.path()).unwrap());
        tweak(&mut settings);
        let models = Models::default().with("script", script.model());
        let server = Server::new(store.clone(), settings, models, None).unwrap();
        TestServer::over(store, folder, server)
    }

    pub(crate) fn over(store: Arc<MemoryStore>, folder: tempfile::TempDir, server: Server) -> TestServer {
        TestServer { store, folder, server, _watchdog: Watchdog::new() }
    }

    /// Connects a client over a pipe, with a protocol session.
    pub(crate) async fn client(&self, client: Client) -> RunningService<RoleClient, Client> {
        client.serve(self.pipe()).await.unwrap()
    }

    /// Connects a client over a pipe that uses the newest version, which has no sessions.
    pub(crate) async fn stateless_client(&self, client: Client) -> RunningService<RoleClient, Client> {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let lifecycle = ClientLifecycleMode::Discover { preferred_versions };
        client.serve_with_lifecycle(self.pipe(), lifecycle).await.unwrap()
    }

    /// Returns the client end of a pipe to the server.
    pub(crate) fn pipe(&self) -> DuplexStream {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(there);
        tokio::spawn(stdio::serve(self.server.clone(), input, output, std::future::pending()));
        here
    }

    /// Waits until a session has ended, and returns its status.
    pub(crate) async fn status_of(&self, session: &SessionId) -> Status {
        let end = async {
            loop {
                let records = self.store.read(session, 0).await.unwrap();
                if let Some(Event::Ended { outcome, .. }) = records.last().map(|record| &record.event) {
                    return outcome.status.clone();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, end).await.unwrap()
    }

    /// Waits until the first tree has a thinking child, and returns both ids.
    pub(crate) async fn running_child(&self) -> (SessionId, SessionId) {
        let found = async {
            loop {
                for root in self.store.roots().await.unwrap() {
                    let child: SessionId = format!("{}.1-0", root.root).parse().unwrap();
                    let records = self.store.read(&child, 0).await.unwrap();
                    if records.iter().any(|record| matches!(record.event, Event::Called { .. })) {
                        return (root.root, child);
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, found).await.unwrap()
    }
}

/// A client that records what it receives.
#[derive(Clone, Default)]
pub(crate) struct Client {
    pub(crate) notes: Arc<Mutex<Vec<ProgressNotificationParam>>>,
    pub(crate) supports_tasks: bool,
    /// The answer of its user to elicitations, if it has a user.
    pub(crate) answers: Option<Value>,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.supports_tasks {
            capabilities = ClientCapabilities::builder().enable_tasks().build();
        }
        if self.answers.is_some() {
            capabilities = ClientCapabilities::builder().enable_elicitation().build();
        }
        ClientConfig::new(capabilities, Implementation::new("test", "1"))
    }

    async fn on_progress(&self, note: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.notes.lock().unwrap().push(note);
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.asked.lock().unwrap().push(serde_json::to_string(&request).unwrap());
        let answer = self.answers.clone().unwrap_or_default();
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(answer))
    }
}

/// A tool call.
pub(crate) fn call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

/// A call of `delegate`.
pub(crate) fn delegate() -> CallToolRequestParams {
    call("delegate", serde_json::json!({ "role": "Child", "task": "2 + 2" }))
}

/// The same call, made by an agent of another Brigade with this remote context.
pub(crate) fn from(remote_context: Value, mut request: CallToolRequestParams) -> CallToolRequestParams {
    let mut meta = MetaObject::new();
    meta.insert("brigade/hop".to_owned(), remote_context);
    request.meta = Some(RequestMetaObject::from(meta));
    request
}

/// The text of a result.
#[track_caller]
pub(crate) fn result_text(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text()).map(|text| text.text.clone());
    texts.collect::<Vec<_>>().join("\n")
}

/// The session id in a result.
#[track_caller]
pub(crate) fn session(result: &CallToolResult) -> SessionId {
    result.meta.as_ref().unwrap()["brigade/session"].as_str().unwrap().parse().unwrap()
}
