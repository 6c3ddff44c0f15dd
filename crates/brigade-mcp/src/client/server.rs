//! A connected server and its approved tool definitions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use brigade_core::ToolOutput;
use rmcp::ServiceError;
use rmcp::model::{ErrorCode, JsonObject, PaginatedRequestParams, Tool};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::debug;

use super::approved::{ApprovedTools, ToolDefinitions, ToolState, check_definition};
use super::call_timeout::{CallTimeout, ProgressListener};
use super::connect::{CLOSED, Connection, sanitize};
use super::http_errors::LostRequest;
use super::request::{self, CallFailure};
use super::resource_tools::ResourceTool;
use super::resources::ServerFeatures;
use super::tool::ServerTool;
use super::tool_changes::{ChangeMark, ToolChanges};
use super::{McpError, ServerConfig, Transport, content, name};
use brigade_base::task::{AbortOnDrop, spawn};
use brigade_tools::{AnyTool, ToolChange, ToolContext};

/// Maximum number of tools of a server.
const MAX_TOOLS: usize = 256;
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 64;

pub(super) const INPUT_UNSUPPORTED: &str = "it requested user input, which is not supported";

/// Maximum number of restarts of a server that exits soon after its start.
const MAX_RESTARTS: u32 = 5;
/// Delay before a restart. It doubles each time.
const RESTART_DELAY: Duration = Duration::from_millis(100);
/// After this time, an exit is not attributed to the start.
const STABLE_UPTIME: Duration = Duration::from_secs(60);
/// Timeout for refreshing changed tools after a call, while its answer is held back.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// The tools that are offered, and problems with the others.
pub(super) type OfferedTools = (Vec<Arc<dyn AnyTool>>, Vec<String>);

/// A server in use.
pub(super) struct Server {
    /// The server's name in the names of its tools.
    name: String,
    config: ServerConfig,
    features: ServerFeatures,
    active: Mutex<ActiveConnection>,
    approved: StdMutex<ApprovedTools>,
    changes: Arc<ToolChanges>,
    _watch_changes: AbortOnDrop<()>,
}

/// The current connection.
struct ActiveConnection {
    connection: Arc<Connection>,
    since: Instant,
    /// Number of restarts without a long uptime in between.
    restarts: u32,
}

impl Server {
    /// Connects to a server and returns its tools.
    pub(super) async fn start(name: String, config: ServerConfig) -> Result<OfferedTools, McpError> {
        let changes = Arc::new(ToolChanges::default());
        let (connection, tools) = connect(&name, &config, &changes).await?;
        let features = ServerFeatures::of(&connection).await;
        let server = Arc::new_cyclic(|server: &Weak<Server>| Server {
            _watch_changes: AbortOnDrop(spawn(watch_changes(server.clone(), changes.clone()))),
            features,
            active: Mutex::new(ActiveConnection {
                connection: Arc::new(connection),
                since: Instant::now(),
                restarts: 0,
            }),
            approved: StdMutex::new(ApprovedTools::new(ToolDefinitions::of(&tools))),
            changes,
            name,
            config,
        });
        Ok(server.offer(&server.name, tools))
    }

    /// Creates tools for the definitions that can be used.
    fn offer(self: &Arc<Server>, name: &str, tools: Vec<Tool>) -> OfferedTools {
        let mut problems = Vec::new();
        let mut named: BTreeMap<String, Vec<Tool>> = BTreeMap::new();
        for tool in tools {
            match name::tool(name, &tool.name).and_then(|name| check_definition(&tool).map(|()| name)) {
                Ok(name) => named.entry(name).or_default().push(tool),
                Err(problem) => problems.push(problem.to_string()),
            }
        }
        let mut offered: Vec<Arc<dyn AnyTool>> = Vec::new();
        for (name, mut same) in named {
            match same.pop() {
                Some(tool) if same.is_empty() => {
                    offered.push(Arc::new(ServerTool::new(self.clone(), name, tool)));
                }
                _ => problems.push(format!("cannot offer the tool '{name}': several tools have this name")),
            }
        }
        for resource_tool in ResourceTool::of(self, name) {
            let local_name = resource_tool.spec().name.clone();
            match offered.iter().any(|tool| tool.spec().name == local_name) {
                true => problems.push(format!(
                    "cannot offer the built-in tool '{local_name}': the server has a tool with this name"
                )),
                false => offered.push(Arc::new(resource_tool)),
            }
        }
        (offered, problems)
    }

