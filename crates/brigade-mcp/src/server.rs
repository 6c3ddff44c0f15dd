//! The tools that a client is offered, and what calls of them do.

mod arguments;
pub(crate) mod methods;
mod own;
mod specs;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brigade::mcp::Servers;
use brigade::model::relay::{self, Relay};
use brigade::{Asks, Live, Models, Prepared, RunError, Runtime, Settings, Store, Task, Watch};
use brigade_core::{Agent, Hop, SessionId};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
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

use crate::call::{BY, Call, Calls, Place, Refused};
use crate::progress::Notes;
use crate::questions::{self, Question};
use crate::reach::Reach;
use crate::report;
use crate::sessions::{self, Found, Life, LookError};
use crate::task;
use crate::text;
use arguments::Arguments;

/// The agent at the top of every tree that a client starts.
pub const AGENT: &str = "mcp";

const INSTRUCTIONS: &str = "Brigade runs agents for you, each with its own tools, budget and depth limit. Hand parts \
of your work that stand on their own to them, several calls at once where they can run side by side, and give each \
all it needs to know: they see nothing of your conversation. The session of a call stands in its result under \
_meta brigade/session; session_status, tell, stop and read_result take it.";

/// Brigade as a server. Clones share everything.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    runtimes: Runtimes,
    /// The same with all tools that agents have, once a call has needed them.
    equipped: OnceCell<Runtimes>,
    equip: Option<Box<Equip>>,
    agent: Agent,
    tools: Vec<Tool>,
    faces: BTreeSet<String>,
    calls: Calls,
}

/// What calls run in.
struct Runtimes {
    alone: Runtime,
    /// The same for clients behind which a person can be asked.
    asking: Runtime,
}

/// Gets hold of further tools for agents.
type Equip = dyn Fn() -> BoxFuture<'static, Servers> + Send + Sync;

impl Runtimes {
    fn with_tools(&self, servers: &Servers) -> Runtimes {
        let with_tools = |runtime: &Runtime| {
            let mut settings = runtime.settings().clone();
            settings.tools = settings.tools.with_servers(servers);
            runtime.with_settings(settings)
        };
        Runtimes { alone: with_tools(&self.alone), asking: with_tools(&self.asking) }
    }
}

/// Why there is nothing to serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// No face is offered.
    #[error(
        "no face is offered, so there is nothing to serve; name some with --faces delegate,subagent,spawn (dispatch is offered where there is an agent file: brigade agents new writes one)"
    )]
    NoFaces,
}

impl Server {
    /// A server over a store. Trees may take as long as `timeout` says, where it says so.
    pub fn new(
        store: Arc<dyn Store>,
        settings: Settings,
        models: Models,
        timeout: Option<Duration>,
    ) -> Result<Server, SetupError> {
        let agent = Agent {
            id: AGENT.to_owned(),
            name: AGENT.to_owned(),
            description: "passes on a call of an MCP client".to_owned(),
            model: Some(relay::before(&settings.model)),
            fallbacks: settings.fallbacks.clone(),
            // It stands for the client, which makes up children: they are bounded by what the user permits. Its model
            // calls nothing but the tool that its task names, and that is one that delegates.
            tools: None,
            timeout: timeout.and_then(|timeout| u64::try_from(timeout.as_millis()).ok()),
            ignore_instructions: true,
            ..Agent::default()
        };
        let models = models.with(relay::PROVIDER, Relay);
        let with_person = Settings { asks: Asks::Person, ..settings.clone() };
        let asking = Runtime::new(store.clone(), with_person, models.clone());
        let alone = Runtime::new(store, settings, models);
        let faces = alone.faces(&agent);
        if faces.is_empty() {
            return Err(SetupError::NoFaces);
        }
        let names = faces.iter().map(|spec| spec.name.clone()).collect();
        let tools = faces.iter().map(specs::of_face).chain(specs::own()).collect();
        let (runtimes, equipped, equip) = (Runtimes { alone, asking }, OnceCell::new(), None);
        let calls = Calls::default();
        let inner = Inner { runtimes, equipped, equip, agent, tools, faces: names, calls };
        Ok(Server { inner: Arc::new(inner) })
    }

