//! Ends a round without finishing its open work.

use std::collections::BTreeMap;

use super::{CallProgress, State};
use crate::delegation::{Outcome, Status};
use crate::event::{Answer, CallFault, Event};
use crate::id::SessionId;
use crate::message::ToolOutput;
use crate::money::{Resources, Spent};

/// Recorded author of the answer to a question whose call was lost.
const BY_RECOVERY: &str = "the end of the call";

impl State {
    /// Returns the events that end the open round as lost: the open model call fails, every loan is returned, and
    /// every question about a host is denied, and every open tool call is closed with `cause` and not run. `child_results` contains the known outcomes of
    /// children. Empty if no round is open.
    pub fn abandon(&self, cause: &str, child_results: &BTreeMap<SessionId, (Outcome, Spent)>) -> Vec<Event> {
        let mut abandoned = AbandonedRound { state: self.clone(), events: Vec::new() };
        if let Some(open) = self.open_call() {
            let (turn, attempt, spent) = (open.turn, open.attempt, Spent::unconfirmed(open.reserved));
            abandoned.record(Event::call_failed(turn, attempt, CallFault::Interrupted, spent));
        }
        for (child, loan) in self.loans() {
            let (outcome, spent) = child_results.get(child).cloned().unwrap_or_else(|| {
                let itself = Resources { agents: 1, ..Resources::default() };
                (lost(cause, ""), Spent::unconfirmed(loan.amount.minus(itself)))
            });
            abandoned.record(Event::Returned { child: child.clone(), outcome, spent, waited_ms: 0 });
        }
        for call in self.unanswered() {
            let hosts = self.call(call).into_iter().flat_map(|state| state.hosts.open());
            for host in hosts {
                let (host, by) = (host.clone(), BY_RECOVERY.to_owned());
                abandoned.record(Event::HostAnswered { call, host, answer: Answer::Deny { word: None }, by });
            }
            let lent = match self.call(call).map(|call| &call.progress) {
                Some(CallProgress::Started(intent)) => intent.lent,
                _ => Resources::default(),
            };
            let output = ToolOutput::error(format!("interrupted, outcome unknown: {cause}"));
            abandoned.record(Event::ToolEnded { call, output, spent: Spent::unconfirmed(lent), seen: None });
        }
        let outcome = lost(cause, self.last_text());
        let spent = abandoned.state.ledger().spent_at_end();
        abandoned.record(Event::Ended { outcome, spent });
        abandoned.events
    }
}

fn lost(cause: &str, text: impl Into<crate::text::Text>) -> Outcome {
    Outcome::new(Status::Lost { cause: cause.to_owned() }, text)
}

struct AbandonedRound {
    state: State,
    events: Vec<Event>,
}

impl AbandonedRound {
    fn record(&mut self, event: Event) {
        if self.state.admits(&event) {
            self.state.apply(&event);
            self.events.push(event);
        }
    }
}
