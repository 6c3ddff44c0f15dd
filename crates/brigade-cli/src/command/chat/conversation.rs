//! A conversation: its session, its settings and the input of its next round.

use std::collections::HashSet;
use std::sync::Arc;

use brigade::mcp::Servers;
use brigade::open_sessions::{OpenError, OpenLimits, PromptError, PromptPermit, Resumed, SessionOptions};
use brigade::tool::Files;
use brigade::{
    ApprovalPolicy, OpenSession, OpenSessions, Run, RunError, Runtime, SessionInfo, Store, StoreError,
};
use brigade_core::delegation::Execution;
use brigade_core::permission::Mode;
use brigade_core::{Event, Record, SessionId};

use super::super::run::{TaskInput, has_model, new_task, selected_agent, start_error};
use super::ChatArgs;
use super::attach::{ComposedMessage, attach};
use super::slash_output::{self, NO_SESSION};
use crate::approval_prompt::GivenAnswer;
use crate::args::{Flags, Global, OutputFormat};
use crate::error::CliError;
use crate::follow::{Console, RunView, Signals};
use crate::model_hints;
use crate::session_ref;
use crate::settings::Settings;
use crate::setup;
use crate::summary::CommandHints;
use crate::terminal::{self, Colour};

/// Actor that the log records.
pub(super) const USER: &str = "the user";

/// Limits of a chat: its session, and the one that it switches to. A stopped round has as much time as it needs.
const LIMITS: OpenLimits = OpenLimits { max_open: 2, stop_timeout: None };

/// State of a conversation.
pub(super) struct Conversation {
    pub(super) global: Global,
    flags: Flags,
    pub(super) settings: Settings,
    /// MCP servers, which are kept when the model or mode changes.
    servers: Servers,
    pub(super) runtime: Runtime,
    store: Arc<dyn Store>,
    sessions: OpenSessions,
    /// The session, once it exists.
    open: Option<Arc<OpenSession>>,
    /// View of the session, once it exists.
    pub(super) view: Option<RunView>,
    /// Children that work in the background.
    pub(super) background_children: HashSet<SessionId>,
    /// Records from before this chat.
    pub(super) earlier: Vec<Record>,
    /// Notes about user actions since the last message. They are sent with the next one.
    pending_notes: Vec<String>,
}

/// Result of sending a message.
pub(super) enum Sent {
    /// A round was started.
    Started(Box<Run>),
    /// Another process runs the session and delivers the message.
    RunningElsewhere,
}

impl Conversation {
    /// Opens a new conversation, or the one that the user names.
    pub(super) async fn open(global: Global, chat: ChatArgs) -> Result<Conversation, CliError> {
        let ChatArgs { last, resume, flags } = chat;
        let settings = match &resume {
            Some(_) => Settings::load_user_only(&global)?,
            None => Settings::load_for_run(&global, &flags)?,
        };
        let store = setup::open_store(&settings)?;
        let session = match &resume {
            Some(id) => Some(session_ref::resolve(&*store, id).await?),
            None if last => {
                Some(session_ref::last_in_folder(&*store, &settings.folder, "brigade chat").await?)
            }
            None => None,
        };
        let settings = match &session {
            Some(session) => setup::settings_for_session(&global, &flags, &*store, session).await?,
            None => settings,
        };
        let settings = adapt_to_terminal(settings, &global);
        let servers = setup::start_mcp_servers(&settings).await?;
        let runtime = setup::runtime(&settings, store.clone(), &servers).await?;
        let mut conversation = Conversation {
            global,
            flags,
            settings,
            servers,
            runtime,
            store,
            sessions: OpenSessions::new(LIMITS),
            open: None,
            view: None,
            background_children: HashSet::new(),
            earlier: Vec::new(),
            pending_notes: Vec::new(),
        };
        match &session {
            Some(session) => conversation.load(session).await?,
            None => {
                selected_agent(&conversation.settings, &conversation.runtime.settings().agents)?;
            }
        }
        Ok(conversation)
    }

    /// Session id, once the session exists.
    pub(super) fn session(&self) -> Option<&SessionId> {
        self.view.as_ref().map(|view| &view.root)
    }

    /// Flags for suggested commands.
    pub(super) fn hints(&self) -> CommandHints {
        CommandHints::new(&self.global, &self.flags)
    }

    /// Installs the signal handlers of a chat without a screen.
    pub(super) fn console(&self) -> Result<Console, CliError> {
        let signals = Signals::listen(self.store.clone())?;
        Ok(Console::new(&self.global, &self.flags, &self.settings, &self.runtime, signals))
    }

    /// Colour setting of the terminal.
    pub(super) fn colour(&self) -> Colour {
        terminal::stderr_colour(&self.settings.environment)
    }

    /// Name of the agent in this conversation.
    pub(super) fn agent_label(&self) -> &str {
        let node = self.view.as_ref().and_then(|view| view.tree.node(&view.root));
        node.map_or(&self.settings.agent, |node| &node.label)
    }

