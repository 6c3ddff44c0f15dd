//! Brigade as an MCP server: its tools and their calls.
//!
//! [`Server`] offers the delegation styles as tools. Each call is a root session: it is recorded, has a
//! budget and a depth, and can be resumed. [`stdio`] and [`http`] are the transports. [`http`] works with any
//! other handler, too. The library never prints, and it reads neither the environment nor the home directory.

mod approvals;
mod arguments;
pub mod http;
pub(crate) mod methods;
mod progress;
mod results;
mod session_tools;
mod sessions;
mod specs;
pub mod stdio;
mod task;
mod text;
mod timestamp;
mod visibility;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brigade_base::event_stream::{RunEvent, RunEvents};
use brigade_base::model::Models;
use brigade_base::model::passthrough::{self, Passthrough};
use brigade_base::store::Store;
use brigade_core::{Agent, RemoteContext};
use brigade_runtime::open_sessions::{BackgroundPrompt, OpenError, OpenLimits, PromptPermit, SessionOptions};
use brigade_runtime::{ApprovalPolicy, OpenSessions, Run, RunError, Runtime, Settings, Task};
use brigade_tools::{AnyTool, Toolbox};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CreateTaskResult,
    CustomRequest, CustomResult, ErrorData, GetPromptRequestParams, GetPromptResponse, GetTaskParams,
    GetTaskResult, Implementation, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, RequestMetaObject, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer, ServerHandler};
use tokio::sync::OnceCell;
use tracing::debug;

use approvals::ApprovalRequest;
use arguments::Arguments;
use progress::ProgressNotes;
use sessions::{FoundSession, LookupError, RunStatus};
use visibility::Visibility;

/// Agent of the root session of every tree that a client starts.
pub const AGENT: &str = "mcp";

/// Actor that the log records for answers and cancellations.
pub(crate) const CLIENT_ACTOR: &str = "the MCP client";

/// Limits of the calls. A cancelled tree that does not stop in time is abandoned and can be resumed later.
const CALL_LIMITS: OpenLimits = OpenLimits { max_open: 64, stop_timeout: Some(Duration::from_secs(10)) };

const INSTRUCTIONS: &str = "Brigade runs agents for you, each with its own tools, budget and depth limit. Delegate work that is large or separable, and start independent tasks in parallel. The agents see nothing of your conversation: give each one the goal, the context, the files and the expected format of the result. The `_meta` of each result contains the session id under `brigade/session`; pass it to `session_status`, `tell`, `stop` and `read_result`.";

/// Brigade as an MCP server. Clones share their state.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    runtimes: Runtimes,
    /// The runtimes with the tools of all MCP servers, set when the first call needs them.
    loaded: OnceCell<Runtimes>,
    tool_loader: Option<Box<ToolLoader>>,
    agent: Agent,
    tools: Vec<Tool>,
    delegation_tools: BTreeSet<String>,
    /// The running calls, each with a session of its own.
    calls: OpenSessions,
}

/// Runtimes for calls.
struct Runtimes {
    non_interactive: Runtime,
    /// For clients whose user can be asked for approvals.
    interactive: Runtime,
}

/// Starts the MCP servers whose tools the agents use.
type ToolLoader = dyn Fn() -> BoxFuture<'static, Vec<Arc<dyn AnyTool>>> + Send + Sync;

impl Runtimes {
    fn with_tools(&self, tools: &[Arc<dyn AnyTool>]) -> Runtimes {
        let with_tools = |runtime: &Runtime| {
            let mut settings = runtime.settings().clone();
            settings.tools = tools.iter().cloned().fold(settings.tools, Toolbox::with_any);
            runtime.with_settings(settings)
        };
        Runtimes {
            non_interactive: with_tools(&self.non_interactive),
            interactive: with_tools(&self.interactive),
        }
    }
}

/// Reason why a server cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// No delegation style is enabled.
    #[error(
        "cannot serve MCP: no delegation tool is enabled. Enable some with `--faces delegate,subagent,spawn`. `dispatch` also needs an agent file; create one with `brigade agents new ID`."
    )]
    NoDelegationTools,
}