    /// Whether calls leave this machine.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.config.transport, Transport::Http(_))
    }

    /// Whether the server has resources and prompts.
    pub(super) fn features(&self) -> ServerFeatures {
        self.features
    }

    /// Returns an open connection. A server that exited is restarted, unless it violated the protocol.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, McpError> {
        let mut active = self.active.lock().await;
        if !active.connection.is_closed() {
            return Ok(active.connection.clone());
        }
        let close_reason = &active.connection.close_reason;
        let why = close_reason.reason().unwrap_or(CLOSED).to_owned();
        if close_reason.is_protocol_violation() {
            return Err(McpError::Protocol(format!("{why}; its tools can no longer be used in this run")));
        }
        if active.since.elapsed() >= STABLE_UPTIME {
            active.restarts = 0;
        }
        if active.restarts >= MAX_RESTARTS {
            return Err(McpError::Connect(format!(
                "{why}; it was restarted {MAX_RESTARTS} times, so its tools can no longer be used in this run"
            )));
        }
        tokio::time::sleep(RESTART_DELAY * (1 << active.restarts)).await;
        active.restarts += 1;
        debug!(target: "brigade::mcp", server = self.name, restarts = active.restarts, "reconnecting");
        let mark = self.changes.mark();
        let (connection, tools) = connect(&self.name, &self.config, &self.changes)
            .await
            .map_err(|again| McpError::Connect(format!("{why}; cannot restart it: {again}")))?;
        self.update_tools(&tools, mark);
        active.connection = Arc::new(connection);
        active.since = Instant::now();
        Ok(active.connection.clone())
    }

    fn approved(&self) -> MutexGuard<'_, ApprovedTools> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a tool. If the future is dropped, the server receives a cancellation.
    pub(super) async fn call(
        &self,
        local_name: &str,
        remote_name: &str,
        arguments: JsonObject,
        context: &ToolContext,
    ) -> ToolOutput {
        let timeout = Arc::new(match context.loan.is_granted() {
            // The server knows the deadline. Without its usage report the whole loan counts as used, so the
            // report is awaited.
            true => CallTimeout::until_deadline(context.remote_context.deadline, self.config.call_timeout),
            false => CallTimeout::new(self.config.call_timeout),
        });
        let listener = Arc::new(ProgressListener {
            tool: local_name.to_owned(),
            timeout: timeout.clone(),
            progress: context.progress.clone(),
            last_reported: StdMutex::default(),
        });
        let work = async {
            let connection = self.connection().await?;
            self.refresh_tools(&connection).await?;
            self.require_approved(remote_name)?;
            let answer = request::call_tool(&connection, remote_name, arguments, context, &listener).await;
            match answer {
                Ok(result) => Ok(content::output(&result)),
                Err(CallFailure::Service(error)) => Err(match connection_lost(&connection, &error).await {
                    Some(LostRequest::MaybeExecuted(why)) => McpError::Request(outcome_unknown(&why)),
                    Some(LostRequest::NotExecuted(what)) => McpError::Request(what),
                    None => request_error(&connection, error).await,
                }),
                Err(CallFailure::Message(why)) => Err(McpError::Request(why.to_owned())),
            }
        };
        let output = self.within(&timeout, work, context).await;
        // Changes caused by the call must be known before the next call is judged.
        tokio::select! {
            () = self.catch_up() => {}
            () = context.stop_requested() => {}
        }
        output
    }

    /// Waits for an answer within the call timeout.
    pub(super) async fn within_time(
        &self,
        work: impl Future<Output = Result<ToolOutput, McpError>>,
        context: &ToolContext,
    ) -> ToolOutput {
        self.within(&CallTimeout::new(self.config.call_timeout), work, context).await
    }

    async fn within(
        &self,
        timeout: &CallTimeout,
        work: impl Future<Output = Result<ToolOutput, McpError>>,
        context: &ToolContext,
    ) -> ToolOutput {
        let failed = |why: &str| ToolOutput::error(format!("MCP server '{}': {why}", self.config.name));
        tokio::select! {
            biased;
            answer = work => answer.unwrap_or_else(|why| failed(&why.to_string())),
            limit = timeout.expired() => failed(&outcome_unknown(&format!(
                "no response within {}; the call was cancelled",
                seconds(limit)
            ))),
            () = context.stop_requested() => failed("the call was cancelled"),
        }
    }

    /// Returns the difference between a tool and its approved definition, as far as the server has reported
    /// it.
    pub(super) fn change(&self, tool: &str) -> Option<ToolChange> {
        match self.approved().state(tool) {
            ToolState::Changed(change) => Some(change),
            ToolState::Approved | ToolState::Gone(_) => None,
        }
    }

    /// Approves a tool's changed definition.
    pub(super) fn accept(&self, tool: &str, change: &ToolChange) {
        self.approved().accept(tool, change);
    }

    /// Lists the tools again if the server reported a change. The change stays pending until the server has
    /// answered, even if this future is dropped.
    async fn refresh_tools(&self, connection: &Connection) -> Result<(), McpError> {
        // Concurrent callers wait for the list in progress.
        let _active = self.active.lock().await;
        if let Some(mark) = self.changes.pending() {
            let tools = list(connection).await;
            let cannot =
                |why| McpError::Request(format!("its tools have changed; cannot list them again: {why}"));
            self.update_tools(&tools.map_err(cannot)?, mark);
        }
        Ok(())
    }

    /// Records the server's current tools.
    fn update_tools(&self, tools: &[Tool], mark: ChangeMark) {
        let definitions = ToolDefinitions::of(tools);
        self.approved().update_tools(definitions);
        self.changes.mark_handled(mark);
    }

    /// Refreshes changed tools, within a short timeout. A call refreshes them again before it is sent.
    async fn catch_up(&self) {
        let _ = tokio::time::timeout(REFRESH_TIMEOUT, async {
            let connection = self.active.lock().await.connection.clone();
            if connection.is_closed() { Ok(()) } else { self.refresh_tools(&connection).await }
        })
        .await;
    }

    /// Rejects a tool whose definition is no longer the approved one, because it changed after the call was
    /// judged.
    fn require_approved(&self, tool: &str) -> Result<(), McpError> {
        match self.approved().state(tool) {
            ToolState::Approved => Ok(()),
            ToolState::Changed(_) => Err(McpError::Tool(format!(
                "its tool '{tool}' was not called: its definition has changed since it was approved. Call it again to ask \
                 the user for approval."
            ))),
            ToolState::Gone(why) => Err(why),
        }
    }
}

