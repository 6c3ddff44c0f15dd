//! Calling the model.

use std::pin::pin;
use std::time::Duration;

use brigade_core::delegation::Which;
use brigade_core::event::{CallFault, Speaker};
use brigade_core::faces::RELAY;
use brigade_core::message::Stop;
use brigade_core::money::Amount;
use brigade_core::state::{Digest, MAX_ATTEMPTS, Meter, Shortfall, Worst};
use brigade_core::text::Text;
use brigade_core::{Event, Hash, Purpose, Reply, Spent, Usage};
use futures::StreamExt;
use tokio::time::Instant;

use super::patience::Patience;
use super::{Driver, Fatal, Summary, compact};
use crate::external::{self, Reported};
use crate::jitter::jitter;
use crate::live::Live;
use crate::model::{Chunk, Ingest, ModelError, Request};

/// The longest pause after a fault.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// How often a model is asked before the next one of the chain takes over.
const PATIENCE: u32 = 3;

/// How long an external agent may be silent.
const LONG_SILENCE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long words wait to be shown together.
const FLOW: Duration = Duration::from_millis(15);

/// What was heard and not shown yet. Whoever watches is told often enough to see words flow, and not for each of them.
struct Unshown {
    text: String,
    /// When it may be shown.
    due: Instant,
}

/// A call that is about to be made.
struct Ask {
    purpose: Purpose,
    turn: u32,
    attempt: u32,
    worst: Worst,
    /// What is to be summarised, where that is the purpose.
    digest: Option<Digest>,
    /// The text that had arrived when the session was stopped.
    partial: Option<Text>,
}

/// How a call ended.
enum Heard {
    Reply(Box<Reply>, Used),
    Fault(CallFault, Cost),
}

/// What a call cost that brought no reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cost {
    /// The model did not begin.
    Nothing,
    /// It may have worked: the reserve is the most that it can be.
    Doubtful,
    /// It said.
    Known(Used),
}

/// What a model says that a call used up.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Used {
    usage: Usage,
    /// Tokens of it that are an estimate.
    estimated: u64,
    /// The account of an external agent.
    reported: Reported,
}

impl Driver {
    pub(super) async fn call_model(&mut self, purpose: Purpose) -> Result<(), Fatal> {
        let length = self.state.length();
        self.become_active().await?;
        self.pause_after_fault().await?;
        if let Some(limit) = self.state.limit_due() {
            // The turn limit follows from the log; it is recorded all the same, for whoever reads it.
            self.record(Event::limit_reached(limit));
        }
        if purpose == Purpose::Turn {
            self.watch_repeats();
        }
        if self.state.cancelled().is_some()
            || (self.state.limit_recorded().is_some()
                && matches!(purpose, Purpose::Turn | Purpose::Compaction))
        {
            return Ok(());
        }
        let Some(mut ask) = self.ask(purpose) else { return Ok(()) };
        let Ask { purpose, turn, attempt, worst, .. } = ask;
        let request = match &ask.digest {
            Some(digest) => Hash::of(digest.text.as_bytes()),
            None => self.state.fingerprint(),
        };
        let (reserved, input) = (worst.amount, worst.input);
        let called = Event::Called { turn, attempt, purpose, reserved, input, request };
        if !self.record(called) {
            // Words that came meanwhile may have changed what is to be done.
            return if self.state.length() > length {
                Ok(())
            } else {
                Err(self.contradiction("call the model"))
            };
        }
        self.flush().await?;
        if self.state.open_call().is_none_or(|open| open.turn != turn || open.attempt != attempt) {
            // Words from outside came first; the call did not happen.
            return Ok(());
        }
        let (heard, waited) = match purpose {
            Purpose::Turn if self.is_cut_off => {
                let message = external::INTERRUPTED.to_owned();
                (Heard::Fault(CallFault::Fatal { message }, Cost::Doubtful), Duration::ZERO)
            }
            _ => self.converse(&mut ask).await?,
        };
        self.settle(heard, ask, waited);
        Ok(())
    }