    /// Whether the last round of the session has not ended.
    pub(super) fn is_open(&self) -> bool {
        let node = self.view.as_ref().and_then(|view| view.tree.node(&view.root));
        node.is_some_and(|node| !node.has_ended())
    }

    /// Definition of the session's last round, if it can be read.
    async fn last_definition(&self) -> Option<SessionInfo> {
        self.runtime.session_info(self.session()?).await.ok().flatten()
    }

    /// Model of the next round, if there is one. A session keeps its model until another is set.
    pub(super) async fn model(&self) -> Option<String> {
        let stored = if self.flags.model.is_none() { self.last_definition().await } else { None };
        let stored = stored.and_then(|info| info.model().map(str::to_owned));
        stored.or_else(|| self.settings.model.clone())
    }

    /// Mode of the next round. A session keeps its mode until another is set.
    pub(super) async fn mode(&self) -> Mode {
        let stored = if self.flags.mode.is_none() { self.last_definition().await } else { None };
        stored.and_then(|info| info.mode()).unwrap_or(self.settings.permissions.mode)
    }

    /// Whether the last round was in mode `plan`, and its agent may use another mode.
    pub(super) async fn can_leave_plan(&self) -> bool {
        let Some(info) = self.last_definition().await else { return false };
        info.mode() == Some(Mode::Plan) && info.agent.is_some_and(|agent| agent.mode != Some(Mode::Plan))
    }

    /// Composes a message with the files that it names, and with notes about user actions since the last one.
    pub(super) fn compose(&self, text: &str) -> ComposedMessage {
        let settings = self.runtime.settings();
        let permissions = Arc::new(settings.permissions.clone());
        let files = Files::new(settings.workspace.clone(), permissions, [String::new()].into());
        let mut attached = attach(text, &files);
        for note in &self.pending_notes {
            attached.text.push_str(&format!("\n\n{note}"));
        }
        attached
    }

    /// Adds a note to the next message.
    pub(super) fn add_pending_note(&mut self, text: String) {
        self.pending_notes.push(text);
    }

    /// Removes the pending notes after the message was sent.
    pub(super) fn clear_pending_notes(&mut self) {
        self.pending_notes.clear();
    }

    /// Starts a round that replaces the conversation with a summary.
    pub(super) async fn compact(&mut self) -> Result<Run, CliError> {
        let open = self.open.as_ref().ok_or_else(|| CliError::usage(NO_SESSION))?;
        begin_prompt(open)?.compact().await.map_err(prompt_error)
    }

    /// Undoes the file edits of the last round, and returns a report. The agent is informed with the next message.
    pub(super) async fn undo(&mut self) -> Result<String, CliError> {
        let session = self.session().cloned().ok_or_else(|| CliError::usage(NO_SESSION))?;
        let undone = brigade::undo(&*self.store, &session, &self.runtime.settings().workspace).await?;
        if let Some(note) = slash_output::undo_note_for_agent(&undone) {
            self.add_pending_note(note);
        }
        Ok(slash_output::undo_report(&undone))
    }

    /// Leaves the session, so that the next message starts a new one. Returns the previous session.
    pub(super) fn leave_session(&mut self) -> Option<SessionId> {
        self.background_children.clear();
        self.earlier.clear();
        self.pending_notes.clear();
        self.set_open(None);
        self.view.take().map(|view| view.root)
    }

    /// Opens another session in place of the last one.
    fn set_open(&mut self, open: Option<Arc<OpenSession>>) {
        let next = open.as_ref().map(|open| open.id().clone());
        if let Some(left) =
            std::mem::replace(&mut self.open, open).filter(|left| next.as_ref() != Some(left.id()))
        {
            self.sessions.close_idle(left.id());
        }
    }

    /// Options of the session, with the flags that the user set.
    fn options(&self) -> SessionOptions {
        SessionOptions {
            timeout: self.flags.timeout,
            mode: self.flags.mode,
            model: self.flags.model.as_ref().and(self.settings.model.clone()),
            ..SessionOptions::new(self.runtime.clone())
        }
    }

    /// Sends a message: starts the session, or its next round.
    pub(super) async fn send_message(&mut self, text: &str) -> Result<Sent, CliError> {
        let Some(open) = self.open.clone() else {
            let agent = selected_agent(&self.settings, &self.runtime.settings().agents)?;
            if !has_model(&self.settings, agent.as_ref()) {
                return Err(model_hints::no_model_for(&self.settings, "brigade chat"));
            }
            let task = new_task(&self.runtime, &self.settings, &self.flags, &TaskInput::new(text))?;
            let open = self.sessions.open_new(self.options(), ()).map_err(open_error)?;
            let started = begin_prompt(&open)?.start(task).await;
            let run = started.map_err(|error| {
                self.sessions.close_idle(open.id());
                start_error(&self.settings, error)
            })?;
            self.view = Some(RunView::new(open.id().clone()));
            self.set_open(Some(open));
            return Ok(Sent::Started(Box::new(run)));
        };
        self.runtime.tell(open.id(), text).await?;
        self.start_next_round().await.map_err(|failure| {
            failure.hint("The message was saved. It will be delivered with your next message.")
        })
    }

