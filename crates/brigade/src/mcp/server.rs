//! A server that is connected, and what it said about its tools when it was.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use brigade_core::ToolOutput;
use rmcp::ServiceError;
use rmcp::model::{ErrorCode, JsonObject, PaginatedRequestParams, Tool};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::approved::{ApprovedTools, ToolDefinitions, ToolState, check_definition};
use super::call_timeout::{CallTimeout, ProgressListener};
use super::connect::{Connection, sanitize};
use super::http_errors::LostRequest;
use super::request::{self, CallFailure};
use super::resource_tools::ResourceTool;
use super::resources::ServerFeatures;
use super::tool::ServerTool;
use super::tool_changes::{ChangeMark, ToolChanges};
use super::{ServerConfig, Transport, content, name};
use crate::task::{AbortOnDrop, spawn};
use crate::tool::{AnyTool, ToolChange, ToolContext};

/// The most tools of a server.
const MAX_TOOLS: usize = 256;
/// The most pages that a list may have.
const MAX_PAGES: usize = 64;

pub(super) const INPUT_UNSUPPORTED: &str = "it wants to ask back, which is not supported";

/// How often a server that ended soon after its start is started again.
const MAX_RESTARTS: u32 = 5;
/// How long is waited before it is started again; twice as long each time.
const RESTART_DELAY: Duration = Duration::from_millis(100);
/// A server that ran this long ended for another reason than its start.
const STABLE_UPTIME: Duration = Duration::from_secs(60);
/// How long what changed is asked about after a call, while its answer waits.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// The tools that are offered, and what is left out.
pub(super) type OfferedTools = (Vec<Arc<dyn AnyTool>>, Vec<String>);

/// A server that is used.
pub(super) struct Server {
    /// What it is called in the names of its tools.
    name: String,
    config: ServerConfig,
    features: ServerFeatures,
    active: Mutex<ActiveConnection>,
    approved: StdMutex<ApprovedTools>,
    changes: Arc<ToolChanges>,
    _watch_changes: AbortOnDrop<()>,
}

/// The connection that is used now.
struct ActiveConnection {
    connection: Arc<Connection>,
    since: Instant,
    /// How often it was started again without running long.
    restarts: u32,
}

