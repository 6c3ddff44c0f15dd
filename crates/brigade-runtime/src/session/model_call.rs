//! Model calls of a session.

use std::pin::pin;
use std::time::Duration;

use brigade_core::delegation::LimitKind;
use brigade_core::delegation_styles::PASSTHROUGH_PREFIX;
use brigade_core::event::{CallFault, Speaker};
use brigade_core::message::Stop;
use brigade_core::money::Resources;
use brigade_core::state::{CompactionInput, CostModel, MAX_ATTEMPTS, Shortfall, WorstCase};
use brigade_core::text::Text;
use brigade_core::{Event, Hash, Purpose, Reply, Spent, Usage};
use futures::StreamExt;
use tokio::time::Instant;
use tracing::debug;

use super::call_timeout::CallTimeout;
use super::call_trace::{CallTrace, EndedCall};
use super::{Driver, DriverError, Summary, compact, sleep_until};
use crate::event_stream::RunEvent;
use crate::external::{self, ReportedUsage};
use crate::jitter::jitter;
use crate::model::{Chunk, Ingest, ModelError, Request};
use crate::redactor::StreamRedactor;
use crate::resolved_agent::{AgentKind, ExternalAgent};

/// Maximum pause after a fault.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(8);

/// Number of attempts with a model before the next fallback takes over.
const ATTEMPTS_BEFORE_FALLBACK: u32 = 3;

/// Silence timeout of an external agent.
const EXTERNAL_SILENCE_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Interval at which streamed text is published.
const DELTA_INTERVAL: Duration = Duration::from_millis(15);

/// Streamed text that was not published yet. It is published often enough to look continuous, but not per token.
struct DeltaBuffer {
    text: StreamRedactor,
    /// When it may be published.
    due: Instant,
}

/// Whether more text of a reply may arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    More,
    None,
}

/// A model call that is about to be made.
struct PlannedCall {
    purpose: Purpose,
    turn: u32,
    attempt: u32,
    worst: WorstCase,
    /// Conversation to summarize, if that is the purpose.
    digest: Option<CompactionInput>,
    /// Text that had arrived when the session was stopped.
    partial: Option<Text>,
    trace: CallTrace,
}

enum CallOutcome {
    Reply(Box<Reply>, CallUsage),
    Fault(CallFault, Charge),
}

/// Cost of a call without a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Charge {
    /// The model did not start.
    Nothing,
    /// The model may have worked, so the cost is up to the reserve.
    Unconfirmed,
    /// The model reported its usage.
    Reported(CallUsage),
}

/// Reported usage of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CallUsage {
    usage: Usage,
    /// Number of these tokens that are an estimate.
    estimated: u64,
    /// Usage reported by an external agent.
    reported: ReportedUsage,
}

impl Driver {
    pub(super) async fn call_model(&mut self, purpose: Purpose) -> Result<(), DriverError> {
        let length = self.state().length();
        self.become_active().await?;
        self.pause_after_fault().await?;
        if let Some(limit) = self.state().exceeded_limit() {
            // The turn limit follows from the log. It is recorded anyway, for readers of the log.
            self.record(Event::limit_reached(limit));
        }
        if purpose == Purpose::Turn {
            self.check_repeats();
        }
        if self.state().cancelled().is_some()
            || (self.state().recorded_limit().is_some()
                && matches!(purpose, Purpose::Turn | Purpose::Compaction))
        {
            return Ok(());
        }
        let Some(mut planned) = self.plan_call(purpose) else { return Ok(()) };
        let PlannedCall { purpose, turn, attempt, worst, .. } = planned;
        let request = match &planned.digest {
            Some(digest) => Hash::of(digest.text.as_bytes()),
            None => self.state().fingerprint(),
        };
        let (reserved, input) = (worst.amount, worst.input);
        let called = Event::Called { turn, attempt, purpose, reserved, input, request };
        if !self.record(called) {
            // A message that arrived meanwhile may have changed the next step.
            return if self.state().length() > length {
                Ok(())
            } else {
                Err(self.contradiction("call the model"))
            };
        }
        self.flush().await?;
        if self.state().open_call().is_none_or(|open| open.turn != turn || open.attempt != attempt) {
            // An external event came first, so the call was not made.
            return Ok(());
        }
        let (outcome, waited) = match purpose {
            Purpose::Turn if self.is_agent_lost() => {
                let message = external::INTERRUPTED.to_owned();
                (CallOutcome::Fault(CallFault::Fatal { message }, Charge::Unconfirmed), Duration::ZERO)
            }
            _ => self.send(&mut planned).await?,
        };
        self.record_outcome(outcome, planned, waited);
        Ok(())
    }

