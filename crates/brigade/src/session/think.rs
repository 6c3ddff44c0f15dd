//! Calling the model.

use std::time::Duration;

use brigade_core::delegation::Which;
use brigade_core::event::CallFault;
use brigade_core::money::Amount;
use brigade_core::state::Worst;
use brigade_core::{Event, Purpose, Reply, Spent, Usage};
use futures::StreamExt;
use tokio::time::Instant;

use super::{Driver, Fatal, sleep_until};
use crate::jitter::jitter;
use crate::live::Live;
use crate::model::{Chunk, Ingest, ModelError, Request};

/// The longest pause after a fault.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// How a call ended.
enum Heard {
    Reply(Box<Reply>, Usage),
    Fault(CallFault, Began),
}

/// Whether the model may have begun to work on a call that brought no reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Began {
    No,
    Yes,
}

impl Driver {
    pub(super) async fn call_model(&mut self, purpose: Purpose) -> Result<(), Fatal> {
        self.become_active().await?;
        self.pause_after_fault().await?;
        if let Some(limit) = self.state.limit_due() {
            // The turn limit follows from the log; it is recorded all the same, for whoever reads it.
            self.record(Event::LimitReached { which: limit });
        }
        if self.state.cancelled().is_some()
            || (self.state.limit_recorded().is_some()
                && matches!(purpose, Purpose::Turn | Purpose::Compaction))
        {
            return Ok(());
        }
        let (turn, attempt) = self.state.upcoming();
        let worst = match self.state.worst_case(&self.kit.meter, purpose) {
            Ok(worst) => worst,
            Err(which) => {
                self.cannot_pay(purpose, which, turn, attempt);
                return Ok(());
            }
        };
        let request = self.state.fingerprint();
        let called = Event::Called { turn, attempt, purpose, reserved: worst.amount, request };
        if !self.record(called) {
            return Err(self.contradiction("call the model"));
        }
        self.flush().await?;
        if self.state.open_call().is_none_or(|open| open.turn != turn || open.attempt != attempt) {
            // Words from outside came first; the call did not happen.
            return Ok(());
        }
        let heard = self.converse(purpose, turn, attempt, worst).await?;
        self.settle(heard, turn, attempt, worst.amount);
        Ok(())
    }

    fn cannot_pay(&mut self, purpose: Purpose, which: Which, turn: u32, attempt: u32) {
        match purpose {
            Purpose::Turn | Purpose::Compaction => {
                self.record(Event::LimitReached { which });
            }
            Purpose::Grace | Purpose::Summary => {
                let spent = Spent::default();
                // A report that cannot be paid leaves the session incomplete, even where the task was done.
                self.record(Event::LimitReached { which });
                self.record(Event::CallFailed { turn, attempt, cause: CallFault::Unaffordable, spent });
            }
        }
    }

    async fn pause_after_fault(&mut self) -> Result<(), Fatal> {
        let faults = self.state.faults();
        if faults == 0 {
            return Ok(());
        }
        self.flush().await?;
        let first = self.tree.settings().limits.retry_pause;
        let until = Instant::now() + pause(first, faults, jitter());
        while self.state.stopping().is_none() {
            tokio::select! {
                () = tokio::time::sleep_until(until) => break,
                message = self.inbox.recv() => self.take_aside(message).await?,
            }
        }
        Ok(())
    }

    fn request(&self, purpose: Purpose, turn: u32, attempt: u32, worst: Worst) -> Request {
        let tools = match purpose {
            Purpose::Turn => self.offered(),
            Purpose::Grace | Purpose::Summary | Purpose::Compaction => [].into(),
        };
        Request {
            session: self.state.session().clone(),
            agent: self.kit.agent.id.clone(),
            role: self.state.round().and_then(|round| round.delegation.role.clone()),
            turn,
            attempt,
            purpose,
            model: self.kit.model.name.clone(),
            system: self.kit.system.clone(),
            tools,
            messages: self.state.messages(),
            max_tokens: worst.max_output,
            temperature: self.kit.agent.temperature,
        }
    }

