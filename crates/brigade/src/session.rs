//! Driver of a session: carries out what [`State::next`] says, and records it.
//!
//! One driver runs one session. A child is the same driver on the child's log. A driver is the only reader of its
//! inbox and the only writer of its log, apart from external events. Events are applied as they are recorded and
//! appended in batches: always before an effect, and before anyone else learns of a result.

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
use brigade_core::state::{CallProgress, RoundSpec, Step};
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

/// Cancellation reason of a round that was opened for a summary while the previous round was unfinished.
const CANCELLED_BY_SUMMARY: &str = "the request for a summary";

/// Error that stops a driver without an `Ended` event. The tree can be resumed.
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

/// Message to a driver. Kept small, because ten thousand drivers have an inbox each.
pub(crate) enum DriverMessage {
    /// The log may have external events.
    LogChanged,
    /// The caller cancels this session.
    Cancel(Box<str>),
    /// A tool call has finished.
    ToolDone(Box<ToolDone>),
    /// A child has ended.
    ChildDone(Box<ChildEnd>),
    /// A waiting child may start.
    Slot(Box<Slot>),
}

/// Result of a finished tool call.
pub(crate) struct ToolDone {
    pub(crate) call: CallId,
    pub(crate) output: ToolOutput,
    pub(crate) spent: Spent,
    /// File that the agent has seen through the call.
    pub(crate) seen: Option<SeenFile>,
}

pub(crate) struct ChildEnd {
    pub(crate) child: SessionId,
    pub(crate) result: Result<RoundEnd, DriverError>,
}

/// Outcome and usage of a round.
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
    /// Events that are applied and not yet durable.
    pending: Vec<Event>,
    /// Definitions that the pending events refer to.
    blobs: Vec<(Hash, Arc<str>)>,
    committed: u64,
    /// Position of the last durable event.
    last_pos: Pos,
    /// Calls that this driver processes: they run, or wait for an approval, a child or another edit. All of them are
    /// unanswered.
    in_flight: FastSet<CallId>,
    children: FastMap<SessionId, mpsc::UnboundedSender<DriverMessage>>,
    /// Tasks of children that may outlive this session.
    detachable: FastMap<SessionId, AbortOnDrop<()>>,
    /// Open delegation calls.
    groups: FastMap<CallId, ChildGroup>,
    /// Parallel calls whose children have all ended.
    finished: Vec<CallId>,
    /// Children that wait for a slot or for a refund.
    waiting: BTreeMap<ConcurrencyKey, VecDeque<PendingChild>>,
    /// Children whose loan is recorded and that are not started yet.
    lent: Vec<children::FundedChild>,
    /// The edit in progress. `deferred` holds the edits that wait for it.
    editing: Option<CallId>,
    deferred: VecDeque<CallId>,
    /// Calls that wait for the user's approval, and when the default answer applies.
    pending_approvals: BTreeMap<CallId, Option<Instant>>,
    /// Hash of the tool change that the approval request showed to the user.
    shown_changes: BTreeMap<CallId, Hash>,
    resolve_cache: Option<Box<delegation_calls::ResolveCache>>,
    /// Whether the waiting children can only be funded when another loan is returned.
    is_waiting_for_refund: bool,
    /// Slots that were requested.
    requested_slots: FastSet<ConcurrencyKey>,
    tasks: JoinSet<()>,
    running_tools: usize,
    /// Signals tools to stop. Created for the first tool.
    stop: OnceLock<watch::Sender<bool>>,
    is_stopped: bool,
    slot: Option<Slot>,
    clock: Arc<SessionClock>,
    /// Time that the wrap-up call may take after the deadline.
    grace: Duration,
    /// Guard of the external session, if another program runs this agent.
    external_session: Option<Box<ExternalSessionGuard>>,
    /// Whether an external program worked on this round for an earlier runner and does not know this one.
    is_agent_lost: bool,
    /// State of the summary that the round was opened for.
    summary: Summary,
}

/// State of a summary that the user requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Summary {
    NotRequested,
    Requested,
    Done,
}

impl Driver {
    /// Creates a driver for a session with an empty log. Its first event is appended together with those that
    /// follow.
    pub(crate) fn begin(
        tree: Arc<Tree>,
        session: SessionId,
        round: RoundSpec,
        resolved: Arc<ResolvedAgent>,
        slot: Option<Slot>,
    ) -> Box<Driver> {
        let mut driver = Driver::new(tree, State::new(session), resolved, slot);
        driver.add_definitions();
        driver.open_round(round);
        driver
    }

    /// Creates a driver that resumes an open round. `started_pos` is the position of the round's first event.
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

