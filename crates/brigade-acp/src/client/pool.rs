//! Pool of agent processes and their sessions.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use agent_client_protocol_schema::v1::{
    NewSessionRequest, NewSessionResponse, SessionConfigOptionCategory, SetSessionConfigOptionRequest,
    SetSessionModeRequest,
};
use brigade::Redactor;
use brigade::external::{ExternalAgents, ExternalError, ExternalLimits, ExternalTool, ReportedUsage};
use brigade::model::{Chunk, Model, ModelError, ModelInfo, Request};
use brigade::sandbox::{SandboxMode, ServerSandbox};
use brigade_core::permission::Mode;
use brigade_core::{Price, SessionId};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use futures::stream::BoxStream;
use serde_json::{Value, json};
use tracing::debug;

use super::modes::{self, ModeChoice};
use super::peer::{Peer, SessionSlot};
use super::session::ExternalSession;
use super::{AgentOptions, AgentServer, account, lock, process, sanitize, tools, turn};
use crate::task;

/// The external agents of a runtime. Dropping it terminates their processes.
pub struct Acp {
    pool: Arc<Pool>,
    tools: BTreeMap<String, ExternalTool>,
}

/// State that the sessions of all servers share.
pub(super) struct Pool {
    servers: BTreeMap<String, Arc<ServerPool>>,
    sessions: Mutex<HashMap<SessionId, Arc<ExternalSession>>>,
    /// Redactor of the files and outputs that agents are sent.
    pub(super) redactor: Redactor,
}

struct ServerPool {
    server: Arc<AgentServer>,
    processes: Mutex<Processes>,
    /// Whether the user was warned that the agent may act without requesting permission.
    warned: AtomicBool,
}

/// An opened session, and a warning for the user.
pub(super) struct OpenedSession {
    pub(super) session: Arc<ExternalSession>,
    pub(super) warning: Option<String>,
}

/// Running processes, and those being started.
#[derive(Default)]
struct Processes {
    list: Vec<Process>,
    starting: HashMap<ProcessKind, WeakShared<StartFuture>>,
}

/// The start of a process, shared by all sessions that wait for it. It is cancelled when no session waits.
type StartFuture = BoxFuture<'static, Result<Arc<Peer>, ExternalError>>;

/// A process, and the sessions that can share it.
struct Process {
    kind: ProcessKind,
    peer: Arc<Peer>,
}

/// Difference between processes of a server. A session never uses a process whose sandbox is wider than its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ProcessKind {
    /// Arguments in addition to those of the server.
    extra_arguments: Vec<String>,
    sandbox: SandboxMode,
}

/// The agent that a model refers to.
#[derive(Clone)]
pub(super) struct AgentTarget {
    /// `SERVER` or `SERVER/AGENT`, as it was requested.
    pub(super) place: String,
    pub(super) server: Arc<AgentServer>,
    options: AgentOptions,
}

impl Acp {
    /// Creates a pool with these servers. No process is started yet.
    pub fn new(servers: impl IntoIterator<Item = AgentServer>) -> Acp {
        Acp::redacting(servers, Redactor::default())
    }

    /// Creates a pool with a redactor of the files and outputs that agents are sent. The default redacts keys of known
    /// shapes.
    pub fn redacting(servers: impl IntoIterator<Item = AgentServer>, redactor: Redactor) -> Acp {
        let server_pool = |server: AgentServer| {
            let processes = Mutex::default();
            let (name, warned) = (server.name.clone(), AtomicBool::new(false));
            (name, Arc::new(ServerPool { server: Arc::new(server), processes, warned }))
        };
        let servers: BTreeMap<_, _> = servers.into_iter().map(server_pool).collect();
        let named: Vec<_> = servers
            .values()
            .map(|server_pool| (server_pool.server.name.clone(), server_pool.server.workspace.clone()))
            .collect();
        let pool = Arc::new(Pool { servers, sessions: Mutex::default(), redactor });
        let tools = tools::tools(&Arc::downgrade(&pool), named.into_iter());
        Acp { pool, tools }
    }

