//! Driver of a session: carries out what [`State::next`] says, and records it.
//!
//! One driver runs one session. A child is the same driver on the child's log. A driver is the only reader of its
//! inbox and the only writer of its log, apart from external events. Events are applied as they are recorded and
//! appended in batches: always before an effect, and before anyone else learns of a result.

mod approvals;
mod call_timeout;
mod call_trace;
mod child_groups;
mod child_queue;
mod child_tools;
mod children;
mod clock;
mod compact;
mod delegation_calls;
mod edit;
mod host_questions;
mod log;
mod mailbox;
mod model_call;
mod open_approvals;
mod redaction;
mod remote_context;
mod resume_children;
mod running_tool_calls;
mod schema;
mod tool_calls;
mod warnings;

use std::sync::Arc;

use brigade_core::event::{CallFault, Speaker};
use brigade_core::money::Resources;
use brigade_core::state::{CallProgress, RoundSpec, Step};
use brigade_core::{CallId, Cursor, Event, Outcome, Purpose, SessionId, Spent, State, Status, ToolOutput};
use tokio::time::Instant;

use crate::concurrency::{ConcurrencyKey, Slot};
use crate::external::{self, ExternalSessionGuard};
use crate::resolved_agent::{AgentKind, ResolvedAgent};
use crate::store::StoreError;
use crate::tree::Tree;
use call_trace::ObservedDriver;
use child_groups::Children;
use clock::SessionClock;
use host_questions::OpenHostQuestions;
use log::LogWriter;
use mailbox::{ChildEnd, Mailbox, ToolDone};
pub(crate) use mailbox::{DriverMessage, DriverSender, RoundEnd};
use open_approvals::OpenApprovals;
use running_tool_calls::RunningToolCalls;

/// Cancellation reason of a round that was opened for a summary while the previous round was unfinished.
const CANCELLED_BY_SUMMARY: &str = "the request for a summary";

/// Error that stops a driver without an `Ended` event. The tree can be resumed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum DriverError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Config(String),
    #[error("a session stopped unexpectedly: {0}")]
    Bug(String),
}

