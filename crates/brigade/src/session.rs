//! The driver: does what [`State::next`] says, and records it.
//!
//! One driver runs one session; a child is the same driver on the child's log. It is the only reader of its inbox and
//! the only writer of its log, apart from outside words. Facts are applied as they are recorded and appended together:
//! always before an effect, and before anyone else learns of a result.

mod approvals;
mod call_timeout;
mod child_tools;
mod children;
mod clock;
mod compact;
mod delegation_calls;
mod edit;
mod model_call;
mod remote_context;
mod schema;
mod tool_calls;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use brigade_core::event::{CallFault, Speaker, VERSION};
use brigade_core::message::Stop;
use brigade_core::money::Resources;
use brigade_core::state::{CallProgress, Round, Step};
use brigade_core::{
    CallId, DelegationStyle, Event, Hash, Outcome, Purpose, Record, SeenFile, SessionId, Spent, State,
    Status, ToolOutput,
};
use futures::StreamExt;
use futures::channel::mpsc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock as wall_clock;
use crate::concurrency::{ConcurrencyKey, Slot};
use crate::event_stream::RunEvent;
use crate::external::{self, ExternalSessionGuard};
use crate::fast_map::{FastMap, FastSet};
use crate::store::{Append, Expect, Pos, StoreError};
use crate::task::AbortOnDrop;
use crate::tree::{ResolvedAgent, Tree};
use call_timeout::MAX_GRACE;
use children::PendingChild;
use clock::SessionClock;
use delegation_calls::ChildGroup;

/// The reason for the end of a round that was opened for a summary, if the round before it was not done.
const CANCELLED_BY_SUMMARY: &str = "the request for a summary";

/// Why a driver stops without an end in its log. The tree can be resumed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum DriverError {
    #[error(transparent)]
    Store(StoreError),
    #[error("{0}")]
    Config(String),
    #[error("a session stopped unexpectedly: {0}")]
    Bug(String),
}

impl From<StoreError> for DriverError {
    fn from(error: StoreError) -> DriverError {
        DriverError::Store(error)
    }
}

/// What reaches a driver. Kept small: ten thousand drivers have an inbox each.
pub(crate) enum DriverMessage {
    /// The log may have outside words.
    LogChanged,
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
    pub(crate) result: Result<RoundEnd, DriverError>,
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
    resolved: Arc<ResolvedAgent>,
    sender: mpsc::UnboundedSender<DriverMessage>,
    inbox: mpsc::UnboundedReceiver<DriverMessage>,
    /// Facts that are applied and not yet durable.
    pending: Vec<Event>,
    /// Definitions that the pending facts name.
    blobs: Vec<(Hash, Arc<str>)>,
    committed: u64,
    /// Position of the last fact that is durable.
    last_pos: Pos,
    in_flight: FastSet<CallId>,
    children: FastMap<SessionId, mpsc::UnboundedSender<DriverMessage>>,
    /// The tasks of children that may outlive this session.
    detachable: FastMap<SessionId, AbortOnDrop<()>>,
    /// Calls that delegate and are not answered.
    groups: FastMap<CallId, ChildGroup>,
    /// Calls with several children that have all ended.
    finished: Vec<CallId>,
    /// Children that wait for a slot or for a refund.
    waiting: BTreeMap<ConcurrencyKey, VecDeque<PendingChild>>,
    /// Children whose loan is recorded and who are not started yet.
    lent: Vec<children::FundedChild>,
    /// The edit that is under way, and those that wait for it.
    editing: Option<CallId>,
    deferred: VecDeque<CallId>,
    /// Calls that a person is asked about, and when the default answers.
    pending_approvals: BTreeMap<CallId, Option<Instant>>,
    /// Which change of its tool a person was shown with the question about a call.
    shown_changes: BTreeMap<CallId, Hash>,
    resolve_cache: Option<Box<delegation_calls::ResolveCache>>,
    /// Whether those that wait can only be lent to when another loan comes back.
    is_waiting_for_refund: bool,
    /// What slots were asked for.
    requested_slots: FastSet<ConcurrencyKey>,
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
    external_session: Option<Box<ExternalSessionGuard>>,
    /// Whether another program was at work on this round for an earlier runner, and knows nothing of this one.
    is_agent_lost: bool,
    /// The summary of the conversation that the round was opened for.
    summary: Summary,
}

/// State of a summary that the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Summary {
    NotRequested,
    Requested,
    Done,
}