    /// Starts a server, initializes the connection and terminates it. Returns its name and version, or the
    /// reason why it cannot be used.
    pub async fn probe(&self, name: &str) -> Result<String, ExternalError> {
        let server_pool = self.pool.server_pool(name)?;
        let server = &server_pool.server;
        let redactor = process::redactor(server);
        match Peer::start(server, &server.sandbox, &server.options.arguments).await {
            Ok(peer) => Ok(redactor.redact(&peer.title)),
            Err(cause) => Err(ExternalError::Start(redactor.redact(&cause.to_string()))),
        }
    }
}

impl ExternalAgents for Acp {
    fn model(&self, place: &str) -> Result<Arc<dyn Model>, ExternalError> {
        let target = self.pool.target(place)?;
        Ok(Arc::new(ExternalModel { pool: Arc::downgrade(&self.pool), target }))
    }

    fn limits(&self, place: &str) -> ExternalLimits {
        self.pool.target(place).map(|target| target.server.terms).unwrap_or_default()
    }

    fn tool(&self, name: &str) -> Option<&ExternalTool> {
        self.tools.get(name)
    }

    fn stop<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Option<ReportedUsage>> {
        Box::pin(async move {
            let session = self.pool.session(session)?;
            Some(account::usage_after_stop(&session).await)
        })
    }

    fn end(&self, session: &SessionId) {
        let ended = lock(&self.pool.sessions).remove(session);
        if let Some(session) = ended {
            session.terminals.end();
            task::detach(session.close());
        }
    }
}

/// An external agent behind the `Model` trait.
struct ExternalModel {
    pool: Weak<Pool>,
    target: AgentTarget,
}

impl Model for ExternalModel {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>> {
        match self.pool.upgrade() {
            Some(pool) => turn::stream(pool, self.target.clone(), request),
            None => {
                let gone = ModelError::Fatal("the external agents have been shut down".to_owned());
                Box::pin(futures::stream::iter([Err(gone)]))
            }
        }
    }

    fn model_info(&self, _model: &str) -> ModelInfo {
        ModelInfo { price: Some(Price::default()), ..ModelInfo::default() }
    }
}

impl Pool {
    pub(super) fn session(&self, session: &SessionId) -> Option<Arc<ExternalSession>> {
        lock(&self.sessions).get(session).cloned()
    }

    fn server_pool(&self, name: &str) -> Result<&Arc<ServerPool>, ExternalError> {
        self.servers.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.servers.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let name = sanitize(name);
            ExternalError::UnknownPlace(format!("unknown server '{name}'. Servers in `acp.servers`: {known}"))
        })
    }

    fn target(&self, place: &str) -> Result<AgentTarget, ExternalError> {
        let (name, agent) = place.split_once('/').map_or((place, None), |(name, agent)| (name, Some(agent)));
        let server = self.server_pool(name)?.server.clone();
        let defaults = server.options.clone();
        let options = match agent {
            None => defaults,
            Some(agent) => {
                let overrides = server.agents.get(agent).cloned().ok_or_else(|| {
                    let known: Vec<&str> = server.agents.keys().map(String::as_str).collect();
                    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                    ExternalError::UnknownPlace(format!(
                        "unknown agent '{}' of server '{name}'. Agents in `acp.servers.{name}.agents`: {known}",
                        sanitize(agent)
                    ))
                })?;
                let arguments = defaults.arguments.into_iter().chain(overrides.arguments).collect();
                AgentOptions {
                    mode: overrides.mode.or(defaults.mode),
                    model: overrides.model.or(defaults.model),
                    arguments,
                }
            }
        };
        Ok(AgentTarget { place: place.to_owned(), server, options })
    }

    /// Opens a session. If the process turns out to have exited, it is replaced once. It was sent no prompt.
    pub(super) async fn open(
        &self,
        session: &SessionId,
        target: &AgentTarget,
        mode: Mode,
        widest: Option<SandboxMode>,
    ) -> Result<OpenedSession, ExternalError> {
        let server_pool = self.server_pool(&target.server.name)?;
        let sandbox = target.server.sandbox.for_session(mode, widest);
        let mut attempt = 0;
        let opened = loop {
            attempt += 1;
            let slot = server_pool.acquire_slot(&target.options.arguments, &sandbox).await?;
            let peer = slot.peer.clone();
            match tokio::time::timeout(target.server.start_timeout, target.open_session(slot, mode)).await {
                Ok(Ok(opened)) => break opened,
                Ok(Err(_)) if !peer.is_usable() && attempt == 1 => {
                    debug!(target: "brigade::acp", server = target.server.name, "replacing a process that exited");
                }
                Ok(Err(cause)) => return Err(cause),
                Err(_) => {
                    peer.retire();
                    let time = target.server.start_timeout.as_secs();
                    return Err(ExternalError::Start(format!(
                        "cannot open a session: no response within {time} s"
                    )));
                }
            }
        };
        let (server, session_id) = (&target.server.name, session.as_str());
        debug!(target: "brigade::acp", server, session = session_id, attempt, "session opened");
        lock(&self.sessions).insert(session.clone(), opened.session.clone());
        let is_first = |_: &String| !server_pool.warned.swap(true, Ordering::SeqCst);
        Ok(OpenedSession { warning: opened.warning.filter(is_first), ..opened })
    }
}

