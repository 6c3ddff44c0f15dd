//! A session that the client has open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::v1::schema as acp;
use brigade::{ModeOrigin, More, Runtime, Task};
use brigade_core::grant::{Authority, Refusal};
use brigade_core::permission::Mode;
use brigade_core::{Agent, Amount, Event, Hop, Record, SessionId};
use tokio::sync::watch;

use super::narrator::Narrator;
use super::{Desk, refusal};

/// A session that the client has open.
pub(super) struct Seat {
    pub(super) session: SessionId,
    pub(super) desk: Desk,
    /// The freest mode that the definition of the agent allows, and whoever hands work on.
    pub(super) freest: Mode,
    now: Mutex<Now>,
}

/// What of it changes.
struct Now {
    mode: Mode,
    model: Chosen,
    /// Where the session comes from, and what is left for it there.
    hop: Option<Hop>,
    /// The depth that the session has in any case, once it has begun.
    begun: Option<u32>,
    round: Option<Going>,
    /// The update mapper of the last round; it knows which updates the client has.
    narrator: Option<Narrator>,
}

impl Now {
    fn new(mode: Mode, model: Chosen, hop: Option<Hop>, begun: Option<u32>) -> Now {
        Now { mode, model, hop, begun, round: None, narrator: None }
    }
}

/// A model, and whether the person chose it: here, or for all sessions on record.
struct Chosen {
    value: String,
    by_person: bool,
}

/// A round that is going on.
struct Going {
    prompt: acp::RequestId,
    stop: watch::Sender<bool>,
}

/// The right to run a round of a session. It is given back when this is dropped.
pub(super) struct Turn {
    pub(super) seat: Arc<Seat>,
    pub(super) stop: watch::Receiver<bool>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.seat.now().round = None;
    }
}

/// How a round begins.
pub(super) enum Beginning {
    /// The session has to be started.
    First(Box<Task>),
    /// It goes on.
    Next(More),
}

impl Seat {
    /// A session that is yet to begin.
    pub(super) fn new(session: SessionId, desk: Desk, hop: Option<Hop>) -> Seat {
        let settings = desk.runtime.settings();
        let own = desk.agent.as_ref();
        let freest = freest(own.unwrap_or(&settings.lead).mode, hop.as_ref());
        let mode = settings.permissions.mode.min(freest);
        let model = own.and_then(|agent| agent.model.clone()).unwrap_or_else(|| settings.model.clone());
        let now = Now::new(mode, Chosen { value: model, by_person: false }, hop, None);
        Seat { session, desk, freest, now: Mutex::new(now) }
    }

    /// A session that is on record, with the model that it had last, unless the person names another for all; and no
    /// freer than it was last, or than sessions are now.
    pub(super) async fn recorded(session: SessionId, desk: Desk, records: &[Record]) -> Seat {
        let settings = desk.runtime.settings();
        let started = records.iter().rev().find_map(|record| match &record.event {
            Event::Started { grant, agent, depth, delegation, .. } => {
                Some((grant.authority, *agent, *depth, delegation.hop.as_deref()))
            }
            _ => None,
        });
        let (mut mode, mut model, mut begun) = (settings.permissions.mode, settings.model.clone(), 0);
        let mut freest = Mode::Auto;
        if let Some((authority, agent, depth, hop)) = started {
            let store = desk.runtime.store();
            let blob = async |hash| store.blob(hash).await.ok().flatten();
            let authority =
                blob(authority).await.and_then(|body| serde_json::from_str::<Authority>(&body).ok());
            let agent = blob(agent).await.and_then(|body| serde_json::from_str::<Agent>(&body).ok());
            mode = authority.map_or(mode, |authority| authority.permissions.mode.min(mode));
            freest = self::freest(agent.as_ref().and_then(|agent| agent.mode), hop);
            model = agent.and_then(|agent| agent.model).unwrap_or(model);
            begun = depth;
        }
        let by_person = desk.model.is_some();
        let value = desk.model.clone().unwrap_or(model);
        let now = Now::new(mode.min(freest), Chosen { value, by_person }, None, Some(begun));
        Seat { session, desk, freest, now: Mutex::new(now) }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The update mapper of the last round, if one ran in this process.
    pub(super) fn take_narrator(&self) -> Option<Narrator> {
        self.now().narrator.take()
    }

    /// Keeps what told a round for the next one.
    pub(super) fn keep_narrator(&self, narrator: Narrator) {
        self.now().narrator = Some(narrator);
    }

    /// The mode of the next round.
    pub(super) fn mode(&self) -> Mode {
        self.now().mode
    }

    /// The model of the next round.
    pub(super) fn model(&self) -> String {
        self.now().model.value.clone()
    }

    /// The mode from the next round on.
    pub(super) fn set_mode(&self, mode: Mode) {
        self.now().mode = mode;
    }

    /// The model from the next round on.
    pub(super) fn set_model(&self, model: &str) {
        self.now().model = Chosen { value: model.to_owned(), by_person: true };
    }

    /// Whether the session has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.now().begun.is_some()
    }