impl Driver {
    /// A driver for a session whose log is empty: its first fact is written together with what follows.
    pub(crate) fn begin(
        tree: Arc<Tree>,
        session: SessionId,
        round: Round,
        resolved: Arc<ResolvedAgent>,
        slot: Option<Slot>,
    ) -> Box<Driver> {
        let mut driver = Driver::new(tree, State::new(session), resolved, slot);
        driver.add_definitions();
        driver.open_round(round);
        driver
    }

    /// A driver for a session whose log goes on. `started_pos` is the place of the round's first fact.
    pub(crate) fn resume(
        tree: Arc<Tree>,
        state: State,
        resolved: Arc<ResolvedAgent>,
        started_pos: u64,
    ) -> Box<Driver> {
        let mut driver = Driver::new(tree, state, resolved, None);
        driver.set_deadline(driver.tree.downtime_since(started_pos));
        driver
    }

    /// A driver that opens a next round of a session whose last one is over.
    pub(crate) fn next_round(
        tree: Arc<Tree>,
        state: State,
        resolved: Arc<ResolvedAgent>,
        round: Round,
        message: Option<&str>,
    ) -> Box<Driver> {
        let mut driver = Driver::new(tree, state, resolved, None);
        driver.add_definitions();
        if let Some(message) = message {
            driver.record(Event::Heard { from: Speaker::Runtime, text: message.into() });
        }
        driver.open_round(round);
        driver
    }