    /// Plans a call for this purpose. Returns none if the request would be too long or exceeds the budget. A
    /// conversation close to the context window is compacted first.
    fn plan_call(&mut self, purpose: Purpose) -> Option<PlannedCall> {
        let cost_model = *self.cost_model();
        let purpose = match purpose {
            Purpose::Turn | Purpose::Summary if self.state().should_compact(&cost_model) => {
                Purpose::Compaction
            }
            purpose => purpose,
        };
        let (turn, attempt) = self.state().next_attempt();
        if purpose != Purpose::Compaction
            && let Some(size) = self.state().exceeds_window(&cost_model)
        {
            self.refuse_too_long(purpose, size, turn, attempt);
            return None;
        }
        let digest = (purpose == Purpose::Compaction).then(|| match self.summary {
            Summary::Requested => self.state().compaction_input_on_request(&cost_model),
            Summary::NotRequested | Summary::Done => self.state().compaction_input(&cost_model),
        });
        let worst = match (&self.resolved.kind, &digest) {
            (AgentKind::External(external), _) => {
                Ok(external.limits.worst_case(self.state().ledger().reservable()))
            }
            (AgentKind::Local(_), Some(digest)) => {
                self.state().worst_case_summary(&cost_model, compact::bytes(digest))
            }
            (AgentKind::Local(_), None) => self.state().worst_case(&cost_model, purpose),
        };
        match worst {
            Ok(worst) => {
                let trace = CallTrace::new(std::mem::take(&mut self.observed.slot_wait));
                Some(PlannedCall { purpose, turn, attempt, worst, digest, partial: None, trace })
            }
            Err(shortfall) => {
                self.refuse_unaffordable(purpose, shortfall, turn, attempt);
                None
            }
        }
    }

    /// Costs of the current model.
    pub(super) fn cost_model(&self) -> &CostModel {
        &self.resolved.model_option(self.state().fallback_index()).cost_model
    }

    fn refuse_unaffordable(&mut self, purpose: Purpose, shortfall: Shortfall, turn: u32, attempt: u32) {
        let Shortfall { which, needed } = shortfall;
        self.record(Event::LimitReached { which, needed });
        match purpose {
            Purpose::Turn | Purpose::Compaction => {}
            // A summary that exceeds the budget leaves the session incomplete, even if the task was done.
            Purpose::Grace | Purpose::Summary => self.give_up_call(turn, attempt),
        }
    }

    /// Records that a wrap-up call or a summary will not be sent.
    fn give_up_call(&mut self, turn: u32, attempt: u32) {
        let cause = CallFault::Unaffordable;
        self.record(Event::call_failed(turn, attempt, cause, Spent::default()));
    }

    /// Refuses a request that exceeds the context window, before anything is spent on it.
    fn refuse_too_long(&mut self, purpose: Purpose, size: u64, turn: u32, attempt: u32) {
        // A report after a limit, or one that compaction cannot shorten, is given up. The last text is the
        // result.
        let is_given_up = match purpose {
            Purpose::Grace => true,
            Purpose::Summary => self.state().exceeded_limit().is_some() || !self.state().can_compact(),
            Purpose::Turn | Purpose::Compaction => false,
        };
        if is_given_up {
            return self.give_up_call(turn, attempt);
        }
        let option = self.resolved.model_option(self.state().fallback_index());
        let (name, window) = (&option.name, option.cost_model.window.unwrap_or_default());
        let message = format!(
            "cannot call {name}: the request has at least {size} tokens, but the model's context window holds only \
             {window}. Shorten the task, or choose a model with a larger window."
        );
        let cause = self.with_fallback(CallFault::Overflow { message });
        self.record(Event::call_failed(turn, attempt, cause, Spent::default()));
    }

    /// Warns an agent that repeats itself, and stops it if it continues.
    fn check_repeats(&mut self) {
        let limits = &self.tree.settings().limits;
        let (warning, limit) = (limits.loop_warning, limits.loop_limit);
        let repeats = self.state().repeats();
        if limit > 0 && repeats >= limit {
            self.record(Event::limit_reached(LimitKind::Loop));
        } else if warning > 0 && repeats >= warning && !self.state().is_warned_of_repeats() {
            let text = format!(
                "You have made the same calls with the same results {repeats} times in a row. Do not repeat them: try \
                 something else, or finish with what you have."
            );
            self.record(Event::Heard { from: Speaker::Runtime, text: text.into() });
        }
    }