    /// The call to be made for this purpose; none if it would be too long or cannot be paid. What nears the window is
    /// made shorter first.
    fn ask(&mut self, purpose: Purpose) -> Option<Ask> {
        let meter = *self.meter();
        let purpose = match purpose {
            Purpose::Turn | Purpose::Summary if self.state.nears_window(&meter) => Purpose::Compaction,
            purpose => purpose,
        };
        let (turn, attempt) = self.state.upcoming();
        if purpose != Purpose::Compaction
            && let Some(size) = self.state.exceeds_window(&meter)
        {
            self.refuse_too_long(purpose, size, turn, attempt);
            return None;
        }
        let digest = (purpose == Purpose::Compaction).then(|| match self.summary {
            Summary::Asked => self.state.digest_on_request(&meter),
            Summary::NotAsked | Summary::Made => self.state.digest(&meter),
        });
        let worst = match &digest {
            _ if let Some(terms) = &self.kit.terms => {
                let amount = terms.reserve(self.state.ledger().reservable());
                Ok(Worst { amount, input: 0, max_output: 0 })
            }
            Some(digest) => self.state.worst_summary(&meter, compact::bytes(digest)),
            None => self.state.worst_case(&meter, purpose),
        };
        match worst {
            Ok(worst) => Some(Ask { purpose, turn, attempt, worst, digest, partial: None }),
            Err(shortfall) => {
                self.cannot_pay(purpose, shortfall, turn, attempt);
                None
            }
        }
    }

    /// What calls of the model cost that is asked now.
    pub(super) fn meter(&self) -> &Meter {
        &self.kit.link(self.state.given_up()).meter
    }

    fn cannot_pay(&mut self, purpose: Purpose, shortfall: Shortfall, turn: u32, attempt: u32) {
        let Shortfall { which, needed } = shortfall;
        self.record(Event::LimitReached { which, needed });
        match purpose {
            Purpose::Turn | Purpose::Compaction => {}
            // A report that cannot be paid leaves the session incomplete, even if the task was done.
            Purpose::Grace | Purpose::Summary => self.give_up_call(turn, attempt),
        }
    }

    /// Records that a wrap-up call or a report was not sent, and never will be.
    fn give_up_call(&mut self, turn: u32, attempt: u32) {
        let cause = CallFault::Unaffordable;
        self.record(Event::call_failed(turn, attempt, cause, Spent::default()));
    }

    /// Refuses a request that the model cannot read, before anything is spent on it.
    fn refuse_too_long(&mut self, purpose: Purpose, size: u64, turn: u32, attempt: u32) {
        // A report after a limit, or one that no summary makes shorter, is given up: the last text has to do.
        let is_given_up = match purpose {
            Purpose::Grace => true,
            Purpose::Summary => self.state.limit_due().is_some() || !self.state.can_compact(),
            Purpose::Turn | Purpose::Compaction => false,
        };
        if is_given_up {
            return self.give_up_call(turn, attempt);
        }
        let link = self.kit.link(self.state.given_up());
        let (name, window) = (&link.name, link.meter.window.unwrap_or_default());
        let message = format!(
            "cannot call {name}: the request has at least {size} tokens, and the context window of the model holds \
             {window}. Shorten the task, or choose a model with a larger window."
        );
        let cause = self.or_another_model(CallFault::Overflow { message });
        self.record(Event::call_failed(turn, attempt, cause, Spent::default()));
    }

    /// Tells an agent that it repeats itself, and stops one that does not listen.
    fn watch_repeats(&mut self) {
        let limits = &self.tree.settings().limits;
        let (warning, limit) = (limits.loop_warning, limits.loop_limit);
        let repeats = self.state.repeats();
        if limit > 0 && repeats >= limit {
            self.record(Event::limit_reached(Which::Loop));
        } else if warning > 0 && repeats >= warning && !self.state.is_told_of_repeats() {
            let text = format!(
                "You have made the same calls with the same results {repeats} times in a row. Try something else, or \
                 finish with what you have."
            );
            self.record(Event::Heard { from: Speaker::Runtime, text: text.into() });
        }
    }

    async fn pause_after_fault(&mut self) -> Result<(), Fatal> {
        let faults = self.state.faults();
        if faults == 0 {
            return Ok(());
        }
        self.flush().await?;
        let first = self.tree.settings().limits.retry_pause;
        let pause = pause(first, faults, jitter());
        self.announce_attempt(faults + 1, pause);
        let until = Instant::now() + pause;
        while self.state.stopping().is_none() {
            tokio::select! {
                () = tokio::time::sleep_until(until) => break,
                message = self.inbox.next() => self.take_aside(message).await?,
            }
        }
        Ok(())
    }

    /// Tells watchers which attempt comes next, when, and the fault of the last one.
    fn announce_attempt(&self, attempt: u32, pause: Duration) {
        let Some(fault) = self.state.passing_fault() else { return };
        let attempts = self.attempts();
        // Rounded up, so that no pause is shown as none.
        let seconds = pause.as_micros().div_ceil(100_000) as f64 / 10.0;
        let why = format!("attempt {attempt} of {attempts}, again in {seconds:.1} s: {fault}");
        self.tree.watchers.send(Live::Waiting { session: self.state.session().clone(), why });
    }

