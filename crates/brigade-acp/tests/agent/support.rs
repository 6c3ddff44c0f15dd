//! A client that speaks plain JSON lines, and the agent behind a pipe.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brigade::model::script;
use brigade::schemars::JsonSchema;
use brigade::store::MemoryStore;
use brigade::{ApprovalPolicy, Models, Runtime, Settings, Store, Tool, ToolContext, ToolOutput, Workspace};
use brigade_acp::agent::{EnvironmentError, Host, SessionEnvironment, serve};
use brigade_core::Event;
use brigade_core::grant::{Authority, Grant};
use brigade_core::permission::Mode;
use brigade_testing::Script;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinSet;

/// Time limit for one message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// A directory, a script, and a store that outlives connections.
pub(crate) struct TestEnv {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Arc<MemoryStore>,
    script: script::Script,
    mode: Mode,
    depth: u32,
    question_timeout: Duration,
    /// The model that the user set for all sessions.
    model: Option<&'static str>,
    /// Whether agents have a tool that connects to hosts.
    connects: bool,
}

/// Tool that asks for a host and reports the answer.
struct Connect;

#[derive(serde::Deserialize, JsonSchema)]
#[schemars(crate = "brigade::schemars")]
struct ConnectInput {
    host: String,
}

impl Tool for Connect {
    const NAME: &'static str = "connect";
    type Input = ConnectInput;

    async fn run(&self, input: ConnectInput, context: &ToolContext) -> ToolOutput {
        let allowed = context.ask_host(&input.host, 443).await;
        ToolOutput::ok(if allowed { "connected" } else { "not connected" })
    }
}

impl TestEnv {
    pub(crate) fn new(script: Script) -> TestEnv {
        TestEnv {
            folder: tempfile::tempdir().unwrap(),
            store: Arc::new(MemoryStore::new()),
            script: script.model(),
            mode: Mode::Edit,
            depth: 10,
            question_timeout: Duration::from_secs(600),
            model: None,
            connects: false,
        }
    }

    pub(crate) fn with_connections(self) -> TestEnv {
        TestEnv { connects: true, ..self }
    }

    pub(crate) fn in_mode(self, mode: Mode) -> TestEnv {
        TestEnv { mode, ..self }
    }

    pub(crate) fn with_max_depth(self, depth: u32) -> TestEnv {
        TestEnv { depth, ..self }
    }

    pub(crate) fn with_question_timeout(self, question_timeout: Duration) -> TestEnv {
        TestEnv { question_timeout, ..self }
    }

    pub(crate) fn with_model(self, model: &'static str) -> TestEnv {
        TestEnv { model: Some(model), ..self }
    }

    /// The authority and grant of each round of a session.
    pub(crate) async fn rounds(&self, session: &str) -> Vec<(Authority, Grant)> {
        let mut rounds = Vec::new();
        for record in self.store.read(&session.parse().unwrap(), 0).await.unwrap() {
            if let Event::Started { grant, .. } = record.event {
                let authority = self.store.blob(grant.authority).await.unwrap().unwrap();
                rounds.push((serde_json::from_str(&authority).unwrap(), grant));
            }
        }
        rounds
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    pub(crate) fn runtime(&self) -> Runtime {
        let mut settings =
            Settings::new(self.model.unwrap_or("script"), Workspace::open(self.folder.path()).unwrap());
        settings.approval_policy = ApprovalPolicy::AskUser;
        settings.permissions.mode = self.mode;
        settings.limits.max_depth = self.depth;
        settings.limits.question_timeout = self.question_timeout;
        settings.delegation_styles.swarm.max_depth = 3;
        settings.limits.retry_pause = Duration::from_millis(1);
        if self.connects {
            settings.tools = settings.tools.with(Connect);
        }
        let named = Script::new().reply("I am another.").model();
        let models = Models::default().with("script", self.script.clone()).with("other", self.script.clone());
        let models = models.with("named", named);
        Runtime::new(self.store.clone(), settings, models)
    }

    /// Connects an initialized client.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(json!({})).await
    }

    pub(crate) async fn client_with(&self, capabilities: Value) -> Client {
        let mut client = self.uninitialized_client();
        let hello = json!({
            "protocolVersion": 1,
            "clientCapabilities": capabilities,
            "clientInfo": {"name": "tester", "version": "1"},
        });
        client.call("initialize", hello).await.unwrap();
        client
    }

    /// Connects a client that has sent nothing.
    pub(crate) fn uninitialized_client(&self) -> Client {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(theirs);
        let host = Arc::new(TestHost { runtime: self.runtime(), model: self.model });
        let mut agent = JoinSet::new();
        agent.spawn(serve(host, reader, writer, std::future::pending()));
        let (reader, writer) = tokio::io::split(ours);
        let lines = BufReader::new(reader).lines();
        Client { writer, lines, agent, last_id: 0, methods: Vec::new(), received: Vec::new() }
    }
}

