//! The conversation itself: which session it is, with which settings, and what its next round begins with.

use std::collections::HashSet;
use std::sync::Arc;

use brigade::mcp::Servers;
use brigade::tool::Files;
use brigade::{Asks, Prepared, RunError, Runtime, Store, StoreError};
use brigade_core::delegation::Waiting;
use brigade_core::permission::Mode;
use brigade_core::view::Doing;
use brigade_core::{Event, Record, SessionId};

use super::super::run::{Assignment, begin, named_agent};
use super::super::tell::{GLANCE, GLANCES, is_run};
use super::answers::{self, NO_SESSION};
use super::attach::{Attached, attach};
use crate::args::{Chat, Flags, Global, OutputFormat};
use crate::engine;
use crate::failure::Failure;
use crate::finish::Hints;
use crate::follow::View;
use crate::named;
use crate::settings::Settings;
use crate::terminal::{self, Colour};

/// A conversation.
pub(super) struct Talk {
    pub(super) global: Global,
    flags: Flags,
    pub(super) settings: Settings,
    /// The servers of tools, which outlive a change of model or mode.
    servers: Servers,
    pub(super) runtime: Runtime,
    store: Arc<dyn Store>,
    /// What is known of the session, once there is one.
    pub(super) view: Option<View>,
    /// Children that work in the background.
    pub(super) beside: HashSet<SessionId>,
    /// What was said before this chat.
    pub(super) earlier: Vec<Record>,
    /// What the user did since the last message, which the agent reads with the next one.
    kept: Vec<String>,
}

/// What became of something that was said.
pub(super) enum Said {
    /// A round is ready to run.
    Runs(Prepared),
    /// Somebody else runs the session, which hears it there.
    Elsewhere,
}

impl Talk {
    /// A new conversation, or the one that the person names.
    pub(super) async fn open(global: Global, chat: Chat) -> Result<Talk, Failure> {
        let Chat { last, resume, flags } = chat;
        let settings = match &resume {
            Some(_) => Settings::of_the_person(&global)?,
            None => Settings::for_run(&global, &flags)?,
        };
        let store = engine::store(&settings)?;
        let session = match &resume {
            Some(id) => Some(named::session(&*store, id).await?),
            None if last => Some(named::last_in_folder(&*store, &settings.folder, "brigade chat").await?),
            None => None,
        };
        let settings = match &session {
            Some(session) => engine::at_home(&global, &flags, &*store, session).await?,
            None => settings,
        };
        let settings = suited(settings, &global);
        let servers = engine::servers(&settings).await?;
        let runtime = engine::runtime(&settings, store.clone(), &servers).await?;
        let mut talk = Talk {
            global,
            flags,
            settings,
            servers,
            runtime,
            store,
            view: None,
            beside: HashSet::new(),
            earlier: Vec::new(),
            kept: Vec::new(),
        };
        match &session {
            Some(session) => talk.load(session).await?,
            None => {
                named_agent(&talk.settings, &talk.runtime.settings().agents)?;
            }
        }
        Ok(talk)
    }

    /// The session, once there is one.
    pub(super) fn session(&self) -> Option<&SessionId> {
        self.view.as_ref().map(|view| &view.root)
    }

    /// The flags that commands have to be typed with.
    pub(super) fn hints(&self) -> Hints {
        Hints::new(&self.global, &self.flags)
    }

    /// The colours of the terminal.
    pub(super) fn colour(&self) -> Colour {
        terminal::colour(&self.settings.environment)
    }

    /// Who is talked to.
    pub(super) fn who(&self) -> &str {
        let node = self.view.as_ref().and_then(|view| view.tree.node(&view.root));
        node.map_or(&self.settings.agent, |node| &node.label)
    }

    /// Whether the last round of the session has not ended.
    pub(super) fn is_open(&self) -> bool {
        let node = self.view.as_ref().and_then(|view| view.tree.node(&view.root));
        node.is_some_and(|node| !matches!(node.doing, Doing::Ended(_)))
    }

