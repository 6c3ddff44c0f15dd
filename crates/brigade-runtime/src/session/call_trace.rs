//! Course of one model call, for observers.

use std::sync::Arc;
use std::time::Duration;

use brigade_core::delegation_styles::PASSTHROUGH_PREFIX;
use brigade_core::event::CallFault;
use brigade_core::message::Stop;
use brigade_core::{Purpose, SessionId, Spent, Usage};
use tokio::time::Instant;

use super::Driver;
use crate::clock;
use crate::model::Chunk;
use crate::observer::{
    ModelExchange, ModelRequestFacts, ModelRequestTiming, Observation, ObservedSession, Observers,
};

/// Data of a driver for the observers.
pub(super) struct ObservedDriver {
    /// Wait for the slot, for the facts of the next model call.
    pub(super) slot_wait: Duration,
    /// Reports to the observers when the driver is dropped.
    _guard: Option<Box<ObservedSession>>,
}

impl ObservedDriver {
    pub(super) fn new(observers: &Observers, session: &SessionId) -> ObservedDriver {
        ObservedDriver { slot_wait: Duration::ZERO, _guard: observers.session_guard(session) }
    }
}

/// Times and transport facts of a call.
#[derive(Debug, Clone, Default)]
pub(super) struct CallTrace {
    exchange: ModelExchange,
    timing: ModelRequestTiming,
    began: Option<Instant>,
    last_sent: Option<Instant>,
}

impl CallTrace {
    pub(super) fn new(slot_wait: Duration) -> CallTrace {
        CallTrace {
            timing: ModelRequestTiming { slot_wait, ..ModelRequestTiming::default() },
            ..CallTrace::default()
        }
    }

    /// Notes that the model was given the request.
    pub(super) fn begin(&mut self) {
        self.began = Some(Instant::now());
        self.timing.started_at = clock::now();
    }

    /// Notes that the request was sent. What was known of an earlier response no longer counts.
    pub(super) fn sent(&mut self, now: Instant) {
        self.exchange = ModelExchange { sends: self.exchange.sends.saturating_add(1), status: None };
        self.last_sent = Some(now);
        self.timing.first_byte = None;
    }

    /// Notes the status of the response.
    pub(super) fn status_received(&mut self, now: Instant, status: u16) {
        self.exchange.status = Some(status);
        self.note_first_byte(now);
    }

    /// Notes a part of the response.
    pub(super) fn chunk_received(&mut self, now: Instant, chunk: &Chunk) {
        // An empty usage only marks a request as billable. It precedes the error if there is no response.
        if !matches!(chunk, Chunk::Usage(usage) if *usage == Usage::default()) {
            self.note_first_byte(now);
        }
    }

    fn note_first_byte(&mut self, now: Instant) {
        if self.timing.first_byte.is_none() {
            let since = self.last_sent.or(self.began);
            self.timing.first_byte = since.map(|since| now.saturating_duration_since(since));
        }
    }
}

/// Call whose facts are reported.
pub(super) struct EndedCall {
    pub(super) trace: CallTrace,
    pub(super) purpose: Purpose,
    pub(super) turn: u32,
    pub(super) attempt: u32,
    pub(super) queue_wait: Duration,
    pub(super) outcome: Result<Stop, CallFault>,
    pub(super) spent: Spent,
}

impl Driver {
    /// Reports a call to the observers, before its outcome changes the model of the session.
    pub(super) fn observe_call(&self, call: EndedCall) {
        let observers = &self.tree.settings().observers;
        let EndedCall { trace, purpose, turn, attempt, queue_wait, outcome, spent } = call;
        let Some(began) = trace.began.filter(|_| !observers.is_empty()) else { return };
        let option = self.resolved.model_option(self.state().fallback_index());
        // A session that only forwards a call of another program makes no model call.
        if option.name.starts_with(PASSTHROUGH_PREFIX) {
            return;
        }
        let (provider, model) = option.name.split_once('/').unwrap_or((&option.name, ""));
        let facts = ModelRequestFacts {
            session: self.state().session().clone(),
            agent: self.resolved.agent.id.clone(),
            provider: provider.to_owned(),
            model: model.to_owned(),
            purpose,
            turn,
            attempt,
            exchange: trace.exchange,
            timing: ModelRequestTiming { queue_wait, total: began.elapsed(), ..trace.timing },
            outcome,
            spent,
        };
        observers.observe(&Observation::ModelRequest(Arc::new(facts)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_of_a_resent_request_describes_the_last_response() {
        let mut trace = CallTrace::new(Duration::from_secs(3));
        trace.begin();
        let start = Instant::now();
        trace.sent(start);
        trace.status_received(start + Duration::from_secs(1), 429);
        trace.sent(start + Duration::from_secs(10));
        assert_eq!(trace.exchange, ModelExchange { sends: 2, status: None });
        assert_eq!(trace.timing.first_byte, None);
        trace.status_received(start + Duration::from_secs(12), 200);
        trace.chunk_received(start + Duration::from_secs(15), &Chunk::Text("So".to_owned()));
        assert_eq!(trace.exchange, ModelExchange { sends: 2, status: Some(200) });
        assert_eq!(trace.timing.first_byte, Some(Duration::from_secs(2)));
        assert_eq!(trace.timing.slot_wait, Duration::from_secs(3));
    }
}
