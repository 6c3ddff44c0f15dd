//! The driver: does what [`State::next`] says, and records it.
//!
//! One driver runs one session; a child is the same driver on the child's log. It is the only reader of its inbox and
//! the only writer of its log, apart from outside words. Facts are applied as they are recorded and appended together:
//! always before an effect, and before anyone else learns of a result.

mod act;
mod ask;
mod clock;
mod compact;
mod edit;
mod group;
mod hop;
mod kin;
mod lend;
mod patience;
mod schema;
mod think;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brigade_core::event::{CallFault, Speaker, VERSION};
use brigade_core::message::Stop;
use brigade_core::money::Amount;
use brigade_core::state::{CallProgress, Round, Step};
use brigade_core::{
    CallId, Event, Face, Hash, Outcome, Purpose, Record, SeenFile, SessionId, Spent, State, Status,
    ToolOutput,
};
use futures::StreamExt;
use futures::channel::mpsc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock as wall_clock;
use crate::external::{self, Seat};
use crate::live::Live;
use crate::maps::{Map, Set};
use crate::slots::{Lane, Slot};
use crate::store::{Append, Expect, Pos, StoreError};
use crate::task::AbortOnDrop;
use crate::tree::{Kit, Tree};
use clock::SessionClock;
use group::Group;
use lend::Waiting;
use patience::MOST_GRACE;

/// The reason for the end of a round that was opened for a summary, if the round before it was not done.
const SUMMARY_MADE: &str = "the request for a summary";

/// Why a driver stops without an end in its log. The tree can be resumed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Fatal {
    #[error(transparent)]
    Store(StoreError),
    #[error("{0}")]
    Setup(String),
    #[error("a session stopped unexpectedly: {0}")]
    Bug(String),
}

impl From<StoreError> for Fatal {
    fn from(error: StoreError) -> Fatal {
        Fatal::Store(error)
    }
}

/// What reaches a driver. Kept small: ten thousand drivers have an inbox each.
pub(crate) enum Inbox {
    /// The log may have outside words.
    Look,
    /// The caller stops this session.
    Cancel(Box<str>),
    /// A tool is done.
    ToolDone(Box<ToolDone>),
    /// A child is done.
    ChildDone(Box<ChildEnd>),
    /// A child that waits may begin.
    Slot(Box<Slot>),
}

/// The end of a call.
pub(crate) struct ToolDone {
    pub(crate) call: CallId,
    pub(crate) output: ToolOutput,
    pub(crate) spent: Spent,
    /// The file that the agent has seen through it.
    pub(crate) seen: Option<SeenFile>,
}

pub(crate) struct ChildEnd {
    pub(crate) child: SessionId,
    pub(crate) result: Result<RoundEnd, Fatal>,
}

/// How a round ended and what it used up.
#[derive(Debug, Clone)]
pub(crate) struct RoundEnd {
    pub(crate) outcome: Outcome,
    pub(crate) spent: Spent,
}

pub(crate) struct Driver {
    tree: Arc<Tree>,
    state: State,
    kit: Arc<Kit>,
    sender: mpsc::UnboundedSender<Inbox>,
    inbox: mpsc::UnboundedReceiver<Inbox>,
    /// Facts that are applied and not yet durable.
    pending: Vec<Event>,
    /// Definitions that the pending facts name.
    blobs: Vec<(Hash, Arc<str>)>,
    committed: u64,
    /// Position of the last fact that is durable.
    last_pos: Pos,
    in_flight: Set<CallId>,
    children: Map<SessionId, mpsc::UnboundedSender<Inbox>>,
    /// The tasks of children that may outlive this session.
    detachable: Map<SessionId, AbortOnDrop<()>>,
    /// Calls that delegate and are not answered.
    groups: Map<CallId, Group>,
    /// Calls with several children that have all ended.
    finished: Vec<CallId>,
    /// Children that wait for a slot or for a refund.
    waiting: BTreeMap<Lane, VecDeque<Waiting>>,
    /// Children whose loan is recorded and who are not started yet.
    lent: Vec<lend::Lent>,
    /// The edit that is under way, and those that wait for it.
    editing: Option<CallId>,
    deferred: VecDeque<CallId>,
    /// Calls that a person is asked about, and when the default answers.
    asking: BTreeMap<CallId, Option<Instant>>,
    /// Which change of its tool a person was shown with the question about a call.
    shown: BTreeMap<CallId, Hash>,
    last_kit: Option<Box<group::LastKit>>,
    /// Whether those that wait can only be lent to when another loan comes back.
    waits_for_refund: bool,
    /// What slots were asked for.
    asked: Set<Lane>,
    tasks: JoinSet<()>,
    running_tools: usize,
    /// Tells tools to stop; made for the first of them.
    stop: OnceLock<watch::Sender<bool>>,
    is_stopped: bool,
    slot: Option<Slot>,
    clock: Arc<SessionClock>,
    /// How long the last word may take after that.
    grace: Duration,
    /// What is kept for this session where another program runs it.
    seat: Option<Box<Seat>>,
    /// Whether another program was at work on this round for an earlier runner, and knows nothing of this one.
    is_cut_off: bool,
    /// The summary of the conversation that the round was opened for.
    summary: Summary,
}