    /// The model of the next round, if there is one: a session keeps its own until another is named.
    pub(super) async fn model(&self) -> Option<String> {
        let own = match (&self.flags.model, self.session()) {
            (None, Some(session)) => engine::recorded(&*self.store, session).await.ok().flatten(),
            _ => None,
        };
        own.and_then(|(_, agent)| agent?.model).or_else(|| self.settings.model.clone())
    }

    /// The mode of the next round: a session keeps its own until another is named.
    pub(super) async fn mode(&self) -> Mode {
        let own = match (self.flags.mode, self.session()) {
            (None, Some(session)) => engine::recorded(&*self.store, session).await.ok().flatten(),
            _ => None,
        };
        own.and_then(|(authority, _)| authority)
            .map_or(self.settings.permissions.mode, |own| own.permissions.mode)
    }

    /// Whether the last round was in mode `plan`, and its agent may have another one.
    pub(super) async fn can_leave_plan(&self) -> bool {
        let Some(session) = self.session() else { return false };
        let Ok(Some((Some(authority), agent))) = engine::recorded(&*self.store, session).await else {
            return false;
        };
        authority.permissions.mode == Mode::Plan && agent.is_some_and(|agent| agent.mode != Some(Mode::Plan))
    }

    /// A message with the files that it names, and with what the user did since the last one.
    pub(super) fn composed(&self, text: &str) -> Attached {
        let settings = self.runtime.settings();
        let permissions = Arc::new(settings.permissions.clone());
        let files = Files::new(settings.workspace.clone(), permissions, [String::new()].into());
        let mut attached = attach(text, &files);
        for kept in &self.kept {
            attached.text.push_str(&format!("\n\n{kept}"));
        }
        attached
    }

    /// Keeps something for the next message.
    pub(super) fn keep_for_next(&mut self, text: String) {
        self.kept.push(text);
    }

    /// The message was sent.
    pub(super) fn forget_kept(&mut self) {
        self.kept.clear();
    }

    /// Makes a round ready that replaces the conversation by a summary.
    pub(super) async fn compact(&mut self) -> Result<Prepared, Failure> {
        let session = self.session().cloned().ok_or_else(|| Failure::usage(NO_SESSION))?;
        let more = engine::more(&self.settings, &self.flags);
        self.runtime.prepare_compact(&session, more).await.map_err(Failure::from)
    }

    /// Undoes the file edits of the last round, and says so. The agent hears of it with the next message.
    pub(super) async fn undo(&mut self) -> Result<String, Failure> {
        let session = self.session().cloned().ok_or_else(|| Failure::usage(NO_SESSION))?;
        let undone = brigade::undo(&*self.store, &session, &self.runtime.settings().workspace).await?;
        if let Some(words) = answers::undone_for_agent(&undone) {
            self.keep_for_next(words);
        }
        Ok(answers::undone(&undone))
    }

    /// Leaves the session, so that the next message begins another one. Returns the one that was left.
    pub(super) fn leave_session(&mut self) -> Option<SessionId> {
        self.beside.clear();
        self.earlier.clear();
        self.kept.clear();
        self.view.take().map(|view| view.root)
    }

    /// Says something: starts the session, or asks for its next round.
    pub(super) async fn say(&mut self, text: &str) -> Result<Said, Failure> {
        let Some(session) = self.session().cloned() else {
            let task = Assignment::new(text);
            let round = begin(&self.runtime, &self.settings, &self.flags, &task).await?;
            self.view = Some(View::new(round.session().clone()));
            return Ok(Said::Runs(round));
        };
        self.runtime.tell(&session, text).await?;
        self.go_on().await.map_err(|failure| failure.hint("The words are recorded all the same."))
    }

    /// Says something to a session that runs.
    pub(super) async fn tell(&self, session: &SessionId, text: &str) -> Result<(), Failure> {
        self.until_it_is_there(session).await;
        self.runtime.tell(session, text).await.map_err(Failure::from)
    }

    /// Asks a session that runs to stop.
    pub(super) async fn cancel(&self, session: &SessionId) -> Result<(), Failure> {
        self.until_it_is_there(session).await;
        self.runtime.cancel(session, "the person").await.map_err(Failure::from)
    }