    async fn pause_after_fault(&mut self) -> Result<(), DriverError> {
        let faults = self.state().faults();
        if faults == 0 {
            return Ok(());
        }
        self.flush().await?;
        let first = self.tree.settings().limits.retry_pause;
        let pause = retry_pause(first, faults, jitter());
        self.announce_retry(faults + 1, pause);
        let (session, wait_ms) = (self.state().session().as_str(), pause.as_millis() as u64);
        debug!(target: "brigade::model", session, attempt = faults + 1, wait_ms, "retrying");
        let until = Instant::now() + pause;
        while self.state().stop_reason().is_none() {
            let deadline = self.next_deadline();
            tokio::select! {
                () = tokio::time::sleep_until(until) => break,
                message = self.mailbox.next() => self.take_while_busy(message).await?,
                () = sleep_until(deadline) => self.fire_due(),
            }
        }
        Ok(())
    }

    /// Publishes the next attempt, its delay and the last fault.
    fn announce_retry(&self, attempt: u32, pause: Duration) {
        let Some(fault) = self.state().transient_fault() else { return };
        let attempts = self.attempts();
        // Rounded up, so that a short pause is not shown as zero.
        let seconds = pause.as_micros().div_ceil(100_000) as f64 / 10.0;
        let why = format!("attempt {attempt} of {attempts}, retrying in {seconds:.1} s: {fault}");
        self.tree.publish(RunEvent::Waiting { session: self.state().session().clone(), why });
    }

    /// Number of attempts at a turn before the next fallback takes over or the round fails.
    fn attempts(&self) -> u32 {
        match self.resolved.next_fallback(self.state().fallback_index()) {
            Some(_) => ATTEMPTS_BEFORE_FALLBACK.min(MAX_ATTEMPTS),
            None => MAX_ATTEMPTS,
        }
    }

    fn request(&self, planned: &PlannedCall, model: &str) -> Request {
        let tools = match planned.purpose {
            Purpose::Turn => self.offered_tools(),
            Purpose::Grace | Purpose::Summary | Purpose::Compaction => [].into(),
        };
        let (system, messages) = match &planned.digest {
            Some(digest) => (compact::system(), compact::messages(digest)),
            None => (self.resolved.system.clone(), self.state().messages()),
        };
        Request {
            session: self.state().session().clone(),
            agent: self.resolved.agent.id.clone(),
            role: self.state().round().and_then(|round| round.delegation.role.clone()),
            turn: planned.turn,
            attempt: planned.attempt,
            purpose: planned.purpose,
            model: model.to_owned(),
            system,
            tools,
            messages,
            max_tokens: planned.worst.max_output,
            temperature: self.resolved.agent.temperature,
            remote_context: self.resolved.is_external().then(|| Box::new(self.remote_context())),
        }
    }

    /// Sends the request and reads the reply. Also returns the queue time. If an external agent failed or was
    /// stopped, the usage it had reported counts.
    async fn send(&mut self, planned: &mut PlannedCall) -> Result<(CallOutcome, Duration), DriverError> {
        let mut ingest = Ingest::default();
        let mut timeout = self.call_timeout(planned.purpose);
        let outcome = self.stream_reply(planned, &mut ingest, &mut timeout).await?;
        let waited = timeout.waited(Instant::now());
        self.clock.extend(waited);
        // A summary of earlier turns is not a text of the agent.
        let is_stopped = matches!(outcome, CallOutcome::Fault(CallFault::Stopped, _));
        if is_stopped && planned.purpose != Purpose::Compaction && !ingest.text().trim().is_empty() {
            planned.partial = Some(ingest.text().into());
        }
        let outcome = match (outcome, &self.resolved.kind) {
            (CallOutcome::Fault(cause, Charge::Unconfirmed), AgentKind::External(external)) => {
                let reported = self.reported_at_stop(external, ingest.reported()).await;
                let used = CallUsage { usage: Usage::default(), estimated: 0, reported };
                CallOutcome::Fault(cause, Charge::Reported(used))
            }
            (outcome, AgentKind::External(_) | AgentKind::Local(_)) => outcome,
        };
        Ok((outcome, waited))
    }