    /// Servers whose tools the agents are to have. They are started by the first call, not before: one of them may lead
    /// back to this program, and what is only started knows nothing of how deep it is.
    #[must_use]
    pub fn with_servers(
        mut self,
        start: impl Fn() -> BoxFuture<'static, Servers> + Send + Sync + 'static,
    ) -> Server {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.equip = Some(Box::new(start));
        }
        self
    }

    /// What a call from here runs in. One that will be refused for its depth starts nothing.
    async fn runtimes(&self, hop: Option<&Hop>) -> &Runtimes {
        let own = &self.inner.runtimes;
        let deepest = own.alone.settings().limits.max_depth;
        let is_too_deep =
            hop.is_some_and(|hop| hop.depth >= hop.deepest.map_or(deepest, |there| there.min(deepest)));
        match &self.inner.equip {
            Some(equip) if !is_too_deep => {
                self.inner.equipped.get_or_init(|| async { own.with_tools(&equip().await) }).await
            }
            Some(_) | None => own,
        }
    }

    /// Stops all that was begun through this server, and waits until nothing runs any more.
    pub async fn close(&self) {
        self.inner.calls.close().await;
    }

    /// Begins a tree for a call of a face.
    async fn prepare(&self, runtime: &Runtime, task: Task) -> Result<(Place, Prepared), Unbegun> {
        let place = self.inner.calls.admit().map_err(|refused| match refused {
            Refused::Busy => Unbegun::Told(BUSY.to_owned()),
            Refused::Closed => Unbegun::Fault("the server is stopping".to_owned()),
        })?;
        let prepared = runtime.prepare(task).await.map_err(|error| match error {
            RunError::Setup(cause) => Unbegun::Told(cause),
            other => Unbegun::Fault(other.to_string()),
        })?;
        Ok((place, prepared))
    }

    async fn call_face(
        &self,
        request: CallToolRequestParams,
        hop: Option<Hop>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = serde_json::to_string(&request.arguments.unwrap_or_default())
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        let runtimes = self.runtimes(hop.as_ref()).await;
        let task = Task::new(relay::task(&request.name, &arguments)).agent(self.inner.agent.clone()).hop(hop);
        let as_task = follows_tasks(&context);
        let asks = !as_task && questions::can_ask(&context);
        let runtime = if asks { &runtimes.asking } else { &runtimes.alone };
        let (place, prepared) = match self.prepare(runtime, task).await {
            Ok(prepared) => prepared,
            Err(Unbegun::Told(cause)) => return Ok(report::failed(cause).into()),
            Err(Unbegun::Fault(cause)) => return Err(ErrorData::internal_error(cause, None)),
        };
        let (root, watch) = (prepared.session().clone(), prepared.watch());
        let call = self.inner.calls.begin(place, runtime.clone(), prepared.start());
        if as_task {
            return self.as_task(root, call, watch).await;
        }
        let person = asks.then(|| context.peer.clone());
        self.follow(root, call, watch, person, &context).await.map(CallToolResponse::from)
    }

    /// Answers at once; the client asks for the result later.
    async fn as_task(
        &self,
        root: SessionId,
        call: Call,
        mut watch: Watch,
    ) -> Result<CallToolResponse, ErrorData> {
        // From its first fact on it can be asked for.
        while !matches!(watch.next().await, None | Some(Live::Fact(_))) {}
        let found = self.find(root.as_str(), &Reach::All).await.map_err(fault)?;
        call.keep();
        Ok(CallToolResponse::Task(CreateTaskResult::new(task::begun(&found))))
    }

    /// Waits for the end of a call, and says meanwhile what happens.
    async fn follow(
        &self,
        root: SessionId,
        mut call: Call,
        mut watch: Watch,
        person: Option<Peer<RoleServer>>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let token = context.meta.get_progress_token();
        let mut notes = Notes::new(root.clone(), &context.peer, token);
        let mut is_watched = true;
        let mut open = FuturesUnordered::new();
        let ending = loop {
            tokio::select! {
                ending = call.ending() => break ending,
                // The call is stopped with this future; its client hears no more of it.
                () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
                live = watch.next(), if is_watched => match live {
                    Some(live) => {
                        notes.take(&live);
                        if let (Live::Fact(record), Some(peer)) = (&live, &person) {
                            let question = Question::of(record, notes.tree());
                            open.extend(question.map(|question| question.put(peer.clone(), self.inner.runtimes.asking.clone())));
                        }
                    }
                    None => is_watched = false,
                },
                () = notes.due() => notes.send().await,
                Some(()) = open.next(), if !open.is_empty() => {}
            }
        };
        // What it left to itself goes on: the request has its answer.
        call.keep();
        notes.send().await;
        let ending = ending.map_err(|error| ErrorData::internal_error(format!("{root}: {error}"), None))?;
        // Whatever is wrong now, the work was done: this is no refusal of the call.
        let found = self.find(root.as_str(), &Reach::All).await;
        let found = found.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(match found.output() {
            Some(output) => report::of_call(output, &root, &ending.spent),
            None => {
                let words = report::without_result(&ending.outcome, found.limits_from());
                report::with_session(report::failed(words), &root, &ending.spent)
            }
        })
    }

    async fn find(&self, id: &str, reach: &Reach) -> Result<Found, LookError> {
        sessions::find(&self.inner.runtimes.alone, &self.inner.calls, reach, id).await
    }
}

