//! Warnings in the outcome of a round.

use brigade_core::message::Stop;
use brigade_core::{Outcome, Spent};

use super::Driver;

impl Driver {
    /// Adds the warnings of the round to its outcome.
    pub(super) fn with_warnings(&self, outcome: Outcome) -> Outcome {
        let mut warnings =
            self.state().round().map(|round| round.delegation.warnings.clone()).unwrap_or_default();
        match self.state().last_stop() {
            Some(Stop::Length) => {
                warnings.push("the last reply was cut off at its output limit".to_owned());
            }
            Some(Stop::Refusal) => warnings.push("the model's last reply was a refusal".to_owned()),
            Some(Stop::End | Stop::Calls | Stop::Denied) | None => {}
        }
        // Usage warnings are for the user. The delegation style fixes what a caller reads about its child.
        if self.state().round().is_some_and(|round| round.parent.is_none()) {
            warnings.extend(usage_warnings(&self.state().ledger().spent()));
        }
        Outcome { warnings, ..outcome }
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