    /// Takes the right to run a round, if nobody has it.
    pub(super) fn take_turn(self: &Arc<Seat>, prompt: &acp::RequestId) -> Result<Turn, acp::Error> {
        let mut now = self.now();
        if now.round.is_some() {
            return Err(refusal::request(
                "the session is at work: wait for its end, cancel it, or say something to an agent of it with \
                 /tell AGENT TEXT",
            ));
        }
        let (sender, stop) = watch::channel(false);
        now.round = Some(Going { prompt: prompt.clone(), stop: sender });
        drop(now);
        Ok(Turn { seat: self.clone(), stop })
    }

    /// Asks the round to stop, if there is one.
    pub(super) fn stop(&self) -> bool {
        let now = self.now();
        now.round.as_ref().is_some_and(|round| round.stop.send(true).is_ok())
    }

    /// Asks the round to stop if it was begun by this prompt.
    pub(super) fn stop_prompt(&self, prompt: &acp::RequestId) {
        let now = self.now();
        if let Some(round) = now.round.as_ref().filter(|round| round.prompt == *prompt) {
            let _ = round.stop.send(true);
        }
    }

    /// Whether a round is going on.
    pub(super) fn is_busy(&self) -> bool {
        self.now().round.is_some()
    }

    /// The runtime of the next round: with the mode and the model of now.
    pub(super) fn runtime(&self) -> Runtime {
        let now = self.now();
        let mut settings = self.desk.runtime.settings().clone();
        if settings.permissions.mode != now.mode {
            settings.permissions.mode = now.mode;
            settings.mode_origin = ModeOrigin::Choice;
        }
        if now.model.by_person {
            settings.model.clone_from(&now.model.value);
            settings.fallbacks.clear();
        }
        self.desk.runtime.with_settings(settings)
    }

    /// How the next round begins, for words that come with this hop: within that and within what the session came with.
    /// The depth that a session began at stays, so a hop from further down cannot go on with it.
    pub(super) fn beginning(&self, text: &str, hop: Option<Hop>) -> Result<Beginning, acp::Error> {
        let now = self.now();
        let hop = match (&now.hop, hop) {
            (Some(first), Some(hop)) => Some(first.and(&hop)),
            (first, hop) => hop.or_else(|| first.clone()),
        };
        let Some(depth) = now.begun else {
            let mut task = Task::new(text).session(self.session.clone()).hop(hop);
            if let Some(timeout) = self.desk.timeout {
                task = task.timeout(timeout);
            }
            if let Some(agent) = &self.desk.agent {
                let mut agent = agent.clone();
                if now.model.by_person {
                    agent.model = Some(now.model.value.clone());
                    agent.fallbacks.clear();
                }
                task = task.agent(agent);
            }
            return Ok(Beginning::First(Box::new(task)));
        };
        if let Some(hop) = &hop {
            may_go_on(hop, depth)?;
        }
        let settings = self.desk.runtime.settings();
        Ok(Beginning::Next(More {
            budget: Some(settings.budget),
            turns: Some(settings.limits.lead_turns),
            timeout: self.desk.timeout,
            model: now.model.by_person.then(|| now.model.value.clone()),
            mode: hop.as_ref().and_then(|hop| hop.mode).into_iter().chain([now.mode]).min(),
            hop,
            continue_cancelled: false,
        }))
    }

    /// Takes what a round has used up from what is left for the session.
    pub(super) fn book(&self, used: Amount) {
        let mut now = self.now();
        now.hop = now.hop.as_ref().map(|hop| hop.less(used));
    }

    /// The session is on record now, at this depth.
    pub(super) fn set_begun(&self, depth: u32) {
        self.now().begun.get_or_insert(depth);
    }
}

/// The freest mode that a definition and a hop allow together.
fn freest(own: Option<Mode>, hop: Option<&Hop>) -> Mode {
    own.into_iter().chain(hop.and_then(|hop| hop.mode)).min().unwrap_or(Mode::Auto)
}

/// Whether a session of this depth may go on for a hop. It is asked before the words are on record.
fn may_go_on(hop: &Hop, depth: u32) -> Result<(), acp::Error> {
    if hop.depth > depth {
        return Err(refusal::request(format!(
            "the session was begun at depth {depth} and cannot go on at depth {}; open a new one",
            hop.depth
        )));
    }
    match hop.deepest {
        Some(deepest) if deepest < depth => Err(refusal::request(Refusal::Depth { deepest }.to_string())),
        Some(_) | None => Ok(()),
    }
}