impl Server {
    /// Creates a server over a store. `timeout` limits the time of a tree.
    pub fn new(
        store: Arc<dyn Store>,
        settings: Settings,
        models: Models,
        timeout: Option<Duration>,
    ) -> Result<Server, SetupError> {
        let agent = Agent {
            id: AGENT.to_owned(),
            name: AGENT.to_owned(),
            description: "Forwards a call from an MCP client".to_owned(),
            model: Some(passthrough::in_front_of(&settings.model)),
            fallbacks: settings.fallbacks.clone(),
            // This agent represents the client, which defines the children. They are limited by the user's
            // permissions. Its model calls only the tool that its task names, and that tool delegates.
            tools: None,
            timeout: timeout.and_then(|timeout| u64::try_from(timeout.as_millis()).ok()),
            ignore_instructions: true,
            ..Agent::default()
        };
        let models = models.with(passthrough::PROVIDER, Passthrough);
        let interactive_settings = Settings { approval_policy: ApprovalPolicy::AskUser, ..settings.clone() };
        let interactive = Runtime::new(store.clone(), interactive_settings, models.clone());
        let non_interactive = Runtime::new(store, settings, models);
        let delegation_tools = non_interactive.delegation_tools(&agent);
        if delegation_tools.is_empty() {
            return Err(SetupError::NoDelegationTools);
        }
        let names = delegation_tools.iter().map(|spec| spec.name.clone()).collect();
        let tools =
            delegation_tools.iter().map(specs::delegation_tool).chain(specs::session_tools()).collect();
        let (runtimes, loaded, tool_loader) =
            (Runtimes { non_interactive, interactive }, OnceCell::new(), None);
        let calls = OpenSessions::new(CALL_LIMITS);
        let inner = Inner { runtimes, loaded, tool_loader, agent, tools, delegation_tools: names, calls };
        Ok(Server { inner: Arc::new(inner) })
    }

    /// Sets the MCP servers whose tools the agents use. They are started by the first call. One of them may
    /// start this program again, and a program that is only started does not know its depth.
    #[must_use]
    pub fn with_servers<S: AsRef<[Arc<dyn AnyTool>]> + Send + 'static>(
        mut self,
        start: impl Fn() -> BoxFuture<'static, S> + Send + Sync + 'static,
    ) -> Server {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.tool_loader =
                Some(Box::new(move || Box::pin(start().map(|servers| servers.as_ref().to_vec()))));
        }
        self
    }

    /// The runtimes for a call. A call that will be refused because of its depth starts no servers.
    async fn runtimes(&self, remote_context: Option<&RemoteContext>) -> &Runtimes {
        let base = &self.inner.runtimes;
        let max_depth = base.non_interactive.settings().limits.max_depth;
        let is_too_deep = remote_context.is_some_and(|remote_context| {
            remote_context.depth >= remote_context.max_depth.map_or(max_depth, |limit| limit.min(max_depth))
        });
        match &self.inner.tool_loader {
            Some(tool_loader) if !is_too_deep => {
                self.inner.loaded.get_or_init(|| async { base.with_tools(&tool_loader().await) }).await
            }
            Some(_) | None => base,
        }
    }

    /// Cancels all calls and waits until nothing is running.
    pub async fn close(&self) {
        self.inner.calls.close_all(CLIENT_ACTOR).await;
    }

    /// Starts a tree for a delegation call.
    async fn start(&self, runtime: &Runtime, task: Task) -> Result<(PromptPermit, Run), StartError> {
        let permit = self.inner.calls.open_once(SessionOptions::new(runtime.clone()), ());
        let permit = permit.map_err(|error| match error {
            OpenError::Full => StartError::Refused(BUSY.to_owned()),
            OpenError::Closed => StartError::Internal("the server is stopping".to_owned()),
            other => StartError::Internal(other.to_string()),
        })?;
        let run = permit.start(task).await.map_err(|error| match error {
            RunError::Config(cause) => StartError::Refused(cause),
            other => StartError::Internal(other.to_string()),
        })?;
        Ok((permit, run))
    }

    async fn call_delegation_tool(
        &self,
        request: CallToolRequestParams,
        remote_context: Option<RemoteContext>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = serde_json::to_string(&request.arguments.unwrap_or_default())
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        let runtimes = self.runtimes(remote_context.as_ref()).await;
        let task = Task::new(passthrough::task(&request.name, &arguments))
            .agent(self.inner.agent.clone())
            .remote_context(remote_context);
        let as_task = follows_tasks(&context);
        let asks = !as_task && approvals::can_elicit(&context);
        let runtime = if asks { &runtimes.interactive } else { &runtimes.non_interactive };
        let (permit, mut run) = match self.start(runtime, task).await {
            Ok(started) => started,
            Err(StartError::Refused(cause)) => return Ok(results::failed(cause).into()),
            Err(StartError::Internal(cause)) => return Err(ErrorData::internal_error(cause, None)),
        };
        let watch = run.take_events();
        // The task is not that of the request, so a client that disconnects cannot leave a tree half stopped.
        let call = permit.run_in_background(run, CLIENT_ACTOR);
        debug!(target: "brigade::mcp", session = call.session().id().as_str(), "call started");
        if as_task {
            let found =
                self.find(call.session().id().as_str(), &Visibility::All).await.map_err(lookup_error)?;
            call.detach();
            return Ok(CallToolResponse::Task(CreateTaskResult::new(task::task(&found))));
        }
        let user = asks.then(|| context.peer.clone());
        self.follow(call, watch, user, &context).await.map(CallToolResponse::from)
    }

    /// Waits for the result of a call and reports its progress.
    async fn follow(
        &self,
        mut call: BackgroundPrompt,
        mut watch: RunEvents,
        user: Option<Peer<RoleServer>>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let (session, root) = (call.session().clone(), call.session().id().clone());
        let token = context.meta.get_progress_token();
        let mut notes = ProgressNotes::new(root.clone(), &context.peer, token);
        let mut is_watched = true;
        let mut open = FuturesUnordered::new();
        let result = loop {
            tokio::select! {
                result = call.result() => break result,
                // Dropping this future cancels the call, and the client receives no further messages.
                () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
                live = watch.next(), if is_watched => match live {
                    Some(live) => {
                        notes.take(&live);
                        if let (RunEvent::Record(record), Some(peer)) = (&live, &user) {
                            let question = ApprovalRequest::of(record, notes.tree());
                            open.extend(question.map(|question| question.ask(peer.clone(), session.clone())));
                        }
                    }
                    None => is_watched = false,
                },
                () = notes.due() => notes.send().await,
                Some(()) = open.next(), if !open.is_empty() => {}
            }
        };
        debug!(target: "brigade::mcp", session = root.as_str(), has_failed = result.is_err(), "call ended");
        // Detached sessions continue, because the request is answered.
        call.detach();
        notes.send().await;
        let result = result.map_err(|error| ErrorData::internal_error(format!("{root}: {error}"), None))?;
        // The work is done whatever happens now, so this is not a refusal of the call.
        let found = self.find(root.as_str(), &Visibility::All).await;
        let found = found.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(match found.output() {
            Some(output) => results::from_call(output, &root, &result.spent),
            None => {
                let message = results::missing_result_message(&result.outcome, found.limit_source());
                results::with_session(results::failed(message), &root, &result.spent)
            }
        })
    }

    async fn find(&self, id: &str, visibility: &Visibility) -> Result<FoundSession, LookupError> {
        sessions::find(self.runtime(), &self.inner.calls, visibility, id).await
    }

    /// Runtime for requests that start nothing.
    fn runtime(&self) -> &Runtime {
        &self.inner.runtimes.non_interactive
    }
}