    /// Waits for the first fact of a session that has only just begun.
    async fn until_it_is_there(&self, session: &SessionId) {
        for _ in 0..GLANCES {
            if self.store.sessions(session).await.is_ok_and(|found| found.first() == Some(session)) {
                return;
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    /// Makes the next round ready, with limits of its own.
    pub(super) async fn go_on(&mut self) -> Result<Said, Failure> {
        let Some(session) = self.session().cloned() else { return Ok(Said::Elsewhere) };
        let root = session.root_id();
        if root != session && is_run(&*self.store, &root).await? {
            return Ok(Said::Elsewhere);
        }
        for _ in 0..GLANCES {
            match self.runtime.prepare_resume(&session, engine::more(&self.settings, &self.flags)).await {
                Ok(round) => return Ok(Said::Runs(round)),
                Err(RunError::Store(StoreError::Held { .. })) => {}
                Err(error) => return Err(error.into()),
            }
            if !self.runtime.has_unheard_words(&session).await? {
                break;
            }
            tokio::time::sleep(GLANCE).await;
        }
        Ok(Said::Elsewhere)
    }

    /// Whether something was said that no round has heard yet.
    pub(super) async fn has_unheard_words(&self) -> bool {
        match self.session() {
            Some(session) => self.runtime.has_unheard_words(session).await.unwrap_or(false),
            None => false,
        }
    }

    /// Goes over to another session.
    pub(super) async fn switch(&mut self, session: &SessionId) -> Result<(), Failure> {
        let flags = Flags { cwd: None, ..self.flags.clone() };
        let settings = engine::at_home(&self.global, &flags, &*self.store, session).await?;
        let settings = suited(settings, &self.global);
        self.servers = engine::servers(&settings).await?;
        self.runtime = engine::runtime(&settings, self.store.clone(), &self.servers).await?;
        (self.settings, self.flags) = (settings, flags);
        self.kept.clear();
        self.load(session).await
    }

    /// Another model from the next round on.
    pub(super) async fn set_model(&mut self, model: String) -> Result<(), Failure> {
        self.set(Flags { model: Some(model), ..self.flags.clone() }).await
    }

    /// Another mode from the next round on.
    pub(super) async fn set_mode(&mut self, mode: Mode) -> Result<(), Failure> {
        self.set(Flags { mode: Some(mode), ..self.flags.clone() }).await
    }

    async fn set(&mut self, flags: Flags) -> Result<(), Failure> {
        let settings = match self.session() {
            Some(session) => engine::at_home(&self.global, &flags, &*self.store, session).await?,
            None => Settings::for_run(&self.global, &flags)?,
        };
        engine::check_model(&settings)?;
        let settings = suited(settings, &self.global);
        self.runtime = engine::runtime(&settings, self.store.clone(), &self.servers).await?;
        (self.settings, self.flags) = (settings, flags);
        Ok(())
    }

    async fn load(&mut self, session: &SessionId) -> Result<(), Failure> {
        let (view, records) = View::load(&*self.store, session).await?;
        if view.tree.node(session).is_none() {
            return Err(StoreError::Unknown(session.clone()).into());
        }
        self.beside = records.iter().filter_map(beside).cloned().collect();
        self.earlier = records.into_iter().filter(|record| record.session == *session).collect();
        self.view = Some(view);
        Ok(())
    }
}

/// Where messages are read line by line, a line cannot be an answer too: whoever wants to be asked answers from elsewhere.
fn suited(mut settings: Settings, global: &Global) -> Settings {
    let is_on_screen =
        global.output_format == OutputFormat::Text && terminal::can_chat(&settings.environment);
    if !is_on_screen && !settings.waits_for_answers {
        settings.asks = Asks::Nobody;
    }
    settings
}

/// The child that is to work in the background, if this fact lends to one.
pub(super) fn beside(record: &Record) -> Option<&SessionId> {
    match &record.event {
        Event::Delegated { child, delegation, .. } if delegation.waiting != Waiting::Foreground => {
            Some(child)
        }
        _ => None,
    }
}