/// State of a summary that the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Summary {
    NotAsked,
    Asked,
    Made,
}

impl Driver {
    /// A driver for a session whose log is empty: its first fact is written together with what follows.
    pub(crate) fn begin(
        tree: Arc<Tree>,
        session: SessionId,
        round: Round,
        kit: Arc<Kit>,
        slot: Option<Slot>,
    ) -> Box<Driver> {
        let mut driver = Driver::new(tree, State::new(session), kit, slot);
        driver.name_definitions();
        driver.open_round(round);
        driver
    }

    /// A driver for a session whose log goes on. `started_pos` is the place of the round's first fact.
    pub(crate) fn go_on(tree: Arc<Tree>, state: State, kit: Arc<Kit>, started_pos: u64) -> Box<Driver> {
        let mut driver = Driver::new(tree, state, kit, None);
        driver.set_deadline(driver.tree.downtime_since(started_pos));
        driver
    }

    /// A driver that opens a next round of a session whose last one is over.
    pub(crate) fn next_round(
        tree: Arc<Tree>,
        state: State,
        kit: Arc<Kit>,
        round: Round,
        words: Option<&str>,
    ) -> Box<Driver> {
        let mut driver = Driver::new(tree, state, kit, None);
        driver.name_definitions();
        if let Some(words) = words {
            driver.record(Event::Heard { from: Speaker::Runtime, text: words.into() });
        }
        driver.open_round(round);
        driver
    }

    /// Boxed from the start: a driver is large, and goes through many hands before it runs.
    fn new(tree: Arc<Tree>, state: State, kit: Arc<Kit>, slot: Option<Slot>) -> Box<Driver> {
        let (sender, inbox) = mpsc::unbounded();
        let committed = state.length();
        tree.enter(state.session(), sender.clone());
        let seat = tree.seat(&kit, state.session());
        Box::new(Driver {
            tree,
            state,
            kit,
            sender,
            inbox,
            pending: Vec::new(),
            blobs: Vec::new(),
            committed,
            last_pos: 0,
            in_flight: Set::default(),
            children: Map::default(),
            detachable: Map::default(),
            groups: Map::default(),
            finished: Vec::new(),
            waiting: BTreeMap::new(),
            lent: Vec::new(),
            editing: None,
            deferred: VecDeque::new(),
            asking: BTreeMap::new(),
            shown: BTreeMap::new(),
            last_kit: None,
            waits_for_refund: false,
            asked: Set::default(),
            tasks: JoinSet::new(),
            running_tools: 0,
            stop: OnceLock::new(),
            is_stopped: false,
            slot,
            clock: Arc::default(),
            grace: MOST_GRACE,
            seat,
            is_cut_off: false,
            summary: Summary::NotAsked,
        })
    }

    /// Records the beginning of a round.
    pub(crate) fn open_round(&mut self, round: Round) {
        let Round { delegation, agent, grant, parent, depth } = round;
        self.record(Event::Started { delegation, agent, grant, parent, depth });
        self.set_deadline(0);
    }

    /// Opens the round for nothing but a summary of the conversation.
    pub(crate) fn compact(&mut self) {
        self.summary = Summary::Asked;
    }

    pub(crate) fn agent(&self) -> &brigade_core::Agent {
        &self.kit.agent
    }

    pub(crate) fn inbox(&self) -> mpsc::UnboundedSender<Inbox> {
        self.sender.clone()
    }

    fn name_definitions(&mut self) {
        self.tree.add_unwritten(&self.kit, &mut self.blobs);
    }

    fn lane(&self) -> Lane {
        let face = self.state.round().map_or(Face::Run, |round| round.delegation.face);
        let cap = self.kit.agent.max_concurrency.filter(|_| face != Face::Run);
        Lane { face, agent: cap.map(|cap| (self.kit.agent.id.as_str().into(), cap)) }
    }