impl ServerPool {
    /// Takes a slot on a running process, or starts a new one.
    async fn acquire_slot(
        &self,
        extra_arguments: &[String],
        sandbox: &ServerSandbox,
    ) -> Result<SessionSlot, ExternalError> {
        let limit = self.server.max_sessions.max(1);
        let kind = ProcessKind { extra_arguments: extra_arguments.to_vec(), sandbox: sandbox.mode() };
        loop {
            let start = {
                let mut processes = lock(&self.processes);
                if let Some(slot) = processes.free_slot(&kind, limit) {
                    return Ok(slot);
                }
                self.starting(&mut processes, &kind, sandbox)
            };
            let started = start.clone().await;
            let mut processes = lock(&self.processes);
            processes.starting.retain(|_, other| other.upgrade().is_some_and(|other| !other.ptr_eq(&start)));
            let peer = started?;
            if !processes.list.iter().any(|process| Arc::ptr_eq(&process.peer, &peer)) {
                processes.list.push(Process { kind: kind.clone(), peer: peer.clone() });
            }
            if let Some(slot) = peer.take_slot(limit) {
                return Ok(slot);
            }
        }
    }

    /// Joins the start of a process, or begins one.
    fn starting(
        &self,
        processes: &mut Processes,
        kind: &ProcessKind,
        sandbox: &ServerSandbox,
    ) -> Shared<StartFuture> {
        if let Some(start) = processes.starting.get(kind).and_then(WeakShared::upgrade) {
            return start;
        }
        let (server, arguments, sandbox) =
            (self.server.clone(), kind.extra_arguments.clone(), sandbox.clone());
        let start = async move { Peer::start(&server, &sandbox, &arguments).await }.boxed().shared();
        if let Some(weak) = start.downgrade() {
            processes.starting.insert(kind.clone(), weak);
        }
        start
    }
}

impl Processes {
    /// Takes a slot on a running process of this kind, if one is free.
    fn free_slot(&mut self, kind: &ProcessKind, limit: usize) -> Option<SessionSlot> {
        self.list.retain(|process| process.peer.is_usable());
        let mut fitting =
            self.list.iter().filter(|process| process.kind == *kind && !process.peer.is_unresponsive());
        fitting.find_map(|process| process.peer.take_slot(limit))
    }
}

impl AgentTarget {
    async fn open_session(&self, slot: SessionSlot, mode: Mode) -> Result<OpenedSession, ExternalError> {
        let peer = slot.peer.clone();
        let request = NewSessionRequest::new(self.server.workspace.clone());
        let answer = peer.connection.request("session/new", &request).await;
        let answer =
            answer.map_err(|cause| ExternalError::Start(format!("cannot open a session: {cause}")))?;
        let models = answer.get("models").cloned();
        let answer: NewSessionResponse = serde_json::from_value(answer).map_err(|cause| {
            let cause = peer.connection.redactor.sanitize(&cause.to_string());
            ExternalError::Protocol(format!("invalid response to `session/new`: {cause}"))
        })?;
        let session =
            ExternalSession::new(answer.session_id.0.to_string(), slot, self.server.workspace.clone());
        peer.connection.add_session(&session);
        let chosen = match self.mode_in(mode, &answer) {
            Ok((mode, warning)) => self
                .choose(&session, &answer, models.as_ref(), mode.as_ref())
                .await
                .map(|()| OpenedSession { session: session.clone(), warning }),
            Err(cause) => Err(cause),
        };
        if chosen.is_err() {
            session.close().await;
        }
        chosen
    }

