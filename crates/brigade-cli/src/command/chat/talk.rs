//! The conversation itself: which session it is, with which settings, and what its next round begins with.

use std::collections::HashSet;
use std::sync::Arc;

use brigade::mcp::Servers;
use brigade::{Asks, Prepared, RunError, Runtime, Store, StoreError, Workspace};
use brigade_core::delegation::Waiting;
use brigade_core::permission::Mode;
use brigade_core::view::Doing;
use brigade_core::{Event, Record, SessionId};

use super::super::run::{begin, named_agent};
use super::super::tell::{GLANCE, GLANCES, is_run};
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
            None if last => Some(last_session(&*store, &settings).await?),
            None => None,
        };
        let settings = match &session {
            Some(session) => engine::at_home(&global, &flags, &*store, session).await?,
            None => settings,
        };
        let settings = suited(settings, &global);
        let servers = engine::servers(&settings).await?;
        let runtime = engine::runtime(&settings, store.clone(), &servers)?;
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

    /// Says something: starts the session, or asks for its next round.
    pub(super) async fn say(&mut self, text: &str) -> Result<Said, Failure> {
        let Some(session) = self.session().cloned() else {
            let round = begin(&self.runtime, &self.settings, &self.flags, text).await?;
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
        self.runtime = engine::runtime(&settings, self.store.clone(), &self.servers)?;
        (self.settings, self.flags) = (settings, flags);
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
        self.runtime = engine::runtime(&settings, self.store.clone(), &self.servers)?;
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

/// The session at the top of a tree in this folder in which something happened last.
async fn last_session(store: &dyn Store, settings: &Settings) -> Result<SessionId, Failure> {
    let here = Workspace::open(&settings.folder).map_err(|error| {
        Failure::usage(format!("{} cannot be worked in: {error}", settings.folder.display()))
    })?;
    let mut roots = store.roots().await?;
    roots.retain(|summary| summary.root.is_root());
    roots.sort_by_key(|summary| std::cmp::Reverse(summary.last.as_ref().map_or(0, |record| record.pos)));
    for summary in roots {
        if engine::recorded_folder(store, &summary.root).await?.is_some_and(|folder| folder == here.root()) {
            return Ok(summary.root);
        }
    }
    Err(Failure::usage(format!(
        "there is no session in {} yet; start one with: brigade chat",
        here.root().display()
    )))
}