struct TestHost {
    runtime: Runtime,
    model: Option<&'static str>,
}

impl Host for TestHost {
    fn store(&self) -> Arc<dyn Store> {
        self.runtime.store().clone()
    }

    fn environment<'a>(
        &'a self,
        _folder: &'a Path,
    ) -> BoxFuture<'a, Result<SessionEnvironment, EnvironmentError>> {
        let models = vec!["script".to_owned(), "other".to_owned()];
        let model = self.model.map(str::to_owned);
        let environment = SessionEnvironment {
            runtime: self.runtime.clone(),
            agent: None,
            models,
            model,
            timeout: None,
            proxies: brigade::model::Proxies::default(),
        };
        async move { Ok(environment) }.boxed()
    }

    fn note(&self, _text: &str) {}
}

/// A test client.
pub(crate) struct Client {
    writer: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    agent: JoinSet<()>,
    last_id: i64,
    methods: Vec<String>,
    /// All messages received so far.
    pub(crate) received: Vec<Value>,
}

impl Client {
    pub(crate) async fn send_line(&mut self, line: &str) {
        self.writer.write_all(line.as_bytes()).await.unwrap();
        self.writer.write_all(b"\n").await.unwrap();
    }

    pub(crate) async fn send(&mut self, method: &str, params: Value) -> i64 {
        self.last_id += 1;
        let id = self.last_id;
        self.methods.push(method.to_owned());
        self.send_line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string())
            .await;
        id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.send_line(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await;
    }

    pub(crate) async fn answer(&mut self, id: &Value, result: Value) {
        self.send_line(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()).await;
    }

    /// Returns the next message.
    pub(crate) async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(MESSAGE_TIMEOUT, self.lines.next_line()).await;
        let line = line.expect("a message in time").unwrap().expect("a message before the end");
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0");
        self.received.push(message.clone());
        message
    }

    /// Reads messages until one matches.
    pub(crate) async fn read_until(&mut self, mut is_match: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let message = self.next().await;
            if is_match(&message) {
                return message;
            }
        }
    }

    /// Reads messages until the response to a request.
    pub(crate) async fn response_to(&mut self, id: i64) -> Result<Value, Value> {
        let message = self.read_until(|message| message["id"] == id && message.get("method").is_none()).await;
        match message.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(message["result"].clone()),
        }
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params).await;
        self.response_to(id).await
    }

    /// Opens a new session.
    pub(crate) async fn open(&mut self, folder: &Path) -> String {
        let opened = self.call("session/new", json!({"cwd": folder, "mcpServers": []})).await.unwrap();
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn start_prompt(&mut self, session: &str, text: &str) -> i64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.send("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> Result<Value, Value> {
        let id = self.start_prompt(session, text).await;
        self.response_to(id).await
    }

    /// Waits for a permission request.
    pub(crate) async fn permission_request(&mut self) -> Value {
        self.read_until(|message| message["method"] == "session/request_permission").await
    }

    pub(crate) async fn choose(&mut self, question: &Value, option: &str) {
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        self.answer(&question["id"], outcome).await;
    }

    /// All updates of one kind in a session.
    pub(crate) fn updates(&self, session: &str, kind: &str) -> Vec<Value> {
        let updates = self.received.iter().filter(|message| message["method"] == "session/update");
        updates
            .map(|message| &message["params"])
            .filter(|params| params["sessionId"] == session && params["update"]["sessionUpdate"] == kind)
            .map(|params| params["update"].clone())
            .collect()
    }

    /// The whole text that the agent sent in a session.
    pub(crate) fn agent_text(&self, session: &str) -> String {
        let chunks = self.updates(session, "agent_message_chunk");
        chunks.iter().map(|chunk| chunk["content"]["text"].as_str().unwrap()).collect()
    }

    /// Disconnects and waits until the agent has stopped.
    pub(crate) async fn disconnect(mut self) {
        self.writer.shutdown().await.unwrap();
        let ended = tokio::time::timeout(MESSAGE_TIMEOUT, self.agent.join_next()).await;
        ended.expect("the agent ends").unwrap().unwrap();
    }
}

impl Drop for Client {
    /// Writes all received messages to a file, if requested, to validate them against the protocol schema.
    fn drop(&mut self) {
        let Some(folder) = std::env::var_os("ACP_WIRE_DIR") else { return };
        let file = Path::new(&folder).join(format!("{}.jsonl", std::process::id()));
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
        let mut text = String::new();
        for message in &self.received {
            let method = message["id"].as_i64().filter(|_| message.get("method").is_none());
            let method = method.and_then(|id| self.methods.get(usize::try_from(id).ok()?.checked_sub(1)?));
            text.push_str(&json!({"answers": method, "message": message}).to_string());
            text.push('\n');
        }
        file.write_all(text.as_bytes()).unwrap();
    }
}