    /// Returns the mode to select, and a warning if the agent may not request permission in it.
    fn mode_in(
        &self,
        mode: Mode,
        answer: &NewSessionResponse,
    ) -> Result<(Option<String>, Option<String>), ExternalError> {
        let offered = modes::offered(answer);
        let chosen = match modes::choose(mode, self.options.mode.as_deref(), &offered) {
            ModeChoice::Known(chosen) => return Ok((chosen, None)),
            ModeChoice::Unknown(chosen) => chosen,
        };
        let name = &self.server.name;
        let offers = if offered.is_empty() { "none".to_owned() } else { sanitize(&offered.join(", ")) };
        match mode {
            Mode::Plan if !self.server.allow_in_plan => Err(ExternalError::Start(format!(
                "cannot start external agent '{name}' in plan mode: none of its modes is known to be safe (offered: {offers}). Set \
                 `acp.servers.{name}.allow_in_plan = true` to start it anyway, or choose a less restrictive mode."
            ))),
            _ => Ok((
                chosen,
                Some(format!(
                    "warning: none of the modes of external agent '{name}' is known to request permission (offered: \
                     {offers}); it may act without asking"
                )),
            )),
        }
    }

    /// Selects this mode and the configured model.
    async fn choose(
        &self,
        session: &ExternalSession,
        answer: &NewSessionResponse,
        models: Option<&Value>,
        mode: Option<&String>,
    ) -> Result<(), ExternalError> {
        if let Some(mode) = mode {
            let known = answer.modes.iter().flat_map(|modes| &modes.available_modes);
            let known: Vec<&str> = known.map(|mode| &*mode.id.0).collect();
            if known.contains(&mode.as_str()) {
                let request = SetSessionModeRequest::new(session.id.clone(), mode.clone());
                set(session, "mode", mode, "session/set_mode", &request).await?;
            } else {
                self.set_option(session, answer, "mode", SessionConfigOptionCategory::Mode, mode, &known)
                    .await?;
            }
        }
        if let Some(model) = &self.options.model {
            let known = models.and_then(|models| models.get("availableModels")).and_then(Value::as_array);
            let known = known.into_iter().flatten().filter_map(|model| model.get("modelId")?.as_str());
            let known: Vec<&str> = known.collect();
            if known.contains(&model.as_str()) {
                let request = json!({ "sessionId": session.id, "modelId": model });
                set(session, "model", model, "session/set_model", &request).await?;
            } else {
                let category = SessionConfigOptionCategory::Model;
                self.set_option(session, answer, "model", category, model, &known).await?;
            }
        }
        Ok(())
    }

    async fn set_option(
        &self,
        session: &ExternalSession,
        answer: &NewSessionResponse,
        what: &str,
        category: SessionConfigOptionCategory,
        value: &str,
        known: &[&str],
    ) -> Result<(), ExternalError> {
        let mut options = answer.config_options.iter().flatten();
        let Some(option) = options.find(|option| option.category.as_ref() == Some(&category)) else {
            let known = if known.is_empty() { "none".to_owned() } else { sanitize(&known.join(", ")) };
            return Err(ExternalError::Start(format!("unknown {what} '{value}'. The agent offers: {known}")));
        };
        let value_id = agent_client_protocol_schema::v1::SessionConfigValueId::new(value.to_owned());
        let request = SetSessionConfigOptionRequest::new(session.id.clone(), option.id.clone(), value_id);
        set(session, what, value, "session/set_config_option", &request).await
    }
}

async fn set(
    session: &ExternalSession,
    what: &str,
    value: &str,
    method: &str,
    request: &impl serde::Serialize,
) -> Result<(), ExternalError> {
    let answer = session.connection().request(method, request).await;
    let cannot = |cause| ExternalError::Start(format!("cannot set the {what} '{value}': {cause}"));
    answer.map(|_| ()).map_err(cannot)
}
