//! What a call is lent for work that it hands on, and what becomes of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_core::usage_report::UsageReport;
use brigade_core::{Budget, Spent};

/// What a call is lent for work that it hands on to another Brigade. Most calls are lent nothing.
///
/// # Contract
///
/// * Who hands work on says so before anything leaves: from then on all of the loan is in doubt.
/// * What the far side says that it used counts, but never for more than the loan.
#[derive(Clone, Default)]
pub struct RemoteLoan {
    budget: Option<Budget>,
    state: Arc<Mutex<LoanState>>,
}

#[derive(Clone, Copy, Default)]
enum LoanState {
    /// Nothing has left.
    #[default]
    NotSent,
    /// Nobody knows what of it is used.
    Sent,
    /// This much is.
    Settled(Spent),
}

impl RemoteLoan {
    /// A purse with a loan.
    pub fn new(budget: Budget) -> RemoteLoan {
        RemoteLoan { budget: Some(budget), state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, LoanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a loan at all.
    pub fn is_granted(&self) -> bool {
        self.budget.is_some()
    }

    /// The work is about to leave.
    pub fn mark_sent(&self) {
        *self.lock() = LoanState::Sent;
    }

    /// The work is over, and this is what it used; nothing where the far side did not begin.
    pub fn settle(&self, account: Option<&UsageReport>) {
        let spent = account.zip(self.budget.as_ref()).map(|(account, budget)| account.capped_to(budget));
        *self.lock() = LoanState::Settled(spent.unwrap_or_default());
    }

    /// What of the loan is gone.
    pub fn spent(&self) -> Spent {
        match *self.lock() {
            LoanState::NotSent => Spent::default(),
            LoanState::Sent => {
                Spent::unconfirmed(self.budget.map(|budget| budget.charged_to(&budget)).unwrap_or_default())
            }
            LoanState::Settled(spent) => spent,
        }
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::{Limit, Resources, Usage};

    use super::*;

    #[test]
    fn sent_loan_is_unconfirmed_until_settled() {
        let loan = RemoteLoan::new(Budget { tokens: Limit::AtMost(10), ..Budget::UNLIMITED });
        assert_eq!(loan.spent(), Spent::default());
        loan.mark_sent();
        assert_eq!(loan.spent(), Spent::unconfirmed(Resources { tokens: 10, ..Resources::default() }));
        loan.settle(Some(&UsageReport { output_tokens: 4, ..UsageReport::default() }));
        assert_eq!(
            loan.spent(),
            Spent { usage: Usage { output: 4, ..Usage::default() }, ..Spent::default() }
        );
        loan.mark_sent();
        loan.settle(None);
        assert_eq!(loan.spent(), Spent::default());
    }

    #[test]
    fn loan_without_budget_spends_nothing() {
        let loan = RemoteLoan::default();
        loan.mark_sent();
        assert_eq!(loan.spent(), Spent::default());
        loan.settle(Some(&UsageReport { output_tokens: 4, turns: 9, ..UsageReport::default() }));
        assert_eq!(loan.spent(), Spent::default());
    }
}
