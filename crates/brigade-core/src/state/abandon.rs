//! Ending a round without doing any of the work that is open in it.

use std::collections::BTreeMap;

use super::{CallProgress, State};
use crate::delegation::{Outcome, Status};
use crate::event::{CallFault, Event};
use crate::id::SessionId;
use crate::message::ToolOutput;
use crate::money::{Amount, Spent};

impl State {
    /// The facts that end the open round as lost: the open model call fails, every loan comes back, and every open tool
    /// call is closed with `cause` and not run. `ended` has the ends of children, as far as they are known. Empty if no
    /// round is open.
    pub fn abandon(&self, cause: &str, ended: &BTreeMap<SessionId, (Outcome, Spent)>) -> Vec<Event> {
        let mut rest = Abandoned { state: self.clone(), facts: Vec::new() };
        if let Some(open) = self.open_call() {
            let (turn, attempt, spent) = (open.turn, open.attempt, Spent::doubtful(open.reserved));
            rest.record(Event::call_failed(turn, attempt, CallFault::Interrupted, spent));
        }
        for (child, loan) in self.loans() {
            let (outcome, spent) = ended.get(child).cloned().unwrap_or_else(|| {
                let itself = Amount { agents: 1, ..Amount::default() };
                (lost(cause, ""), Spent::doubtful(loan.amount.minus(itself)))
            });
            rest.record(Event::Returned { child: child.clone(), outcome, spent, waited_ms: 0 });
        }
        for call in self.unanswered() {
            let lent = match self.call(call).map(|call| &call.progress) {
                Some(CallProgress::Started(intent)) => intent.lent,
                _ => Amount::default(),
            };
            let output = ToolOutput::error(format!("interrupted, outcome unknown: {cause}"));
            rest.record(Event::ToolEnded { call, output, spent: Spent::doubtful(lent), seen: None });
        }
        let outcome = lost(cause, self.last_text());
        let spent = rest.state.ledger().spent_at_end();
        rest.record(Event::Ended { outcome, spent });
        rest.facts
    }
}

fn lost(cause: &str, text: impl Into<crate::text::Text>) -> Outcome {
    Outcome::new(Status::Lost { cause: cause.to_owned() }, text)
}

struct Abandoned {
    state: State,
    facts: Vec<Event>,
}

impl Abandoned {
    fn record(&mut self, event: Event) {
        if self.state.admits(&event) {
            self.state.apply(&event);
            self.facts.push(event);
        }
    }
}