    /// Number of attempts at a turn before the next model of the chain takes over, or the round fails.
    fn attempts(&self) -> u32 {
        match self.kit.next_link(self.state.given_up()) {
            Some(_) => PATIENCE.min(MAX_ATTEMPTS),
            None => MAX_ATTEMPTS,
        }
    }

    fn request(&self, ask: &Ask, model: &str) -> Request {
        let tools = match ask.purpose {
            Purpose::Turn => self.offered(),
            Purpose::Grace | Purpose::Summary | Purpose::Compaction => [].into(),
        };
        let (system, messages) = match &ask.digest {
            Some(digest) => (compact::system(), compact::messages(digest)),
            None => (self.kit.system.clone(), self.state.messages()),
        };
        Request {
            session: self.state.session().clone(),
            agent: self.kit.agent.id.clone(),
            role: self.state.round().and_then(|round| round.delegation.role.clone()),
            turn: ask.turn,
            attempt: ask.attempt,
            purpose: ask.purpose,
            model: model.to_owned(),
            system,
            tools,
            messages,
            max_tokens: ask.worst.max_output,
            temperature: self.kit.agent.temperature,
            hop: self.kit.terms.map(|_| Box::new(self.hop())),
        }
    }

    /// Sends the request and listens. Returns the time in the queue too. If an external agent failed or was stopped, the
    /// usage that it had reported until then counts.
    async fn converse(&mut self, ask: &mut Ask) -> Result<(Heard, Duration), Fatal> {
        let mut ingest = Ingest::default();
        let mut patience = self.patience(ask.purpose);
        let heard = self.listen(ask, &mut ingest, &mut patience).await?;
        let waited = patience.waited(Instant::now());
        self.clock.extend(waited);
        // A summary of earlier turns is not a text of the agent.
        let is_stopped = matches!(heard, Heard::Fault(CallFault::Stopped, _));
        if is_stopped && ask.purpose != Purpose::Compaction && !ingest.text().trim().is_empty() {
            ask.partial = Some(ingest.text().into());
        }
        let heard = match heard {
            Heard::Fault(cause, Cost::Doubtful) if self.kit.terms.is_some() => {
                let reported = self.reported_at_stop(ingest.reported()).await;
                let used = Used { usage: Usage::default(), estimated: 0, reported };
                Heard::Fault(cause, Cost::Known(used))
            }
            heard => heard,
        };
        Ok((heard, waited))
    }

    /// What an external agent used in a call without a reply. If the user cancelled it, it is asked: nobody calls it again.
    async fn reported_at_stop(&self, heard: Reported) -> Reported {
        let external = self.tree.settings().external.as_ref();
        match external.filter(|_| self.state.cancelled().is_some() && heard == Reported::default()) {
            Some(external) => external.stopped(self.state.session()).await.unwrap_or_default(),
            None => heard,
        }
    }