    /// Creates a driver that opens the next round of an ended session.
    pub(crate) fn next_round(
        tree: Arc<Tree>,
        state: State,
        resolved: Arc<ResolvedAgent>,
        round: RoundSpec,
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

    /// Boxed from the start, because a driver is large and is moved several times before it runs.
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

    /// Records the start of a round.
    pub(crate) fn open_round(&mut self, round: RoundSpec) {
        let RoundSpec { delegation, agent, grant, parent, depth } = round;
        self.record(Event::Started { delegation, agent, grant, parent, depth });
        self.set_deadline(0);
    }

    /// Uses the round only to summarize the conversation.
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

    /// Whether events were recorded that are not durable yet.
    pub(crate) fn has_unwritten_events(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Runs the session to the end of its round. Boxed, because futures store their arguments more than once.
    pub(crate) async fn drive(mut self: Box<Self>) -> Result<RoundEnd, DriverError> {
        let result = self.run().await;
        self.tree.unregister(self.state.session());
        let Driver { tree, state, pending, last_pos, .. } = *self;
        // Only an ended and durable session can be resumed from memory.
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
                // Rare steps, here and below, are boxed. They would enlarge the future of every session.
                Step::RunCalls => match self.calls_to_run() {
                    calls if calls.is_empty() => Box::pin(self.wait()).await?,
                    calls => Box::pin(self.run_calls(calls)).await?,
                },
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
                    // A conflict may have revealed more work.
                    if let Some(outcome) = self.state.ended() {
                        return Ok(RoundEnd { outcome: outcome.clone(), spent: self.state.ledger().spent() });
                    }
                    if !self.state.is_running() {
                        return Err(DriverError::Bug(format!(
                            "session {} was never started",
                            self.state.session()
                        )));
                    }
                }
            }
        }
    }

    /// Next step of a round that was opened for a summary. The summary comes first, and unfinished work waits for
    /// the next user message.
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

    /// `next` and `admits` are two readings of one log. If they disagree, stopping is better than looping
    /// forever.
    fn contradiction(&self, what: &str) -> DriverError {
        DriverError::Bug(format!(
            "session {} cannot {what} at event {}",
            self.state.session(),
            self.state.length()
        ))
    }

    fn with_warnings(&self, outcome: Outcome) -> Outcome {
        let mut warnings =
            self.state.round().map(|round| round.delegation.warnings.clone()).unwrap_or_default();
        match self.state.last_stop() {
            Some(Stop::Length) => {
                warnings
                    .push("the last reply was cut off at its output limit; raise `max_tokens`".to_owned());
            }
            Some(Stop::Refusal) => warnings.push("the model's last reply was a refusal".to_owned()),
            Some(Stop::End | Stop::Calls | Stop::Denied) | None => {}
        }
        // Usage warnings are for the user. The delegation style fixes what a caller reads about its child.
        if self.state.round().is_some_and(|round| round.parent.is_none()) {
            warnings.extend(usage_warnings(&self.state.ledger().spent()));
        }
        Outcome { warnings, ..outcome }
    }

    /// Closes a model call that was open when an earlier runner stopped. Its cost is unconfirmed, and it is
    /// retried. An external agent is not called again, because its effects are unknown or because it was lost
    /// with the earlier runner.
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

    /// Applies an event and queues it for the next append. An event that the state does not admit is obsolete and
    /// is dropped.
    fn record(&mut self, event: Event) -> bool {
        let admitted = self.state.admits(&event);
        if admitted {
            self.state.apply(&event);
            // An event is large, and most are appended in pairs.
            if self.pending.is_empty() {
                self.pending.reserve_exact(2);
            }
            self.pending.push(event);
        }
        admitted
    }

    /// Makes all recorded events durable.
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

    /// Handles a conflict with another writer: folds the missed events and keeps only the own events that are
    /// still admitted.
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
                // The model call was priced for another request. It is planned again.
                Event::Called { .. } => {}
                // The user answered before the time limit did, and that answer decides the call.
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

    /// Reads external events.
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

    /// Waits for at least one message, then handles all that are queued.
    async fn wait(&mut self) -> Result<(), DriverError> {
        if !self.finished.is_empty() {
            // The last children of a call were refused, so no running child could wake this session.
            return self.answer_finished_groups().await;
        }
        if self.resume_answered_calls().await? {
            return Ok(());
        }
        self.flush().await?;
        if self.running_tools == 0 {
            // A session that waits for its children or for the user is not active.
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
            // The driver holds a sender itself, so the channel never closes.
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

    /// Handles a message while the session itself is busy. Children that can start do so at once, because the
    /// session may be waiting for what they hold.
    async fn take_while_busy(&mut self, message: Option<DriverMessage>) -> Result<(), DriverError> {
        self.take(message).await?;
        if self.waiting.is_empty() && self.lent.is_empty() {
            return Ok(());
        }
        Box::pin(self.start_pending_children()).await
    }

    /// Stops running work when nothing new may start, children first.
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

    /// Receiver that turns true when running work has to stop.
    fn stop_signal(&self) -> watch::Receiver<bool> {
        self.stop.get_or_init(|| watch::Sender::new(self.is_stopped)).subscribe()
    }

    /// Answers a call. The use of a loan is unconfirmed, because the call did not report it.
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
        // Waiting children may need what this call returns.
        self.is_waiting_for_refund = false;
        if self.record(Event::ToolEnded { call, output, spent, seen: seen.map(Box::new) }) {
            self.in_flight.remove(&call);
        }
    }

    /// Waits for a slot if the session has none. Messages are handled meanwhile.
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

/// Warnings about unexpected usage in a tree.
fn usage_warnings(spent: &Spent) -> impl Iterator<Item = String> {
    let uncovered = match spent.overrun.tokens {
        0 => String::new(),
        tokens => format!("; the budget does not cover {tokens} of them"),
    };
    let excess = (spent.excess > 0).then(|| {
        format!("models used {} more tokens than were reserved for their calls{uncovered}", spent.excess)
    });
    let estimated = (spent.estimated > 0).then(|| {
        format!(
            "a provider reported implausibly low usage or none; {} tokens of the total are estimated",
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