    /// Runs the session to the end of its round. Boxed, because futures keep what they are given more than once.
    pub(crate) async fn drive(mut self: Box<Self>) -> Result<RoundEnd, Fatal> {
        let result = self.run().await;
        self.tree.leave(self.state.session());
        let Driver { tree, state, pending, last_pos, .. } = *self;
        // Only what is over and durable can be gone on with from here.
        if result.is_ok() && pending.is_empty() && last_pos > 0 && *state.session() == tree.root {
            tree.remember(state, last_pos, last_pos);
        }
        result
    }

    async fn run(&mut self) -> Result<RoundEnd, Fatal> {
        self.close_interrupted_call();
        self.take_up_background().await?;
        loop {
            self.stop_work_if_told();
            let step = self.state.next();
            match self.summary_first(step) {
                Step::CallModel(purpose) => self.call_model(purpose).await?,
                // Boxed, here and below, is what few sessions do and would make the future of all of them large.
                Step::RunCalls(calls) => Box::pin(self.run_calls(calls)).await?,
                Step::Wait => Box::pin(self.wait()).await?,
                Step::Detach(children) => Box::pin(self.detach(children)).await?,
                Step::End(outcome) => {
                    let Some(outcome) = self.fit_to_schema(outcome) else { continue };
                    let outcome = self.with_warnings(outcome);
                    let spent = self.state.ledger().spent_at_end();
                    if !self.record(Event::Ended { outcome, spent }) {
                        return Err(self.contradiction("end"));
                    }
                    self.flush().await?;
                }
                Step::Nothing => {
                    self.flush().await?;
                    // A conflict may have shown that there is more to do.
                    if let Some(outcome) = self.state.ended() {
                        return Ok(RoundEnd { outcome: outcome.clone(), spent: self.state.ledger().spent() });
                    }
                    if !self.state.is_running() {
                        return Err(Fatal::Bug(format!("{} was never started", self.state.session())));
                    }
                }
            }
        }
    }

    /// The next step of a round that was opened for a summary: the summary comes first, and work that was left undone
    /// stays so until the user says something.
    fn summary_first(&mut self, step: Step) -> Step {
        if self.summary == Summary::NotAsked || self.state.has_unheard_words() {
            return step;
        }
        match (self.summary, step) {
            (Summary::Asked, Step::CallModel(_) | Step::End(Outcome { status: Status::Done, .. }))
                if self.state.can_compact() =>
            {
                Step::CallModel(Purpose::Compaction)
            }
            (Summary::Made, Step::CallModel(_)) => {
                self.record(Event::CancelAsked { by: SUMMARY_MADE.to_owned() });
                self.state.next()
            }
            (_, step) => step,
        }
    }

    /// `next` and `admits` are two readings of one log. Where they differ, stopping beats going round for ever.
    fn contradiction(&self, what: &str) -> Fatal {
        Fatal::Bug(format!("{} may not {what} at fact {}", self.state.session(), self.state.length()))
    }

    fn with_warnings(&self, outcome: Outcome) -> Outcome {
        let mut warnings =
            self.state.round().map(|round| round.delegation.warnings.clone()).unwrap_or_default();
        match self.state.last_stop() {
            Some(Stop::Length) => {
                warnings.push("the last reply was cut off at its output limit; raise max_tokens".to_owned());
            }
            Some(Stop::Refusal) => warnings.push("the model refused in its last reply".to_owned()),
            Some(Stop::End | Stop::Calls | Stop::Denied) | None => {}
        }
        // The user is told; what a caller reads of its child is fixed by the face.
        if self.state.round().is_some_and(|round| round.parent.is_none()) {
            warnings.extend(usage_warnings(&self.state.ledger().spent()));
        }
        Outcome { warnings, ..outcome }
    }

    /// A call that was open when an earlier runner ended: what it cost is in doubt, and it is asked again. An external
    /// agent is not: nobody knows what it has done. Nor is one that was called in this round and has replied: it waited
    /// for the earlier runner and is gone.
    fn close_interrupted_call(&mut self) {
        self.is_cut_off = self.kit.terms.is_some() && self.state.was_called();
        if let Some(open) = self.state.open_call() {
            let spent = Spent::doubtful(open.reserved);
            let (turn, attempt) = (open.turn, open.attempt);
            let cause = match self.kit.terms {
                None => CallFault::Interrupted,
                Some(_) => CallFault::Fatal { message: external::INTERRUPTED.to_owned() },
            };
            self.record(Event::call_failed(turn, attempt, cause, spent));
        }
    }