const BUSY: &str = "cannot start another call: too many calls are running. Wait for one to end, or stop one.";

/// Reason why a request was not carried out.
pub(crate) enum StartError {
    /// A message for the model, which can act on it.
    Refused(String),
    /// A message for the client program.
    Internal(String),
}

impl From<LookupError> for StartError {
    fn from(error: LookupError) -> StartError {
        match error {
            LookupError::Unknown(_) => StartError::Refused(error.to_string()),
            LookupError::Store(_) => StartError::Internal(error.to_string()),
        }
    }
}

fn lookup_error(error: LookupError) -> ErrorData {
    match error {
        LookupError::Unknown(_) => ErrorData::invalid_params(error.to_string(), None),
        LookupError::Store(_) => ErrorData::internal_error(error.to_string(), None),
    }
}

/// The remote context of a call from another Brigade.
fn remote_context(
    meta: Option<&RequestMetaObject>,
    context: &RequestContext<RoleServer>,
) -> Result<Option<RemoteContext>, ErrorData> {
    let metas = [Some(&context.meta), meta];
    for meta in metas.into_iter().flatten() {
        if let Some(remote_context) = RemoteContext::from_meta(meta)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?
        {
            return Ok(Some(remote_context));
        }
    }
    Ok(None)
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
            .with_server_info(Implementation::new("brigade", env!("CARGO_PKG_VERSION")).with_title("Brigade"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.inner.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.inner.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let remote_context = remote_context(request.meta.as_ref(), &context)?;
        if self.inner.delegation_tools.contains(&*request.name) {
            return self.call_delegation_tool(request, remote_context, context).await;
        }
        if self.get_tool(&request.name).is_none() {
            let name = text::one_line(&request.name, 64);
            return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None));
        }
        let arguments = Arguments::new(request.arguments.unwrap_or_default());
        match self
            .call_session_tool(&request.name, &arguments, &Visibility::of(remote_context.as_ref()))
            .await
        {
            Ok(result) => Ok(result.into()),
            Err(StartError::Refused(cause)) => Ok(results::failed(cause).into()),
            Err(StartError::Internal(cause)) => Err(ErrorData::internal_error(cause, None)),
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(methods::refusal(&request))
    }

    async fn get_prompt(
        &self,
        _request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Err(methods::not_offered("prompts/get"))
    }

    async fn read_resource(
        &self,
        _request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Err(methods::not_offered("resources/read"))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let visibility = Visibility::of(remote_context(request.meta.as_ref(), &context)?.as_ref());
        let found = self.find(&request.task_id, &visibility).await.map_err(lookup_error)?;
        Ok(GetTaskResult::new(task::detailed(&found)))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let visibility = Visibility::of(remote_context(request.meta.as_ref(), &context)?.as_ref());
        let found = self.find(&request.task_id, &visibility).await.map_err(lookup_error)?;
        if found.run_status == RunStatus::Ended {
            return Ok(());
        }
        let cancelled = self.runtime().cancel(&found.root, CLIENT_ACTOR).await;
        cancelled.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

/// Whether the client supports tasks. Some clients announce them in sessions of older versions, which have
/// none.
fn follows_tasks(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
        && context.client_capabilities().is_some_and(|client| client.supports_tasks())
}