const BUSY: &str = "too many calls are under way; wait for one of them to end, or stop one";

/// Why something was not done.
pub(crate) enum Unbegun {
    /// In words for the model, which can act on them.
    Told(String),
    /// In words for the program.
    Fault(String),
}

impl From<LookError> for Unbegun {
    fn from(error: LookError) -> Unbegun {
        match error {
            LookError::Unknown(_) => Unbegun::Told(error.to_string()),
            LookError::Store(_) => Unbegun::Fault(error.to_string()),
        }
    }
}

fn fault(error: LookError) -> ErrorData {
    match error {
        LookError::Unknown(_) => ErrorData::invalid_params(error.to_string(), None),
        LookError::Store(_) => ErrorData::internal_error(error.to_string(), None),
    }
}

/// Where the call comes from, where another Brigade made it.
fn hop(
    meta: Option<&RequestMetaObject>,
    context: &RequestContext<RoleServer>,
) -> Result<Option<Hop>, ErrorData> {
    let metas = [Some(&context.meta), meta];
    for meta in metas.into_iter().flatten() {
        if let Some(hop) = Hop::in_meta(meta).map_err(|cause| ErrorData::invalid_params(cause, None))? {
            return Ok(Some(hop));
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
        let hop = hop(request.meta.as_ref(), &context)?;
        if self.inner.faces.contains(&*request.name) {
            return self.call_face(request, hop, context).await;
        }
        if self.get_tool(&request.name).is_none() {
            let name = text::line(&request.name, 64);
            return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None));
        }
        let arguments = Arguments::new(request.arguments.unwrap_or_default());
        match self.call_own(&request.name, &arguments, &Reach::of(hop.as_ref())).await {
            Ok(result) => Ok(result.into()),
            Err(Unbegun::Told(cause)) => Ok(report::failed(cause).into()),
            Err(Unbegun::Fault(cause)) => Err(ErrorData::internal_error(cause, None)),
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
        let reach = Reach::of(hop(request.meta.as_ref(), &context)?.as_ref());
        let found = self.find(&request.task_id, &reach).await.map_err(fault)?;
        Ok(GetTaskResult::new(task::detailed(&found)))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let reach = Reach::of(hop(request.meta.as_ref(), &context)?.as_ref());
        let found = self.find(&request.task_id, &reach).await.map_err(fault)?;
        if found.life == Life::Over {
            return Ok(());
        }
        let cancelled = self.inner.runtimes.alone.cancel(&found.root, BY).await;
        cancelled.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

/// Whether the client can follow a task. Some announce tasks in sessions of older versions too, which have none.
fn follows_tasks(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
        && context.client_capabilities().is_some_and(|client| client.supports_tasks())
}