    /// Listens until the reply is whole, the time is up or the session is stopped.
    async fn listen(
        &mut self,
        ask: &Ask,
        ingest: &mut Ingest,
        patience: &mut Patience,
    ) -> Result<Heard, Fatal> {
        let model = &self.kit.link(self.state.given_up()).model;
        let mut stream = model.provider.stream(self.request(ask, &model.name));
        // What it costs if it fails, and if it is stopped.
        let (mut cost, mut in_case) = (Cost::Nothing, Cost::Doubtful);
        // Set anew only when it has gone off: pieces of a reply come far more often than a limit is reached.
        let mut alarm = pin!(tokio::time::sleep_until(patience.ends(Instant::now())));
        let mut in_queue = None;
        let mut unshown = Unshown { text: String::new(), due: Instant::now() };
        loop {
            let chunk = tokio::select! {
                biased;
                message = self.inbox.next() => {
                    self.take_aside(message).await?;
                    if self.state.open_call().is_none() || self.state.cancelled().is_some() {
                        return Ok(Heard::Fault(CallFault::Stopped, in_case));
                    }
                    continue;
                }
                chunk = stream.next() => chunk,
                () = alarm.as_mut() => {
                    if let Some(cause) = self.out_of_patience(patience, ask.purpose) {
                        return Ok(Heard::Fault(cause, in_case));
                    }
                    alarm.as_mut().reset(patience.ends(Instant::now()));
                    self.show(ask, &mut unshown, Instant::now());
                    continue;
                }
            };
            let now = Instant::now();
            let text = match chunk {
                Some(Ok(Chunk::Queued)) => {
                    patience.queued(now);
                    in_queue.get_or_insert_with(|| self.clock.queue());
                    in_case = Cost::Nothing;
                    continue;
                }
                Some(Ok(Chunk::Sent)) => {
                    patience.sent(now);
                    in_queue = None;
                    alarm.as_mut().reset(patience.ends(Instant::now()));
                    in_case = Cost::Doubtful;
                    if self.kit.terms.is_some() {
                        // It works from now on, whether it says so or not.
                        cost = Cost::Doubtful;
                    }
                    continue;
                }
                Some(Ok(Chunk::Waiting(why))) => {
                    patience.noted(now);
                    self.tree.watchers.send(Live::Waiting { session: self.state.session().clone(), why });
                    continue;
                }
                Some(Ok(chunk)) => {
                    patience.heard(now);
                    cost = Cost::Doubtful;
                    ingest.take(chunk)
                }
                Some(Err(error)) => Err(error),
                None => break,
            };
            match text {
                Ok(Some(text)) => {
                    unshown.text.push_str(&text);
                    if now >= unshown.due {
                        self.show(ask, &mut unshown, now);
                    } else if unshown.due < alarm.deadline() {
                        alarm.as_mut().reset(unshown.due);
                    }
                }
                Ok(None) if ingest.is_done() => break,
                Ok(None) => {}
                Err(error) => return Ok(Heard::Fault(fault(error), cost)),
            }
        }
        self.show(ask, &mut unshown, Instant::now());
        let (reported, estimated) = (ingest.reported(), ingest.estimated());
        Ok(match std::mem::take(ingest).finish() {
            Ok((reply, usage)) => {
                let used = Used { usage, estimated, reported };
                match silence_of(&reply, ask) {
                    Some(fault) => Heard::Fault(fault, Cost::Known(used)),
                    None => Heard::Reply(Box::new(reply), used),
                }
            }
            Err(error) => Heard::Fault(fault(error), cost),
        })
    }

    fn patience(&self, purpose: Purpose) -> Patience {
        let deadline = self.clock.deadline(Instant::now());
        let deadline = match purpose {
            Purpose::Grace | Purpose::Summary if self.state.limit_recorded() == Some(Which::Time) => {
                Some(Instant::now() + self.grace)
            }
            Purpose::Grace | Purpose::Summary => deadline.map(|deadline| deadline + self.grace),
            Purpose::Turn | Purpose::Compaction => deadline,
        };
        // Another program may work for long without a word to us: its time limit is all that ends it.
        let silence = match self.kit.terms {
            None => self.tree.settings().limits.model_silence,
            Some(_) => LONG_SILENCE,
        };
        let is_last_word = matches!(purpose, Purpose::Grace | Purpose::Summary);
        let queue = self.queue_time(if is_last_word { self.grace } else { Duration::ZERO });
        let patience = Patience::new(Instant::now(), deadline, queue, silence);
        let is_first_attempt = !is_last_word && self.kit.terms.is_none() && self.state.faults() == 0;
        if is_first_attempt { patience.leaving_room() } else { patience }
    }

    /// Why the call is not waited for any more, if it is not.
    fn out_of_patience(&mut self, patience: &Patience, purpose: Purpose) -> Option<CallFault> {
        let now = Instant::now();
        if patience.is_over(now) {
            self.clock.finish();
            if purpose != Purpose::Grace {
                self.record(Event::limit_reached(Which::Time));
            }
            return Some(CallFault::Stopped);
        }
        let silence = patience.silent_for(now)?;
        let message = format!("the model was silent for {} s", silence.as_secs());
        Some(CallFault::Transient { message })
    }

    /// Shows what has come since the last time in one piece. A summary of earlier turns is no reply to anybody.
    fn show(&self, ask: &Ask, unshown: &mut Unshown, now: Instant) {
        let text = std::mem::take(&mut unshown.text);
        unshown.due = now + FLOW;
        if !text.is_empty() && ask.purpose != Purpose::Compaction && self.tree.watchers.are_there() {
            let session = self.state.session().clone();
            self.tree.watchers.send(Live::Delta { session, turn: ask.turn, text: text.into() });
        }
    }