    /// Applies a fact and puts it up for the next append. Facts that the state does not admit are not true any more.
    fn record(&mut self, event: Event) -> bool {
        let admitted = self.state.admits(&event);
        if admitted {
            self.state.apply(&event);
            // A fact is large, and most are appended in twos.
            if self.pending.is_empty() {
                self.pending.reserve_exact(2);
            }
            self.pending.push(event);
        }
        admitted
    }

    /// Makes all recorded facts durable.
    async fn flush(&mut self) -> Result<(), Fatal> {
        while !self.pending.is_empty() {
            let at = wall_clock::now();
            let events = Arc::new(std::mem::take(&mut self.pending));
            let append = Append {
                session: self.state.session().clone(),
                expect: Expect::Length(self.committed),
                events: events.clone(),
                blobs: self.blobs.iter().map(|(_, body)| body.clone()).collect(),
                lease: Some(self.tree.lease_for(self.state.session())),
                at,
            };
            match self.tree.store().append(append).await {
                Ok(appended) => {
                    self.publish(events, appended.first_pos, at);
                    self.tree.mark_written(&self.blobs);
                    self.blobs.clear();
                }
                Err(StoreError::Conflict { .. }) => {
                    Box::pin(self.reconcile(Arc::unwrap_or_clone(events))).await?;
                }
                Err(error) => return Err(Fatal::Store(error)),
            }
        }
        Ok(())
    }

    fn publish(&mut self, events: Arc<Vec<Event>>, first_pos: u64, at: u64) {
        let count = events.len() as u64;
        if self.tree.watchers.are_there() {
            for (offset, event) in (0..).zip(Arc::unwrap_or_clone(events)) {
                let session = self.state.session().clone();
                let (seq, pos) = (self.committed + offset, first_pos + offset);
                let record = Record { session, seq, pos, at, v: VERSION, event };
                self.tree.watchers.send(Live::Fact(Arc::new(record)));
            }
        }
        self.committed += count;
        self.last_pos = first_pos + count - 1;
    }

    /// Somebody else appended first: fold what was missed, and keep only what is still true.
    async fn reconcile(&mut self, unwritten: Vec<Event>) -> Result<(), Fatal> {
        let session = self.state.session().clone();
        let records = self.tree.store().read(&session, 0).await?;
        self.state = self.tree.fold(&session, &records);
        let known = usize::try_from(self.committed).unwrap_or(usize::MAX);
        self.committed = records.len() as u64;
        self.last_pos = records.last().map_or(0, |record| record.pos);
        for record in records.into_iter().skip(known) {
            self.tree.watchers.send(Live::Fact(Arc::new(record)));
        }
        let mut overruled = Set::default();
        for event in unwritten {
            match event {
                // A model call was priced for another request: it is thought about again.
                Event::Called { .. } => {}
                // Somebody answered before the time limit did, and the call goes on as they said.
                Event::ToolEnded { call, .. } if overruled.contains(&call) => {}
                Event::Answered { call, .. } if !self.state.admits(&event) => {
                    overruled.insert(call);
                }
                event => {
                    self.record(event);
                }
            }
        }
        Ok(())
    }

    /// Reads outside words.
    async fn look(&mut self) -> Result<(), Fatal> {
        self.flush().await?;
        let records = self.tree.store().read(&self.state.session().clone(), self.committed).await?;
        for record in records {
            self.state.apply(&record.event);
            self.committed += 1;
            self.last_pos = record.pos;
            self.tree.watchers.send(Live::Fact(Arc::new(record)));
        }
        Ok(())
    }

    /// Waits until something happens, then takes all that has happened.
    async fn wait(&mut self) -> Result<(), Fatal> {
        if !self.finished.is_empty() {
            // The last children of a call were refused: nobody is out whose end could wake this session.
            return self.answer_finished().await;
        }
        if self.take_up_answers().await? {
            return Ok(());
        }
        self.flush().await?;
        if self.running_tools == 0 {
            // A session that waits for its children or for a person is not active.
            self.slot = None;
        }
        let alarm = self.alarm();
        let first = tokio::select! {
            biased;
            message = self.inbox.next() => message,
            () = sleep_until(alarm) => {
                self.ring();
                return Ok(());
            }
        };
        self.take(first).await?;
        while let Ok(message) = self.inbox.try_recv() {
            self.take(Some(message)).await?;
        }
        self.run_deferred().await?;
        self.lend().await
    }