impl Server {
    /// Connects, and takes down what there is.
    pub(super) async fn start(name: String, config: ServerConfig) -> Result<OfferedTools, String> {
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

    /// Makes tools of ours from those that can be used.
    fn offer(self: &Arc<Server>, name: &str, tools: Vec<Tool>) -> OfferedTools {
        let mut problems = Vec::new();
        let mut named: BTreeMap<String, Vec<Tool>> = BTreeMap::new();
        for tool in tools {
            match name::tool(name, &tool.name).and_then(|name| check_definition(&tool).map(|()| name)) {
                Ok(name) => named.entry(name).or_default().push(tool),
                Err(problem) => problems.push(problem),
            }
        }
        let mut offered: Vec<Arc<dyn AnyTool>> = Vec::new();
        for (name, mut same) in named {
            match same.pop() {
                Some(tool) if same.is_empty() => {
                    offered.push(Arc::new(ServerTool::new(self.clone(), name, tool)));
                }
                _ => problems
                    .push(format!("several of its tools would be called '{name}', so none is offered")),
            }
        }
        for resource_tool in ResourceTool::of(self, name) {
            let local_name = resource_tool.spec().name.clone();
            match offered.iter().any(|tool| tool.spec().name == local_name) {
                true => problems
                    .push(format!("it has a tool called '{local_name}' itself, so ours is not offered")),
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

    /// A connection that can be used. A server that ended is started again, unless it was ended for what it did.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut active = self.active.lock().await;
        if !active.connection.is_closed() {
            return Ok(active.connection.clone());
        }
        let close_reason = &active.connection.close_reason;
        let why = close_reason.reason().unwrap_or("it closed the connection").to_owned();
        if close_reason.is_protocol_violation() {
            return Err(format!("{why}; its tools cannot be used any more in this run"));
        }
        if active.since.elapsed() >= STABLE_UPTIME {
            active.restarts = 0;
        }
        if active.restarts >= MAX_RESTARTS {
            return Err(format!(
                "{why}; it was started again {MAX_RESTARTS} times, so its tools cannot be used any more in this run"
            ));
        }
        tokio::time::sleep(RESTART_DELAY * (1 << active.restarts)).await;
        active.restarts += 1;
        let mark = self.changes.mark();
        let (connection, tools) = connect(&self.name, &self.config, &self.changes)
            .await
            .map_err(|again| format!("{why}; it cannot be started again: {again}"))?;
        self.update_tools(&tools, mark);
        active.connection = Arc::new(connection);
        active.since = Instant::now();
        Ok(active.connection.clone())
    }

    fn approved(&self) -> MutexGuard<'_, ApprovedTools> {
        self.approved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a tool. The server is told where nobody waits for the answer any more.
    pub(super) async fn call(
        &self,
        local_name: &str,
        remote_name: &str,
        arguments: JsonObject,
        context: &ToolContext,
    ) -> ToolOutput {
        let timeout = Arc::new(match context.loan.is_granted() {
            // It keeps to the time that it is told, and who does not hear its account counts all of the loan as used.
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
                    Some(LostRequest::MaybeExecuted(why)) => outcome_unknown(&why),
                    Some(LostRequest::NotExecuted(what)) => what,
                    None => error_message(&connection, error).await,
                }),
                Err(CallFailure::Message(why)) => Err(why.to_owned()),
            }
        };
        let output = self.within(&timeout, work, context).await;
        // What the call changed is known before the next one is judged.
        tokio::select! {
            () = self.catch_up() => {}
            () = context.stop_requested() => {}
        }
        output
    }

    /// Waits for an answer, but not for ever.
    pub(super) async fn within_time(
        &self,
        work: impl Future<Output = Result<ToolOutput, String>>,
        context: &ToolContext,
    ) -> ToolOutput {
        self.within(&CallTimeout::new(self.config.call_timeout), work, context).await
    }

    async fn within(
        &self,
        timeout: &CallTimeout,
        work: impl Future<Output = Result<ToolOutput, String>>,
        context: &ToolContext,
    ) -> ToolOutput {
        let failed = |why: &str| ToolOutput::error(format!("MCP server '{}': {why}", self.config.name));
        tokio::select! {
            biased;
            answer = work => answer.unwrap_or_else(|why| failed(&why)),
            limit = timeout.expired() => failed(&outcome_unknown(&format!(
                "there was no answer within {}, and the call was cancelled",
                seconds(limit)
            ))),
            () = context.stop_requested() => failed("the call was cancelled"),
        }
    }

    /// How a tool differs from what was approved, as far as the server has said so.
    pub(super) fn change(&self, tool: &str) -> Option<ToolChange> {
        match self.approved().state(tool) {
            ToolState::Changed(change) => Some(change),
            ToolState::Approved | ToolState::Gone(_) => None,
        }
    }

    /// A person wants a tool as it is now.
    pub(super) fn accept(&self, tool: &str, change: &ToolChange) {
        self.approved().accept(tool, change);
    }

    /// Lists the tools again if the server said that they changed. Until it has answered, that stays to be done, also
    /// where nobody waits for it any more.
    async fn refresh_tools(&self, connection: &Connection) -> Result<(), String> {
        // Whoever asks at the same time waits for what is being listed.
        let _active = self.active.lock().await;
        if let Some(mark) = self.changes.pending() {
            let tools = list(connection).await;
            let cannot = |why| format!("its tools have changed and cannot be listed again: {why}");
            self.update_tools(&tools.map_err(cannot)?, mark);
        }
        Ok(())
    }

    /// Takes down what the server says now.
    fn update_tools(&self, tools: &[Tool], mark: ChangeMark) {
        let definitions = ToolDefinitions::of(tools);
        self.approved().update_tools(definitions);
        self.changes.mark_handled(mark);
    }

    /// Asks what changed, but not for long. A call asks again before it is made.
    async fn catch_up(&self) {
        let _ = tokio::time::timeout(REFRESH_TIMEOUT, async {
            let connection = self.active.lock().await.connection.clone();
            match connection.is_closed() {
                true => Ok(()),
                false => self.refresh_tools(&connection).await,
            }
        })
        .await;
    }

    /// Refuses a tool that is no longer what agents were told and people approved: it changed since the call was
    /// judged.
    fn require_approved(&self, tool: &str) -> Result<(), String> {
        match self.approved().state(tool) {
            ToolState::Approved => Ok(()),
            ToolState::Changed(_) => Err(format!(
                "the definition of its tool '{tool}' has changed since it was approved, so it was not called; call it \
                 again, and the person is asked"
            )),
            ToolState::Gone(why) => Err(why),
        }
    }
}

/// Hears of changes while no call is under way.
async fn watch_changes(server: Weak<Server>, changes: Arc<ToolChanges>) {
    loop {
        changes.wait().await;
        let Some(server) = server.upgrade() else { return };
        server.catch_up().await;
    }
}

/// Connects, and asks for the tools.
async fn connect(
    name: &str,
    config: &ServerConfig,
    changes: &Arc<ToolChanges>,
) -> Result<(Connection, Vec<Tool>), String> {
    let limit = config.start_timeout;
    let started = tokio::time::timeout(limit, async {
        let connection = Connection::open(name, &config.transport, changes).await?;
        let tools = list(&connection).await.map_err(|why| format!("its tools cannot be listed: {why}"))?;
        Ok((connection, tools))
    });
    started.await.unwrap_or_else(|_| Err(format!("it was not ready within {}", seconds(limit))))
}

/// Message about a call that may have had an effect.
fn outcome_unknown(why: &str) -> String {
    format!("outcome unknown: {why}. Check whether the call took effect before you repeat it.")
}

/// The lost connection that an error is about, if it is about one.
async fn connection_lost(connection: &Connection, error: &ServiceError) -> Option<LostRequest> {
    match error {
        ServiceError::TransportClosed | ServiceError::TransportSend(_) | ServiceError::Cancelled { .. } => {
            Some(connection.lost_request(error).await)
        }
        _ => None,
    }
}

/// What failed, in words. What was asked for changes nothing.
pub(super) async fn error_message(connection: &Connection, error: ServiceError) -> String {
    if let Some(LostRequest::NotExecuted(why) | LostRequest::MaybeExecuted(why)) =
        connection_lost(connection, &error).await
    {
        return why;
    }
    match error {
        ServiceError::McpError(error) if error.code == ErrorCode::METHOD_NOT_FOUND => {
            format!("it does not know what was asked of it: {}", sanitize(&error.message))
        }
        ServiceError::McpError(error) => format!("it answered with an error: {}", sanitize(&error.message)),
        ServiceError::UnexpectedResponse => "it answered with something else than what was asked".to_owned(),
        other => sanitize(&other.to_string()),
    }
}

/// All tools.
async fn list(connection: &Connection) -> Result<Vec<Tool>, String> {
    let page = |params| async {
        let page = connection.peer().list_tools(Some(params)).await?;
        Ok((page.tools, page.next_cursor))
    };
    pages(connection, MAX_TOOLS, page).await
}

/// A list, page by page. A server that does not know the list has nothing on it.
pub(super) async fn pages<T, F>(
    connection: &Connection,
    max_entries: usize,
    page: impl Fn(PaginatedRequestParams) -> F,
) -> Result<Vec<T>, String>
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
            Err(error) => return Err(error_message(connection, error).await),
        };
        all.extend(more);
        if all.len() > max_entries {
            return Err(format!("they are more than {max_entries}"));
        }
        match next {
            Some(next) => cursor = Some(next),
            None => return Ok(all),
        }
    }
    Err(format!("the list has more than {MAX_PAGES} pages"))
}

fn seconds(duration: Duration) -> String {
    match duration.as_millis() {
        1_000 => "1 second".to_owned(),
        millis if millis % 1_000 == 0 => format!("{} seconds", millis / 1_000),
        millis => format!("{millis} ms"),
    }
}
