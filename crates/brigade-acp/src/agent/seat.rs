//! A session that the client has open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::v1::schema as acp;
use brigade::{More, Runtime, Task};
use brigade_core::grant::Authority;
use brigade_core::permission::Mode;
use brigade_core::{Agent, Event, Hop, Record, SessionId};
use tokio::sync::watch;

use super::{Desk, refusal};

/// A session that the client has open.
pub(super) struct Seat {
    pub(super) session: SessionId,
    pub(super) desk: Desk,
    /// The freest mode that the definition of the agent allows.
    pub(super) freest: Mode,
    now: Mutex<Now>,
}

/// What of it changes.
struct Now {
    mode: Chosen<Mode>,
    model: Chosen<String>,
    /// Where the first task comes from.
    hop: Option<Hop>,
    /// The depth that the session has in any case, once it has begun.
    begun: Option<u32>,
    round: Option<Going>,
}

impl Now {
    fn new(mode: Mode, model: String, hop: Option<Hop>, begun: Option<u32>) -> Now {
        let mode = Chosen { value: mode, by_person: false };
        let model = Chosen { value: model, by_person: false };
        Now { mode, model, hop, begun, round: None }
    }
}

/// A value, and whether the person chose it here.
#[derive(Clone)]
struct Chosen<T> {
    value: T,
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
        let freest = own.and_then(|agent| agent.mode).unwrap_or(Mode::Auto);
        let mode = settings.permissions.mode.min(freest);
        let model = own.and_then(|agent| agent.model.clone()).unwrap_or_else(|| settings.model.clone());
        let now = Now::new(mode, model, hop, None);
        Seat { session, desk, freest, now: Mutex::new(now) }
    }

    /// A session that is on record, with the mode and the model that it had last.
    pub(super) async fn recorded(session: SessionId, desk: Desk, records: &[Record]) -> Seat {
        let settings = desk.runtime.settings();
        let started = records.iter().rev().find_map(|record| match &record.event {
            Event::Started { grant, agent, depth, .. } => Some((grant.authority, *agent, *depth)),
            _ => None,
        });
        let (mut mode, mut model, mut begun) = (settings.permissions.mode, settings.model.clone(), 0);
        let mut freest = Mode::Auto;
        if let Some((authority, agent, depth)) = started {
            let store = desk.runtime.store();
            let blob = async |hash| store.blob(hash).await.ok().flatten();
            let authority =
                blob(authority).await.and_then(|body| serde_json::from_str::<Authority>(&body).ok());
            let agent = blob(agent).await.and_then(|body| serde_json::from_str::<Agent>(&body).ok());
            mode = authority.map_or(mode, |authority| authority.permissions.mode);
            freest = agent.as_ref().and_then(|agent| agent.mode).unwrap_or(freest);
            model = agent.and_then(|agent| agent.model).unwrap_or(model);
            begun = depth;
        }
        let now = Now::new(mode, model, None, Some(begun));
        Seat { session, desk, freest, now: Mutex::new(now) }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mode of the next round.
    pub(super) fn mode(&self) -> Mode {
        self.now().mode.value
    }

    /// The model of the next round.
    pub(super) fn model(&self) -> String {
        self.now().model.value.clone()
    }

    /// The mode from the next round on.
    pub(super) fn set_mode(&self, mode: Mode) {
        self.now().mode = Chosen { value: mode, by_person: true };
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
        settings.permissions.mode = now.mode.value;
        if now.model.by_person {
            settings.model.clone_from(&now.model.value);
            settings.fallbacks.clear();
        }
        self.desk.runtime.with_settings(settings)
    }

    /// How the next round begins, for words that come with this hop. The depth that a session began at stays, so a hop
    /// from further down cannot go on with it.
    pub(super) fn beginning(&self, text: &str, hop: Option<Hop>, at: u64) -> Result<Beginning, acp::Error> {
        let now = self.now();
        let Some(depth) = now.begun else {
            let mut task = Task::new(text).session(self.session.clone()).hop(hop.or_else(|| now.hop.clone()));
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
        let settings = self.desk.runtime.settings();
        let mut more = More {
            budget: Some(settings.budget),
            turns: Some(settings.limits.lead_turns),
            timeout: self.desk.timeout,
            model: now.model.by_person.then(|| now.model.value.clone()),
            mode: now.mode.by_person.then_some(now.mode.value),
        };
        if let Some(hop) = hop {
            if hop.next_depth() > depth {
                return Err(refusal::request(format!(
                    "the session was begun at depth {depth} and cannot go on at depth {}; open a new one",
                    hop.next_depth()
                )));
            }
            more.budget = Some(hop.within(settings.budget));
            let left =
                hop.deadline.map(|deadline| std::time::Duration::from_millis(deadline.saturating_sub(at)));
            more.timeout = [left, more.timeout].into_iter().flatten().min();
            more.mode = [hop.mode, Some(now.mode.value)].into_iter().flatten().min();
        }
        Ok(Beginning::Next(more))
    }

    /// The session is on record now, at this depth.
    pub(super) fn set_begun(&self, depth: u32) {
        self.now().begun.get_or_insert(depth);
    }
}