/// Refreshes changed tools while no call is in progress.
async fn watch_changes(server: Weak<Server>, changes: Arc<ToolChanges>) {
    loop {
        changes.wait().await;
        let Some(server) = server.upgrade() else { return };
        server.catch_up().await;
    }
}

/// Connects and lists the tools.
async fn connect(
    name: &str,
    config: &ServerConfig,
    changes: &Arc<ToolChanges>,
) -> Result<(Connection, Vec<Tool>), McpError> {
    let limit = config.start_timeout;
    let transport = match &config.transport {
        Transport::Stdio(_) => "stdio",
        Transport::Http(_) => "http",
    };
    debug!(target: "brigade::mcp", server = name, transport, "connecting");
    let start = Instant::now();
    let started = tokio::time::timeout(limit, async {
        let connection = Connection::open(name, &config.transport, changes).await?;
        let protocol = connection.peer().peer_info().map(|info| info.protocol_version.to_string());
        debug!(target: "brigade::mcp", server = name, protocol, "handshake complete");
        let cannot = |why| McpError::Connect(format!("cannot list its tools: {why}"));
        let tools = list(&connection).await.map_err(cannot)?;
        Ok((connection, tools))
    });
    let result = started
        .await
        .unwrap_or_else(|_| Err(McpError::Connect(format!("it was not ready within {}", seconds(limit)))));
    let elapsed_ms = start.elapsed().as_millis() as u64;
    match &result {
        Ok((_, tools)) => {
            debug!(target: "brigade::mcp", server = name, tools = tools.len(), elapsed_ms, "connected");
        }
        // The cause may quote the server. It is reported to the user anyway.
        Err(_) => debug!(target: "brigade::mcp", server = name, elapsed_ms, "cannot connect"),
    }
    result
}