/// Driver of one session. Its parts know nothing of each other.
pub(crate) struct Driver {
    tree: Arc<Tree>,
    resolved: Arc<ResolvedAgent>,
    log: LogWriter,
    mailbox: Mailbox,
    tool_calls: RunningToolCalls,
    approvals: OpenApprovals,
    hosts: OpenHostQuestions,
    children: Children,
    clock: Arc<SessionClock>,
    slot: Option<Slot>,
    observed: ObservedDriver,
    /// Guard of the external session, if another program runs this agent.
    external_session: Option<Box<ExternalSessionGuard>>,
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
        started_pos: Cursor,
    ) -> Box<Driver> {
        let mut driver = Driver::new(tree, state, resolved, None);
        driver.set_deadline(driver.tree.history.downtime_since(driver.tree.store(), started_pos));
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
        let mailbox = Mailbox::new();
        tree.register(state.session(), mailbox.sender());
        let external_session = tree.external_session(&resolved, state.session());
        let observed = ObservedDriver::new(&tree.settings().observers, state.session());
        Box::new(Driver {
            tree,
            resolved,
            log: LogWriter::new(state),
            mailbox,
            tool_calls: RunningToolCalls::default(),
            approvals: OpenApprovals::default(),
            hosts: OpenHostQuestions::default(),
            children: Children::default(),
            clock: Arc::default(),
            slot,
            observed,
            external_session,
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

    /// Whether an external program worked on this round for an earlier runner and does not know this one.
    fn is_agent_lost(&self) -> bool {
        self.external_session.as_ref().is_some_and(|external_session| external_session.is_lost)
    }

    fn add_definitions(&mut self) {
        self.log.add_definitions(&self.tree, &self.resolved);
    }

    fn concurrency_key(&self) -> ConcurrencyKey {
        let style = self.state().round().map(|round| round.delegation.style).unwrap_or_default();
        let cap = self.resolved.agent.max_concurrency.filter(|_| style.has_tools());
        ConcurrencyKey { style, agent: cap.map(|cap| (self.resolved.agent.id.as_str().into(), cap)) }
    }

    /// Whether events were recorded that are not durable yet.
    pub(crate) fn has_unwritten_events(&self) -> bool {
        self.log.has_pending()
    }

    /// Runs the session to the end of its round. Boxed, because futures store their arguments more than once.
    pub(crate) async fn drive(mut self: Box<Self>) -> Result<RoundEnd, DriverError> {
        let result = self.run().await;
        self.tree.unregister(self.state().session());
        let Driver { tree, log, .. } = *self;
        // Only an ended and durable session can be resumed from memory.
        if result.is_ok()
            && let Some((state, last_pos)) = log.into_durable()
            && state.session() == tree.root()
        {
            tree.remember(state, last_pos, last_pos);
        }
        result
    }

    async fn run(&mut self) -> Result<RoundEnd, DriverError> {
        self.close_interrupted_call();
        self.resume_background_children().await?;
        loop {
            self.stop_work_if_requested();
            let step = self.state().next();
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
                    let spent = self.state().ledger().spent_at_end();
                    if !self.record(Event::Ended { outcome, spent }) {
                        return Err(self.contradiction("end"));
                    }
                    self.flush().await?;
                }
                Step::Nothing => {
                    self.flush().await?;
                    // A conflict may have revealed more work.
                    if let Some(outcome) = self.state().ended() {
                        return Ok(RoundEnd {
                            outcome: outcome.clone(),
                            spent: self.state().ledger().spent(),
                        });
                    }
                    if !self.state().is_running() {
                        return Err(DriverError::Bug(format!(
                            "session {} was never started",
                            self.state().session()
                        )));
                    }
                }
            }
        }
    }

    /// Next step of a round that was opened for a summary. The summary comes first, and unfinished work waits for
    /// the next user message.
    fn put_summary_first(&mut self, step: Step) -> Step {
        if self.summary == Summary::NotRequested || self.state().has_unread_input() {
            return step;
        }
        match (self.summary, step) {
            (Summary::Requested, Step::CallModel(_) | Step::End(Outcome { status: Status::Done, .. }))
                if self.state().can_compact() =>
            {
                Step::CallModel(Purpose::Compaction)
            }
            (Summary::Done, Step::CallModel(_)) => {
                self.record(Event::CancelAsked { by: CANCELLED_BY_SUMMARY.to_owned() });
                self.state().next()
            }
            (_, step) => step,
        }
    }

    /// `next` and `admits` are two readings of one log. If they disagree, stopping is better than looping
    /// forever.
    fn contradiction(&self, what: &str) -> DriverError {
        DriverError::Bug(format!(
            "session {} cannot {what} at event {}",
            self.state().session(),
            self.state().length()
        ))
    }

    /// Closes a model call that was open when an earlier runner stopped. Its cost is unconfirmed, and it is
    /// retried. An external agent is not called again, because its effects are unknown or because it was lost
    /// with the earlier runner.
    fn close_interrupted_call(&mut self) {
        if let Some(external_session) = &mut self.external_session {
            external_session.is_lost = self.log.state().has_called_model();
        }
        if let Some(open) = self.state().open_call() {
            let spent = Spent::unconfirmed(open.reserved);
            let (turn, attempt) = (open.turn, open.attempt);
            let cause = match self.resolved.kind {
                AgentKind::Local(_) => CallFault::Interrupted,
                AgentKind::External(_) => CallFault::Fatal { message: external::INTERRUPTED.to_owned() },
            };
            self.record(Event::call_failed(turn, attempt, cause, spent));
        }
    }

    fn state(&self) -> &State {
        self.log.state()
    }

    /// Records an event without its secrets, unless it is obsolete.
    fn record(&mut self, mut event: Event) -> bool {
        self.tree.settings().redactor.redact_event(&mut event);
        self.log.record(event)
    }

    /// Makes all recorded events durable.
    fn flush(&mut self) -> impl Future<Output = Result<(), DriverError>> {
        self.log.flush(&self.tree)
    }

    /// Waits for at least one message, then handles all that are queued.
    async fn wait(&mut self) -> Result<(), DriverError> {
        if self.children.has_finished() {
            // The last children of a call were refused, so no running child could wake this session.
            return self.answer_finished_groups().await;
        }
        if self.resume_answered_calls().await? {
            return Ok(());
        }
        self.flush().await?;
        self.hosts.settle(self.log.state());
        if !self.tool_calls.is_any_running() {
            // A session that waits for its children or for the user is not active.
            self.slot = None;
        }
        let deadline = self.next_deadline();
        let first = tokio::select! {
            biased;
            message = self.mailbox.next() => message,
            () = sleep_until(deadline) => {
                self.fire_due();
                return Ok(());
            }
        };
        self.take(first).await?;
        while let Some(message) = self.mailbox.try_next() {
            self.take(Some(message)).await?;
        }
        self.run_deferred().await?;
        self.start_pending_children().await
    }

    async fn take(&mut self, message: Option<DriverMessage>) -> Result<(), DriverError> {
        match message {
            // The mailbox holds a sender itself, so the channel never closes.
            None => {}
            Some(DriverMessage::LogChanged) => {
                Box::pin(self.log.read_external_events(&self.tree)).await?;
            }
            Some(DriverMessage::Cancel(by)) => {
                self.record(Event::CancelAsked { by: by.into() });
            }
            Some(DriverMessage::ToolDone(done)) => {
                self.tool_calls.task_done(done.call);
                let output = self.with_denied_hosts(done.call, done.output);
                self.answer_with(ToolDone { output, ..*done });
            }
            Some(DriverMessage::AskHost(ask)) => self.ask_host(*ask),
            Some(DriverMessage::ChildDone(end)) => self.child_done(*end)?,
            Some(DriverMessage::Slot(slot)) => {
                self.children.queue.slot_arrived(slot.key());
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
        if self.children.queue.is_empty() {
            return Ok(());
        }
        Box::pin(self.start_pending_children()).await
    }

    /// Stops running work when nothing new may start, children first.
    fn stop_work_if_requested(&mut self) {
        let Some(reason) = self.state().stop_reason() else { return };
        let Some(deferred) = self.tool_calls.stop() else { return };
        self.children.cancel_all(&self.state().stop_initiator().unwrap_or_default());
        for call in deferred.into_iter().chain(self.approvals.take_all()) {
            self.answer(call, ToolOutput::error(format!("Not started: {reason}")));
        }
        self.close_all_host_questions();
        self.drop_pending_children(&reason);
    }

    /// Answers a call. The use of a loan is unconfirmed, because the call did not report it.
    fn answer(&mut self, call: CallId, output: ToolOutput) {
        let lent = match self.state().call(call).map(|state| &state.progress) {
            Some(CallProgress::Started(intent)) => intent.lent,
            _ => Resources::default(),
        };
        self.answer_with(ToolDone { call, output, spent: Spent::unconfirmed(lent), seen: None });
    }

    fn answer_with(&mut self, done: ToolDone) {
        let ToolDone { call, output, spent, seen } = done;
        self.tool_calls.end_edit(call);
        self.close_host_questions(call);
        // Waiting children may need what this call returns.
        self.children.queue.refund_arrived();
        if self.record(Event::ToolEnded { call, output, spent, seen: seen.map(Box::new) }) {
            self.tool_calls.end(call);
        }
    }

    /// Waits for a slot if the session has none. Messages are handled meanwhile.
    async fn become_active(&mut self) -> Result<(), DriverError> {
        if self.slot.is_some() {
            return Ok(());
        }
        let since = Instant::now();
        let mut slot = self.tree.slots.acquire_resumed(&self.concurrency_key());
        while self.state().cancelled().is_none() {
            let deadline = self.next_deadline();
            tokio::select! {
                biased;
                granted = &mut slot => {
                    self.slot = granted.ok();
                    self.observed.slot_wait += since.elapsed();
                    return Ok(());
                }
                message = self.mailbox.next() => self.take_while_busy(message).await?,
                () = sleep_until(deadline) => self.fire_due(),
            }
        }
        Ok(())
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