    /// Usage of an external agent in a call without a reply. If the user cancelled it, it is asked for a final
    /// report, because it will not be called again.
    async fn reported_at_stop(&self, agent: &ExternalAgent, reported: ReportedUsage) -> ReportedUsage {
        if self.state().cancelled().is_none() || reported != ReportedUsage::default() {
            return reported;
        }
        agent.agents.stop(self.state().session()).await.unwrap_or_default()
    }

    /// Reads until the reply is complete, the time is up or the session is stopped.
    async fn stream_reply(
        &mut self,
        planned: &mut PlannedCall,
        ingest: &mut Ingest,
        timeout: &mut CallTimeout,
    ) -> Result<CallOutcome, DriverError> {
        let model = &self.resolved.model_option(self.state().fallback_index()).model;
        planned.trace.begin();
        let (session, turn, attempt) = (self.state().session().as_str(), planned.turn, planned.attempt);
        debug!(target: "brigade::model", session, model = model.name, turn, attempt, "calling model");
        let mut stream = model.provider.stream(self.request(planned, &model.name));
        // Cost if the call fails, and if it is stopped.
        let (mut cost, mut charge_if_stopped) = (Charge::Nothing, Charge::Unconfirmed);
        // Reset only after it fires, because chunks arrive far more often than a limit is reached.
        let mut timer = pin!(tokio::time::sleep_until(timeout.next_check(Instant::now())));
        let mut queue_guard = None;
        let redactor = self.tree.settings().redactor.clone();
        let mut deltas = DeltaBuffer { text: StreamRedactor::new(redactor), due: Instant::now() };
        loop {
            let chunk = tokio::select! {
                biased;
                message = self.mailbox.next() => {
                    self.take_while_busy(message).await?;
                    if self.state().open_call().is_none() || self.state().cancelled().is_some() {
                        return Ok(CallOutcome::Fault(CallFault::Stopped, charge_if_stopped));
                    }
                    continue;
                }
                chunk = stream.next() => chunk,
                () = timer.as_mut() => {
                    if let Some(cause) = self.check_timeout(timeout, planned.purpose) {
                        return Ok(CallOutcome::Fault(cause, charge_if_stopped));
                    }
                    timer.as_mut().reset(timeout.next_check(Instant::now()));
                    self.flush_deltas(planned, &mut deltas, Rest::More);
                    continue;
                }
            };
            let now = Instant::now();
            let text = match chunk {
                Some(Ok(Chunk::Queued)) => {
                    timeout.queued(now);
                    queue_guard.get_or_insert_with(|| self.clock.queue());
                    charge_if_stopped = Charge::Nothing;
                    continue;
                }
                Some(Ok(Chunk::Sent)) => {
                    timeout.sent(now);
                    planned.trace.sent(now);
                    queue_guard = None;
                    timer.as_mut().reset(timeout.next_check(Instant::now()));
                    charge_if_stopped = Charge::Unconfirmed;
                    if self.resolved.is_external() {
                        // The agent works from now on, whether it reports progress or not.
                        cost = Charge::Unconfirmed;
                    }
                    continue;
                }
                Some(Ok(Chunk::Waiting(why))) => {
                    timeout.note_received(now);
                    self.tree.publish(RunEvent::Waiting { session: self.state().session().clone(), why });
                    continue;
                }
                Some(Ok(Chunk::Status(status))) => {
                    planned.trace.status_received(now, status);
                    continue;
                }
                Some(Ok(chunk)) => {
                    timeout.chunk_received(now);
                    planned.trace.chunk_received(now, &chunk);
                    cost = Charge::Unconfirmed;
                    ingest.take(chunk)
                }
                Some(Err(error)) => Err(error),
                None => break,
            };
            match text {
                Ok(Some(text)) => {
                    deltas.text.push(&text);
                    if now >= deltas.due {
                        self.flush_deltas(planned, &mut deltas, Rest::More);
                    } else if deltas.due < timer.deadline() {
                        timer.as_mut().reset(deltas.due);
                    }
                }
                Ok(None) if ingest.is_done() => break,
                Ok(None) => {}
                Err(error) => return Ok(CallOutcome::Fault(fault(error), cost)),
            }
        }
        self.flush_deltas(planned, &mut deltas, Rest::None);
        let (reported, estimated) = (ingest.reported(), ingest.estimated());
        Ok(match std::mem::take(ingest).finish() {
            Ok((reply, usage)) => {
                let used = CallUsage { usage, estimated, reported };
                match empty_reply_fault(&reply, planned) {
                    Some(fault) => CallOutcome::Fault(fault, Charge::Reported(used)),
                    None => CallOutcome::Reply(Box::new(reply), used),
                }
            }
            Err(error) => CallOutcome::Fault(fault(error), cost),
        })
    }