    async fn take(&mut self, message: Option<Inbox>) -> Result<(), Fatal> {
        match message {
            // The driver holds a sender itself, so the channel does not close.
            None => {}
            Some(Inbox::Look) => Box::pin(self.look()).await?,
            Some(Inbox::Cancel(by)) => {
                self.record(Event::CancelAsked { by: by.into() });
            }
            Some(Inbox::ToolDone(done)) => {
                self.running_tools -= 1;
                self.answer_with(*done);
            }
            Some(Inbox::ChildDone(end)) => self.child_done(*end)?,
            Some(Inbox::Slot(slot)) => {
                self.asked.remove(slot.lane());
                self.lend_with(*slot);
            }
        }
        self.stop_work_if_told();
        Ok(())
    }

    /// Takes a message while the session itself is busy. Children that it lets start do so at once: what they hold may
    /// be what the session waits for.
    async fn take_aside(&mut self, message: Option<Inbox>) -> Result<(), Fatal> {
        self.take(message).await?;
        if self.waiting.is_empty() && self.lent.is_empty() {
            return Ok(());
        }
        Box::pin(self.lend()).await
    }

    /// When nothing new may start, what runs is told to stop, children first.
    fn stop_work_if_told(&mut self) {
        let Some(reason) = self.state.stopping() else { return };
        if std::mem::replace(&mut self.is_stopped, true) {
            return;
        }
        if let Some(stop) = self.stop.get() {
            stop.send_replace(true);
        }
        let by = self.state.stopper().unwrap_or_default();
        for child in self.children.values() {
            let _ = child.unbounded_send(Inbox::Cancel(by.as_str().into()));
        }
        for call in std::mem::take(&mut self.deferred) {
            self.answer(call, ToolOutput::error(format!("Not started: {reason}")));
        }
        for call in std::mem::take(&mut self.asking).into_keys() {
            self.answer(call, ToolOutput::error(format!("Not started: {reason}")));
        }
        self.drop_waiting(&reason);
    }

    /// Turns true when what runs is to stop.
    fn stop_signal(&self) -> watch::Receiver<bool> {
        self.stop.get_or_init(|| watch::Sender::new(self.is_stopped)).subscribe()
    }

    /// Answers a call. What it was lent, if anything, is in doubt: nobody has said what of it was used.
    fn answer(&mut self, call: CallId, output: ToolOutput) {
        let lent = match self.state.call(call).map(|state| &state.progress) {
            Some(CallProgress::Started(intent)) => intent.lent,
            _ => Amount::default(),
        };
        self.answer_with(ToolDone { call, output, spent: Spent::doubtful(lent), seen: None });
    }

    fn answer_with(&mut self, done: ToolDone) {
        let ToolDone { call, output, spent, seen } = done;
        if self.editing == Some(call) {
            self.editing = None;
        }
        self.in_flight.remove(&call);
        // What a call gives back may be what children wait for.
        self.waits_for_refund = false;
        self.record(Event::ToolEnded { call, output, spent, seen: seen.map(Box::new) });
    }

    /// Becomes active: waits for a slot if it has none. What happens meanwhile is taken into account.
    async fn become_active(&mut self) -> Result<(), Fatal> {
        if self.slot.is_some() {
            return Ok(());
        }
        let mut slot = self.tree.slots.go_on(&self.lane());
        while self.state.cancelled().is_none() {
            let alarm = self.alarm();
            tokio::select! {
                biased;
                granted = &mut slot => {
                    self.slot = granted.ok();
                    return Ok(());
                }
                message = self.inbox.next() => self.take_aside(message).await?,
                () = sleep_until(alarm) => self.ring(),
            }
        }
        Ok(())
    }
}

/// Warnings about usage that was not as expected, in a whole tree.
fn usage_warnings(spent: &Spent) -> impl Iterator<Item = String> {
    let uncovered = match spent.overrun.tokens {
        0 => String::new(),
        tokens => format!("; the budget does not cover {tokens} of them"),
    };
    let excess = (spent.excess > 0).then(|| {
        format!("models used {} tokens more than was reserved for their calls{uncovered}", spent.excess)
    });
    let estimated = (spent.estimated > 0).then(|| {
        format!(
            "a provider reported implausibly low usage or none; {} tokens of the total are an estimate",
            spent.estimated
        )
    });
    excess.into_iter().chain(estimated)
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
