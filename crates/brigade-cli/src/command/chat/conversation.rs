//! A conversation: its session, its settings and the input of its next round.

use std::collections::HashSet;
use std::sync::Arc;

use brigade::mcp::Servers;
use brigade::tool::Files;
use brigade::{ApprovalPolicy, Run, RunError, Runtime, Store, StoreError};
use brigade_core::delegation::Execution;
use brigade_core::permission::Mode;
use brigade_core::view::Activity;
use brigade_core::{Event, Record, SessionId};

use super::super::run::{TaskInput, has_model, selected_agent, start_session};
use super::super::tell::{RUNNER_EXIT_POLL_INTERVAL, RUNNER_EXIT_POLLS, is_running};
use super::attach::{ComposedMessage, attach};
use super::slash_output::{self, NO_SESSION};
use crate::args::{Chat, Flags, Global, OutputFormat};
use crate::error::CliError;
use crate::follow::RunView;
use crate::model_hints;
use crate::session_ref;
use crate::settings::Settings;
use crate::setup;
use crate::summary::CommandHints;
use crate::terminal::{self, Colour};

/// State of a conversation.
pub(super) struct Conversation {
    pub(super) global: Global,
    flags: Flags,
    pub(super) settings: Settings,
    /// MCP servers, which are kept when the model or mode changes.
    servers: Servers,
    pub(super) runtime: Runtime,
    store: Arc<dyn Store>,
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
    pub(super) async fn open(global: Global, chat: Chat) -> Result<Conversation, CliError> {
        let Chat { last, resume, flags } = chat;
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
        node.is_some_and(|node| !matches!(node.activity, Activity::Ended(_)))
    }

    /// Model of the next round, if there is one. A session keeps its model until another is set.
    pub(super) async fn model(&self) -> Option<String> {
        let stored = match (&self.flags.model, self.session()) {
            (None, Some(session)) => setup::stored_definition(&*self.store, session).await.ok().flatten(),
            _ => None,
        };
        stored.and_then(|(_, agent)| agent?.model).or_else(|| self.settings.model.clone())
    }

    /// Mode of the next round. A session keeps its mode until another is set.
    pub(super) async fn mode(&self) -> Mode {
        let stored = match (self.flags.mode, self.session()) {
            (None, Some(session)) => setup::stored_definition(&*self.store, session).await.ok().flatten(),
            _ => None,
        };
        stored
            .and_then(|(authority, _)| authority)
            .map_or(self.settings.permissions.mode, |stored| stored.permissions.mode)
    }

    /// Whether the last round was in mode `plan`, and its agent may use another mode.
    pub(super) async fn can_leave_plan(&self) -> bool {
        let Some(session) = self.session() else { return false };
        let Ok(Some((Some(authority), agent))) = setup::stored_definition(&*self.store, session).await else {
            return false;
        };
        authority.permissions.mode == Mode::Plan && agent.is_some_and(|agent| agent.mode != Some(Mode::Plan))
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
        let session = self.session().cloned().ok_or_else(|| CliError::usage(NO_SESSION))?;
        let more = setup::resume_options(&self.settings, &self.flags);
        self.runtime.compact(&session, more).await.map_err(CliError::from)
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
        self.view.take().map(|view| view.root)
    }

    /// Sends a message: starts the session, or its next round.
    pub(super) async fn send_message(&mut self, text: &str) -> Result<Sent, CliError> {
        let Some(session) = self.session().cloned() else {
            let agent = selected_agent(&self.settings, &self.runtime.settings().agents)?;
            if !has_model(&self.settings, agent.as_ref()) {
                return Err(model_hints::no_model_for(&self.settings, "brigade chat"));
            }
            let task = TaskInput::new(text);
            let run = start_session(&self.runtime, &self.settings, &self.flags, &task).await?;
            self.view = Some(RunView::new(run.session().clone()));
            return Ok(Sent::Started(Box::new(run)));
        };
        self.runtime.tell(&session, text).await?;
        self.start_next_round().await.map_err(|failure| failure.hint("The message is recorded."))
    }

    /// Sends a message to a running session.
    pub(super) async fn tell(&self, session: &SessionId, text: &str) -> Result<(), CliError> {
        self.runtime.tell(session, text).await.map_err(CliError::from)
    }

    /// Cancels a running session.
    pub(super) async fn cancel(&self, session: &SessionId) -> Result<(), CliError> {
        self.runtime.cancel(session, "the user").await.map_err(CliError::from)
    }

    /// Starts the next round, with new limits.
    pub(super) async fn start_next_round(&mut self) -> Result<Sent, CliError> {
        let Some(session) = self.session().cloned() else { return Ok(Sent::RunningElsewhere) };
        let root = session.root_id();
        if root != session && is_running(&*self.store, &root).await? {
            return Ok(Sent::RunningElsewhere);
        }
        for _ in 0..RUNNER_EXIT_POLLS {
            match self.runtime.resume(&session, setup::resume_options(&self.settings, &self.flags)).await {
                Ok(run) => return Ok(Sent::Started(Box::new(run))),
                Err(RunError::Store(StoreError::Held { .. })) => {}
                Err(error) => return Err(error.into()),
            }
            if !self.runtime.has_unread_input(&session).await? {
                break;
            }
            tokio::time::sleep(RUNNER_EXIT_POLL_INTERVAL).await;
        }
        Ok(Sent::RunningElsewhere)
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
        Ok(())
    }

    async fn load(&mut self, session: &SessionId) -> Result<(), CliError> {
        let (view, records) = RunView::load(&*self.store, session).await?;
        if view.tree.node(session).is_none() {
            return Err(StoreError::UnknownSession(session.clone()).into());
        }
        self.background_children = records.iter().filter_map(background_child).cloned().collect();
        self.earlier = records.into_iter().filter(|record| record.session == *session).collect();
        self.view = Some(view);
        Ok(())
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