    fn call_timeout(&self, purpose: Purpose) -> CallTimeout {
        let deadline = self.clock.deadline(Instant::now());
        let deadline = match purpose {
            Purpose::Grace | Purpose::Summary if self.state().recorded_limit() == Some(LimitKind::Time) => {
                Some(Instant::now() + self.clock.grace())
            }
            Purpose::Grace | Purpose::Summary => deadline.map(|deadline| deadline + self.clock.grace()),
            Purpose::Turn | Purpose::Compaction => deadline,
        };
        let is_wrap_up = matches!(purpose, Purpose::Grace | Purpose::Summary);
        let queue = self.queue_time(if is_wrap_up { self.clock.grace() } else { Duration::ZERO });
        let timeout = |silence| CallTimeout::new(Instant::now(), deadline, queue, silence);
        match self.resolved.kind {
            // An external program may work silently for a long time. Only its time limit ends it.
            AgentKind::External(_) => timeout(EXTERNAL_SILENCE_TIMEOUT),
            AgentKind::Local(_) => {
                let timeout = timeout(self.tree.settings().limits.model_silence);
                let is_first_attempt = !is_wrap_up && self.state().faults() == 0;
                if is_first_attempt { timeout.reserving_retry() } else { timeout }
            }
        }
    }

    /// Returns the fault if a time limit of the call was exceeded.
    fn check_timeout(&mut self, timeout: &CallTimeout, purpose: Purpose) -> Option<CallFault> {
        let now = Instant::now();
        if timeout.is_over(now) {
            self.clock.finish();
            if purpose != Purpose::Grace {
                self.record(Event::limit_reached(LimitKind::Time));
            }
            return Some(CallFault::Stopped);
        }
        let silence = timeout.silent_for(now)?;
        let message = format!("the model sent nothing for {} s", silence.as_secs());
        Some(CallFault::Transient { message })
    }

    /// Publishes the text that arrived since the last time as one delta. A summary of earlier turns is not
    /// published.
    fn flush_deltas(&self, planned: &PlannedCall, deltas: &mut DeltaBuffer, rest: Rest) {
        deltas.due = Instant::now() + DELTA_INTERVAL;
        if planned.purpose == Purpose::Compaction || !self.tree.is_followed(self.state().session()) {
            deltas.text.skip();
            return;
        }
        let text = match rest {
            Rest::More => deltas.text.take(),
            Rest::None => deltas.text.finish(),
        };
        if !text.is_empty() {
            let session = self.state().session().clone();
            self.tree.publish(RunEvent::Delta { session, turn: planned.turn, text: text.into() });
        }
    }

    fn record_outcome(&mut self, outcome: CallOutcome, planned: PlannedCall, waited: Duration) {
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let PlannedCall { purpose, turn, attempt, worst, digest, partial, trace } = planned;
        let ended = |outcome, spent| EndedCall {
            trace: trace.clone(),
            purpose,
            turn,
            attempt,
            queue_wait: waited,
            outcome,
            spent,
        };
        match (outcome, digest) {
            (CallOutcome::Reply(reply, used), None) => {
                // A session that only forwards a call of another program makes no model call.
                let turns = u64::from(!self.resolved.model_option(0).name.starts_with(PASSTHROUGH_PREFIX));
                let spent = Spent { turns, ..self.cost(used, worst.amount) };
                self.observe_call(ended(Ok(reply.stop), spent));
                self.record(Event::Replied { turn, reply: *reply, spent, waited_ms });
            }
            (CallOutcome::Reply(reply, used), Some(CompactionInput { keep_from, .. })) => {
                let (spent, summary) = (self.cost(used, worst.amount), reply.text.clone());
                self.observe_call(ended(Ok(reply.stop), spent));
                self.record(Event::Replied { turn, reply: *reply, spent, waited_ms });
                self.record(Event::Compacted { summary, keep_from });
                if self.summary == Summary::Requested {
                    self.summary = Summary::Done;
                }
            }
            (CallOutcome::Fault(cause, cost), _) => {
                let session = self.state().session().clone();
                self.tree.publish(RunEvent::Discarded { session, turn });
                let spent = match cost {
                    Charge::Nothing => Spent::default(),
                    Charge::Unconfirmed => Spent::unconfirmed(worst.amount),
                    Charge::Reported(used) => self.cost(used, worst.amount),
                };
                let mut cause = self.with_fallback(cause);
                self.tree.settings().redactor.redact_fault(&mut cause);
                self.observe_call(ended(Err(cause.clone()), spent));
                self.record(Event::CallFailed { turn, attempt, cause, spent, partial, waited_ms });
            }
        }
    }