    fn settle(&mut self, heard: Heard, ask: Ask, waited: Duration) {
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let Ask { turn, attempt, worst, digest, partial, .. } = ask;
        match (heard, digest) {
            (Heard::Reply(reply, used), None) => {
                // A session that only forwards a call of another program thinks nothing.
                let turns = u64::from(!self.kit.link(0).name.starts_with(RELAY));
                let spent = Spent { turns, ..self.cost(used, worst.amount) };
                self.record(Event::Replied { turn, reply: *reply, spent, waited_ms });
            }
            (Heard::Reply(reply, used), Some(Digest { keep_from, .. })) => {
                let (spent, summary) = (self.cost(used, worst.amount), reply.text.clone());
                self.record(Event::Replied { turn, reply: *reply, spent, waited_ms });
                self.record(Event::Compacted { summary, keep_from });
                if self.summary == Summary::Asked {
                    self.summary = Summary::Made;
                }
            }
            (Heard::Fault(cause, cost), _) => {
                let session = self.state.session().clone();
                self.tree.watchers.send(Live::Discarded { session, turn });
                let spent = match cost {
                    Cost::Nothing => Spent::default(),
                    Cost::Doubtful => Spent::doubtful(worst.amount),
                    Cost::Known(used) => self.cost(used, worst.amount),
                };
                let cause = self.or_another_model(cause);
                self.record(Event::CallFailed { turn, attempt, cause, spent, partial, waited_ms });
            }
        }
    }

    /// Where asking again would not help, another model may.
    fn or_another_model(&self, cause: CallFault) -> CallFault {
        let Some(next) = self.kit.next_link(self.state.given_up()) else { return cause };
        let next = next.name.clone();
        match cause {
            CallFault::Fatal { message } => CallFault::GivenUp { message, next },
            // Another may have a larger window.
            CallFault::Overflow { message } if !self.state.can_compact() => {
                CallFault::GivenUp { message, next }
            }
            CallFault::Transient { message } if self.state.faults() + 1 >= self.attempts() => {
                CallFault::GivenUp { message, next }
            }
            cause => cause,
        }
    }

    fn cost(&self, used: Used, reserved: Amount) -> Spent {
        let spent = match &self.kit.terms {
            Some(terms) => terms.cost(used.reported, reserved),
            None => {
                let (usage, estimated) = (used.usage, used.estimated);
                let link = self.kit.link(self.state.given_up());
                let unpriced = u64::from(!link.is_priced && usage.total() > 0);
                Spent { usage, usd: link.meter.price.of(usage), unpriced, estimated, ..Spent::default() }
            }
        };
        let excess = spent.usage.total().saturating_sub(reserved.tokens);
        Spent { overrun: self.state.ledger().uncovered(reserved, &spent), excess, ..spent }
    }
}

/// Why a whole reply that says nothing and calls for nothing is no answer.
fn silence_of(reply: &Reply, ask: &Ask) -> Option<CallFault> {
    if !reply.text.as_str().trim().is_empty() || (!reply.calls.is_empty() && ask.digest.is_none()) {
        return None;
    }
    Some(match reply.stop {
        Stop::Refusal => {
            CallFault::Fatal { message: "the model refused to answer, without a word".to_owned() }
        }
        // Asked once more, it may think less.
        Stop::Length if ask.digest.is_some() => {
            CallFault::Transient { message: "there was no room for a summary".to_owned() }
        }
        Stop::Length if matches!(ask.purpose, Purpose::Grace | Purpose::Summary) => CallFault::Cut {
            message: format!("the model used all {} output tokens before any text", ask.worst.max_output),
        },
        Stop::Length => CallFault::Fatal {
            message: format!(
                "the model used up all {} tokens of its output before it said anything; raise max_tokens",
                ask.worst.max_output
            ),
        },
        Stop::End | Stop::Calls | Stop::Denied => {
            CallFault::Transient { message: "the model's reply was empty".to_owned() }
        }
    })
}

/// The pause after so many faults: up to a quarter more or less, so that children that failed together do not all come
/// back together.
fn pause(first: Duration, faults: u32, jitter: f64) -> Duration {
    let pause = first.saturating_mul(2u32.saturating_pow(faults.saturating_sub(1)));
    pause.min(LONGEST_PAUSE).mul_f64(0.75 + jitter / 2.0)
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
    fn pauses_double_and_have_an_end() {
        let first = Duration::from_millis(250);
        let at = |faults, jitter| pause(first, faults, jitter).as_millis();
        assert_eq!([at(1, 0.5), at(2, 0.5), at(3, 0.5)], [250, 500, 1000]);
        assert_eq!([at(1, 0.0), at(1, 1.0)], [187, 312]);
        assert_eq!([at(9, 0.5), at(u32::MAX, 0.5)], [8000, 8000]);
        assert_eq!(pause(Duration::MAX, 2, 0.5), LONGEST_PAUSE);
    }
}