    /// Sends the request and listens until the reply is whole, the time is up or the session is stopped.
    async fn converse(
        &mut self,
        purpose: Purpose,
        turn: u32,
        attempt: u32,
        worst: Worst,
    ) -> Result<Heard, Fatal> {
        let mut stream = self.kit.model.provider.stream(self.request(purpose, turn, attempt, worst));
        let mut ingest = Ingest::default();
        let mut began = Began::No;
        let silence = self.tree.settings().limits.model_silence;
        let deadline = match purpose {
            Purpose::Grace | Purpose::Summary if self.state.limit_recorded() == Some(Which::Time) => {
                Some(Instant::now() + self.grace)
            }
            Purpose::Grace | Purpose::Summary => self.deadline.map(|deadline| deadline + self.grace),
            Purpose::Turn | Purpose::Compaction => self.deadline,
        };
        let mut silent_until = Instant::now() + silence;
        loop {
            let chunk = tokio::select! {
                biased;
                message = self.inbox.recv() => {
                    self.take_aside(message).await?;
                    if self.state.open_call().is_none() || self.state.cancelled().is_some() {
                        return Ok(Heard::Fault(CallFault::Stopped, Began::Yes));
                    }
                    continue;
                }
                chunk = stream.next() => chunk,
                () = sleep_until(deadline) => {
                    self.deadline = None;
                    if purpose != Purpose::Grace {
                        self.record(Event::LimitReached { which: Which::Time });
                    }
                    return Ok(Heard::Fault(CallFault::Stopped, Began::Yes));
                }
                () = tokio::time::sleep_until(silent_until) => {
                    let message = format!("the model was silent for {} s", silence.as_secs());
                    return Ok(Heard::Fault(CallFault::Transient { message }, Began::Yes));
                }
            };
            silent_until = Instant::now() + silence;
            let text = match chunk {
                Some(Ok(Chunk::Waiting(why))) => {
                    self.tree.watchers.send(Live::Waiting { session: self.state.session().clone(), why });
                    continue;
                }
                Some(Ok(chunk)) => {
                    began = Began::Yes;
                    ingest.take(chunk)
                }
                Some(Err(error)) => Err(error),
                None => break,
            };
            match text {
                Ok(Some(text)) => self.show(turn, text),
                Ok(None) if ingest.is_done() => break,
                Ok(None) => {}
                Err(error) => return Ok(Heard::Fault(fault(error), began)),
            }
        }
        Ok(match ingest.finish() {
            Ok((reply, usage)) => Heard::Reply(Box::new(reply), usage),
            Err(error) => Heard::Fault(fault(error), began),
        })
    }

    fn show(&self, turn: u32, text: String) {
        if self.tree.watchers.are_there() {
            let session = self.state.session().clone();
            self.tree.watchers.send(Live::Delta { session, turn, text: text.into() });
        }
    }

    fn settle(&mut self, heard: Heard, turn: u32, attempt: u32, reserved: Amount) {
        match heard {
            Heard::Reply(reply, usage) => {
                let spent = self.cost(usage, reserved);
                self.record(Event::Replied { turn, reply: *reply, spent });
            }
            Heard::Fault(cause, began) => {
                let session = self.state.session().clone();
                self.tree.watchers.send(Live::Discarded { session, turn });
                // Whoever answered may have worked and be paid for it: the reserve is the most that it can be.
                let spent = match began {
                    Began::Yes => Spent::doubtful(reserved),
                    Began::No => Spent::default(),
                };
                self.record(Event::CallFailed { turn, attempt, cause, spent });
            }
        }
    }

    fn cost(&self, usage: Usage, reserved: Amount) -> Spent {
        let usd = self.kit.meter.price.of(usage);
        let used = Amount { tokens: usage.total(), usd, agents: 0 };
        Spent { usage, usd, turns: 1, overrun: used.minus(reserved), ..Spent::default() }
    }
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
        ModelError::Fatal(message) | ModelError::Overflow(message) => CallFault::Fatal { message },
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