/// Message about a call that may have taken effect.
fn outcome_unknown(why: &str) -> String {
    let why = why.trim_end_matches('.');
    format!("outcome unknown: {why}. Check whether the call took effect before you repeat it.")
}

/// Returns the lost request, if the error is about a lost connection.
async fn connection_lost(connection: &Connection, error: &ServiceError) -> Option<LostRequest> {
    match error {
        ServiceError::TransportClosed | ServiceError::TransportSend(_) | ServiceError::Cancelled { .. } => {
            Some(connection.lost_request(error).await)
        }
        _ => None,
    }
}

/// Returns the error of a failed request without side effects.
pub(super) async fn request_error(connection: &Connection, error: ServiceError) -> McpError {
    if let Some(LostRequest::NotExecuted(why) | LostRequest::MaybeExecuted(why)) =
        connection_lost(connection, &error).await
    {
        return McpError::Request(why);
    }
    McpError::Request(match error {
        ServiceError::McpError(error) if error.code == ErrorCode::METHOD_NOT_FOUND => {
            format!("it does not support this request: {}", sanitize(&error.message))
        }
        ServiceError::McpError(error) => format!("it answered with an error: {}", sanitize(&error.message)),
        ServiceError::UnexpectedResponse => "it answered with an unexpected message".to_owned(),
        other => sanitize(&other.to_string()),
    })
}

/// Lists all tools.
async fn list(connection: &Connection) -> Result<Vec<Tool>, McpError> {
    let page = |params| async {
        let page = connection.peer().list_tools(Some(params)).await?;
        Ok((page.tools, page.next_cursor))
    };
    pages(connection, MAX_TOOLS, page).await
}

/// Fetches a list page by page. If the server does not support it, the list is empty.
pub(super) async fn pages<T, F>(
    connection: &Connection,
    max_entries: usize,
    page: impl Fn(PaginatedRequestParams) -> F,
) -> Result<Vec<T>, McpError>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), ServiceError>>,
{
    let mut all = Vec::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let (more, next) = match page(PaginatedRequestParams::default().with_cursor(cursor.take())).await {
            Ok(page) => page,
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                return Ok(all);
            }
            Err(error) => return Err(request_error(connection, error).await),
        };
        all.extend(more);
        if all.len() > max_entries {
            return Err(McpError::Protocol(format!("the list has more than {max_entries} entries")));
        }
        match next {
            Some(next) => cursor = Some(next),
            None => return Ok(all),
        }
    }
    Err(McpError::Protocol(format!("the list has more than {MAX_PAGES} pages")))
}

fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        1_000 => "1 second".to_owned(),
        millis if millis % 1_000 == 0 => format!("{} seconds", millis / 1_000),
        millis => format!("{millis} ms"),
    }
}