    /// Switches to the next fallback if a retry of the same model would not help.
    fn with_fallback(&self, cause: CallFault) -> CallFault {
        let Some(next) = self.resolved.next_fallback(self.state().fallback_index()) else { return cause };
        let next = next.name.clone();
        match cause {
            CallFault::Fatal { message } => CallFault::GivenUp { message, next },
            // Another model may have a larger context window.
            CallFault::Overflow { message } if !self.state().can_compact() => {
                CallFault::GivenUp { message, next }
            }
            CallFault::Transient { message } if self.state().faults() + 1 >= self.attempts() => {
                CallFault::GivenUp { message, next }
            }
            cause => cause,
        }
    }

    fn cost(&self, used: CallUsage, reserved: Resources) -> Spent {
        let spent = match &self.resolved.kind {
            AgentKind::External(external) => external.limits.cost(used.reported, reserved),
            AgentKind::Local(local) => {
                let (usage, estimated) = (used.usage, used.estimated);
                let option = local.model_option(self.state().fallback_index());
                let unpriced = u64::from(!option.is_priced && usage.total() > 0);
                Spent {
                    usage,
                    usd: option.cost_model.price.of(usage),
                    unpriced,
                    estimated,
                    ..Spent::default()
                }
            }
        };
        let excess = spent.usage.total().saturating_sub(reserved.tokens);
        Spent { overrun: self.state().ledger().uncovered(reserved, &spent), excess, ..spent }
    }
}

/// Fault of a complete reply without text and calls.
fn empty_reply_fault(reply: &Reply, planned: &PlannedCall) -> Option<CallFault> {
    if !reply.text.as_str().trim().is_empty() || (!reply.calls.is_empty() && planned.digest.is_none()) {
        return None;
    }
    Some(match reply.stop {
        Stop::Refusal => {
            CallFault::Fatal { message: "the model refused to answer and gave no reason".to_owned() }
        }
        // The model may think less on a second attempt.
        Stop::Length if planned.digest.is_some() => CallFault::Transient {
            message: "the model used all output tokens before it wrote a summary".to_owned(),
        },
        Stop::Length if matches!(planned.purpose, Purpose::Grace | Purpose::Summary) => CallFault::Cut {
            message: format!(
                "the model used all {} output tokens before it wrote any text",
                planned.worst.max_output
            ),
        },
        Stop::Length => CallFault::Fatal {
            message: format!(
                "the model used all {} output tokens before it wrote any text. Raise `limits.max_tokens`, or use a model with a higher output limit.",
                planned.worst.max_output
            ),
        },
        Stop::End | Stop::Calls | Stop::Denied => {
            CallFault::Transient { message: "the model's reply was empty".to_owned() }
        }
    })
}

/// Pause after this many faults. It varies by up to a quarter, so that children that failed together do not retry
/// together.
fn retry_pause(first: Duration, faults: u32, jitter: f64) -> Duration {
    let pause = first.saturating_mul(2u32.saturating_pow(faults.saturating_sub(1)));
    pause.min(MAX_RETRY_PAUSE).mul_f64(0.75 + jitter / 2.0)
}

fn fault(error: ModelError) -> CallFault {
    match error {
        ModelError::Transient(message) => CallFault::Transient { message },
        ModelError::Fatal(message) => CallFault::Fatal { message },
        ModelError::Overflow(message) => CallFault::Overflow { message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_pauses_double_up_to_a_maximum() {
        let first = Duration::from_millis(250);
        let at = |faults, jitter| retry_pause(first, faults, jitter).as_millis();
        assert_eq!([at(1, 0.5), at(2, 0.5), at(3, 0.5)], [250, 500, 1000]);
        assert_eq!([at(1, 0.0), at(1, 1.0)], [187, 312]);
        assert_eq!([at(9, 0.5), at(u32::MAX, 0.5)], [8000, 8000]);
        assert_eq!(retry_pause(Duration::MAX, 2, 0.5), MAX_RETRY_PAUSE);
    }
}