    /// Requests the running round to stop.
    pub(super) fn stop(&self) {
        if let Some(open) = &self.open {
            open.stop(USER);
        }
    }

    /// Whether the running round was requested to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_stopping())
    }

    /// Answers an approval request.
    pub(super) async fn answer(&self, given: &GivenAnswer) -> Result<(), RunError> {
        let (session, question) = (&given.session, given.question.clone());
        match &self.open {
            Some(open) => open.answer(session, question, given.answer.clone(), USER).await,
            None => Err(RunError::NoSuchApproval { session: session.clone(), question }),
        }
    }

    /// Starts the next round, with new limits.
    pub(super) async fn start_next_round(&mut self) -> Result<Sent, CliError> {
        let Some(open) = &self.open else { return Ok(Sent::RunningElsewhere) };
        match begin_prompt(open)?.resume().await.map_err(prompt_error)? {
            Resumed::Started(run) => Ok(Sent::Started(run)),
            Resumed::RunningElsewhere => Ok(Sent::RunningElsewhere),
        }
    }

    /// Whether there are messages that no round has read yet.
    pub(super) async fn has_unread_input(&self) -> bool {
        match self.session() {
            Some(session) => self.runtime.has_unread_input(session).await.unwrap_or(false),
            None => false,
        }
    }

    /// Switches to another session.
    pub(super) async fn switch(&mut self, session: &SessionId) -> Result<(), CliError> {
        let flags = Flags { cwd: None, ..self.flags.clone() };
        let settings = setup::settings_for_session(&self.global, &flags, &*self.store, session).await?;
        let settings = adapt_to_terminal(settings, &self.global);
        self.servers = setup::start_mcp_servers(&settings).await?;
        self.runtime = setup::runtime(&settings, self.store.clone(), &self.servers).await?;
        (self.settings, self.flags) = (settings, flags);
        self.pending_notes.clear();
        self.load(session).await
    }

    /// Sets the model of the next round.
    pub(super) async fn set_model(&mut self, model: String) -> Result<(), CliError> {
        self.set(Flags { model: Some(model), ..self.flags.clone() }).await
    }

    /// Sets the mode of the next round.
    pub(super) async fn set_mode(&mut self, mode: Mode) -> Result<(), CliError> {
        self.set(Flags { mode: Some(mode), ..self.flags.clone() }).await
    }

    async fn set(&mut self, flags: Flags) -> Result<(), CliError> {
        let settings = match self.session() {
            Some(session) => setup::settings_for_session(&self.global, &flags, &*self.store, session).await?,
            None => Settings::load_for_run(&self.global, &flags)?,
        };
        setup::check_model(&settings)?;
        let settings = adapt_to_terminal(settings, &self.global);
        self.runtime = setup::runtime(&settings, self.store.clone(), &self.servers).await?;
        (self.settings, self.flags) = (settings, flags);
        if let Some(open) = &self.open {
            open.set_options(self.options());
        }
        Ok(())
    }

    async fn load(&mut self, session: &SessionId) -> Result<(), CliError> {
        let (view, records) = RunView::load(&*self.store, session).await?;
        if view.tree.node(session).is_none() {
            return Err(StoreError::UnknownSession(session.clone()).into());
        }
        let open =
            self.sessions.open_stored(session.clone(), self.options(), ()).await.map_err(open_error)?;
        self.set_open(Some(open));
        self.background_children = records.iter().filter_map(background_child).cloned().collect();
        self.earlier = records.into_iter().filter(|record| record.session == *session).collect();
        self.view = Some(view);
        Ok(())
    }
}

fn begin_prompt(open: &Arc<OpenSession>) -> Result<PromptPermit, CliError> {
    open.begin_prompt().map_err(open_error)
}

fn open_error(error: OpenError) -> CliError {
    match error {
        OpenError::Unknown(session) => StoreError::UnknownSession(session).into(),
        OpenError::Run(error) => error.into(),
        OpenError::Full | OpenError::Closed | OpenError::Busy => CliError::failed(error.to_string()),
    }
}

fn prompt_error(error: PromptError) -> CliError {
    match error {
        PromptError::Run(error) => error.into(),
        PromptError::CallerTooDeep { .. } | PromptError::TooDeep(_) => CliError::failed(error.to_string()),
    }
}

/// Disables prompts if messages are read line by line, because a line cannot be an answer too. Requests can then be
/// answered from another terminal.
fn adapt_to_terminal(mut settings: Settings, global: &Global) -> Settings {
    let is_on_screen =
        global.output_format == OutputFormat::Text && terminal::can_chat(&settings.environment);
    if !is_on_screen && !settings.waits_for_answers {
        settings.approval_policy = ApprovalPolicy::Deny;
    }
    settings
}

/// Child that will work in the background, if this event starts one.
pub(super) fn background_child(record: &Record) -> Option<&SessionId> {
    match &record.event {
        Event::Delegated { child, delegation, .. } if delegation.execution != Execution::Foreground => {
            Some(child)
        }
        _ => None,
    }
}