    /// Boxed from the start: a driver is large, and goes through many hands before it runs.
    fn new(tree: Arc<Tree>, state: State, resolved: Arc<ResolvedAgent>, slot: Option<Slot>) -> Box<Driver> {
        let (sender, inbox) = mpsc::unbounded();
        let committed = state.length();
        tree.register(state.session(), sender.clone());
        let external_session = tree.external_session(&resolved, state.session());
        Box::new(Driver {
            tree,
            state,
            resolved,
            sender,
            inbox,
            pending: Vec::new(),
            blobs: Vec::new(),
            committed,
            last_pos: 0,
            in_flight: FastSet::default(),
            children: FastMap::default(),
            detachable: FastMap::default(),
            groups: FastMap::default(),
            finished: Vec::new(),
            waiting: BTreeMap::new(),
            lent: Vec::new(),
            editing: None,
            deferred: VecDeque::new(),
            pending_approvals: BTreeMap::new(),
            shown_changes: BTreeMap::new(),
            resolve_cache: None,
            is_waiting_for_refund: false,
            requested_slots: FastSet::default(),
            tasks: JoinSet::new(),
            running_tools: 0,
            stop: OnceLock::new(),
            is_stopped: false,
            slot,
            clock: Arc::default(),
            grace: MAX_GRACE,
            external_session,
            is_agent_lost: false,
            summary: Summary::NotRequested,
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
        self.summary = Summary::Requested;
    }

    pub(crate) fn agent(&self) -> &brigade_core::Agent {
        &self.resolved.agent
    }

    pub(crate) fn inbox(&self) -> mpsc::UnboundedSender<DriverMessage> {
        self.sender.clone()
    }

    fn add_definitions(&mut self) {
        self.tree.add_unwritten(&self.resolved, &mut self.blobs);
    }

    fn concurrency_key(&self) -> ConcurrencyKey {
        let style = self.state.round().map_or(DelegationStyle::Run, |round| round.delegation.style);
        let cap = self.resolved.agent.max_concurrency.filter(|_| style != DelegationStyle::Run);
        ConcurrencyKey { style, agent: cap.map(|cap| (self.resolved.agent.id.as_str().into(), cap)) }
    }

    /// Runs the session to the end of its round. Boxed, because futures keep what they are given more than once.
    pub(crate) async fn drive(mut self: Box<Self>) -> Result<RoundEnd, DriverError> {
        let result = self.run().await;
        self.tree.unregister(self.state.session());
        let Driver { tree, state, pending, last_pos, .. } = *self;
        // Only what is over and durable can be gone on with from here.
        if result.is_ok() && pending.is_empty() && last_pos > 0 && *state.session() == tree.root {
            tree.remember(state, last_pos, last_pos);
        }
        result
    }

    async fn run(&mut self) -> Result<RoundEnd, DriverError> {
        self.close_interrupted_call();
        self.resume_background_children().await?;
        loop {
            self.stop_work_if_requested();
            let step = self.state.next();
            match self.put_summary_first(step) {
                Step::CallModel(purpose) => self.call_model(purpose).await?,
                // Boxed, here and below, is what few sessions do and would make the future of all of them large.
                Step::RunCalls(calls) => Box::pin(self.run_calls(calls)).await?,
                Step::Wait => Box::pin(self.wait()).await?,
                Step::Detach(children) => Box::pin(self.detach(children)).await?,
                Step::End(outcome) => {
                    let Some(outcome) = self.validate_result(outcome) else { continue };
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
                        return Err(DriverError::Bug(format!("{} was never started", self.state.session())));
                    }
                }
            }
        }
    }

    /// The next step of a round that was opened for a summary: the summary comes first, and work that was left undone
    /// stays so until the user says something.
    fn put_summary_first(&mut self, step: Step) -> Step {
        if self.summary == Summary::NotRequested || self.state.has_unread_input() {
            return step;
        }
        match (self.summary, step) {
            (Summary::Requested, Step::CallModel(_) | Step::End(Outcome { status: Status::Done, .. }))
                if self.state.can_compact() =>
            {
                Step::CallModel(Purpose::Compaction)
            }
            (Summary::Done, Step::CallModel(_)) => {
                self.record(Event::CancelAsked { by: CANCELLED_BY_SUMMARY.to_owned() });
                self.state.next()
            }
            (_, step) => step,
        }
    }

    /// `next` and `admits` are two readings of one log. Where they differ, stopping beats going round for ever.
    fn contradiction(&self, what: &str) -> DriverError {
        DriverError::Bug(format!("{} may not {what} at fact {}", self.state.session(), self.state.length()))
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
        self.is_agent_lost = self.resolved.external_limits.is_some() && self.state.has_called_model();
        if let Some(open) = self.state.open_call() {
            let spent = Spent::unconfirmed(open.reserved);
            let (turn, attempt) = (open.turn, open.attempt);
            let cause = match self.resolved.external_limits {
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
    async fn flush(&mut self) -> Result<(), DriverError> {
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
                Err(error) => return Err(DriverError::Store(error)),
            }
        }
        Ok(())
    }

    fn publish(&mut self, events: Arc<Vec<Event>>, first_pos: u64, at: u64) {
        let count = events.len() as u64;
        if self.tree.subscribers.has_any() {
            for (offset, event) in (0..).zip(Arc::unwrap_or_clone(events)) {
                let session = self.state.session().clone();
                let (seq, pos) = (self.committed + offset, first_pos + offset);
                let record = Record { session, seq, pos, at, v: VERSION, event };
                self.tree.subscribers.send(RunEvent::Record(Arc::new(record)));
            }
        }
        self.committed += count;
        self.last_pos = first_pos + count - 1;
    }

    /// Somebody else appended first: fold what was missed, and keep only what is still true.
    async fn reconcile(&mut self, unwritten: Vec<Event>) -> Result<(), DriverError> {
        let session = self.state.session().clone();
        let records = self.tree.store().read(&session, 0).await?;
        self.state = self.tree.fold(&session, &records);
        let known = usize::try_from(self.committed).unwrap_or(usize::MAX);
        self.committed = records.len() as u64;
        self.last_pos = records.last().map_or(0, |record| record.pos);
        for record in records.into_iter().skip(known) {
            self.tree.subscribers.send(RunEvent::Record(Arc::new(record)));
        }
        let mut overridden = FastSet::default();
        for event in unwritten {
            match event {
                // A model call was priced for another request: it is thought about again.
                Event::Called { .. } => {}
                // Somebody answered before the time limit did, and the call goes on as they said.
                Event::ToolEnded { call, .. } if overridden.contains(&call) => {}
                Event::Answered { call, .. } if !self.state.admits(&event) => {
                    overridden.insert(call);
                }
                event => {
                    self.record(event);
                }
            }
        }
        Ok(())
    }

    /// Reads outside words.
    async fn read_external_events(&mut self) -> Result<(), DriverError> {
        self.flush().await?;
        let records = self.tree.store().read(&self.state.session().clone(), self.committed).await?;
        for record in records {
            self.state.apply(&record.event);
            self.committed += 1;
            self.last_pos = record.pos;
            self.tree.subscribers.send(RunEvent::Record(Arc::new(record)));
        }
        Ok(())
    }

    /// Waits until something happens, then takes all that has happened.
    async fn wait(&mut self) -> Result<(), DriverError> {
        if !self.finished.is_empty() {
            // The last children of a call were refused: nobody is out whose end could wake this session.
            return self.answer_finished_groups().await;
        }
        if self.resume_answered_calls().await? {
            return Ok(());
        }
        self.flush().await?;
        if self.running_tools == 0 {
            // A session that waits for its children or for a person is not active.
            self.slot = None;
        }
        let deadline = self.next_deadline();
        let first = tokio::select! {
            biased;
            message = self.inbox.next() => message,
            () = sleep_until(deadline) => {
                self.fire_due();
                return Ok(());
            }
        };
        self.take(first).await?;
        while let Ok(message) = self.inbox.try_recv() {
            self.take(Some(message)).await?;
        }
        self.run_deferred().await?;
        self.start_pending_children().await
    }

    async fn take(&mut self, message: Option<DriverMessage>) -> Result<(), DriverError> {
        match message {
            // The driver holds a sender itself, so the channel does not close.
            None => {}
            Some(DriverMessage::LogChanged) => Box::pin(self.read_external_events()).await?,
            Some(DriverMessage::Cancel(by)) => {
                self.record(Event::CancelAsked { by: by.into() });
            }
            Some(DriverMessage::ToolDone(done)) => {
                self.running_tools -= 1;
                self.answer_with(*done);
            }
            Some(DriverMessage::ChildDone(end)) => self.child_done(*end)?,
            Some(DriverMessage::Slot(slot)) => {
                self.requested_slots.remove(slot.key());
                self.lend_with_slot(*slot);
            }
        }
        self.stop_work_if_requested();
        Ok(())
    }

    /// Takes a message while the session itself is busy. Children that it lets start do so at once: what they hold may
    /// be what the session waits for.
    async fn take_while_busy(&mut self, message: Option<DriverMessage>) -> Result<(), DriverError> {
        self.take(message).await?;
        if self.waiting.is_empty() && self.lent.is_empty() {
            return Ok(());
        }
        Box::pin(self.start_pending_children()).await
    }

    /// When nothing new may start, what runs is told to stop, children first.
    fn stop_work_if_requested(&mut self) {
        let Some(reason) = self.state.stop_reason() else { return };
        if std::mem::replace(&mut self.is_stopped, true) {
            return;
        }
        if let Some(stop) = self.stop.get() {
            stop.send_replace(true);
        }
        let by = self.state.stop_initiator().unwrap_or_default();
        for child in self.children.values() {
            let _ = child.unbounded_send(DriverMessage::Cancel(by.as_str().into()));
        }
        for call in std::mem::take(&mut self.deferred) {
            self.answer(call, ToolOutput::error(format!("Not started: {reason}")));
        }
        for call in std::mem::take(&mut self.pending_approvals).into_keys() {
            self.answer(call, ToolOutput::error(format!("Not started: {reason}")));
        }
        self.drop_pending_children(&reason);
    }

    /// Turns true when what runs is to stop.
    fn stop_signal(&self) -> watch::Receiver<bool> {
        self.stop.get_or_init(|| watch::Sender::new(self.is_stopped)).subscribe()
    }

    /// Answers a call. What it was lent, if anything, is in doubt: nobody has said what of it was used.
    fn answer(&mut self, call: CallId, output: ToolOutput) {
        let lent = match self.state.call(call).map(|state| &state.progress) {
            Some(CallProgress::Started(intent)) => intent.lent,
            _ => Resources::default(),
        };
        self.answer_with(ToolDone { call, output, spent: Spent::unconfirmed(lent), seen: None });
    }

    fn answer_with(&mut self, done: ToolDone) {
        let ToolDone { call, output, spent, seen } = done;
        if self.editing == Some(call) {
            self.editing = None;
        }
        self.in_flight.remove(&call);
        // What a call gives back may be what children wait for.
        self.is_waiting_for_refund = false;
        self.record(Event::ToolEnded { call, output, spent, seen: seen.map(Box::new) });
    }

    /// Becomes active: waits for a slot if it has none. What happens meanwhile is taken into account.
    async fn become_active(&mut self) -> Result<(), DriverError> {
        if self.slot.is_some() {
            return Ok(());
        }
        let mut slot = self.tree.slots.acquire_resumed(&self.concurrency_key());
        while self.state.cancelled().is_none() {
            let deadline = self.next_deadline();
            tokio::select! {
                biased;
                granted = &mut slot => {
                    self.slot = granted.ok();
                    return Ok(());
                }
                message = self.inbox.next() => self.take_while_busy(message).await?,
                () = sleep_until(deadline) => self.fire_due(),
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
