//! Budget that a call passes on to remote work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_core::usage_report::UsageReport;
use brigade_core::{Budget, Spent};
use serde_json::{Map, Value};

use super::ToolContext;

/// Budget that a call passes on to another Brigade process. Most calls have none.
///
/// # Contract
///
/// * A call that delegates marks the loan as sent before any request leaves the process. From then on the whole
///   loan counts as unconfirmed usage.
/// * The usage that the remote side reports is charged, but never more than the loan.
#[derive(Clone, Default)]
pub struct RemoteLoan {
    budget: Option<Budget>,
    state: Arc<Mutex<LoanState>>,
}

#[derive(Clone, Copy, Default)]
enum LoanState {
    /// No request was sent.
    #[default]
    NotSent,
    /// A request was sent, and its usage is unknown.
    Sent,
    /// The usage is known.
    Settled(Spent),
}

impl RemoteLoan {
    /// Creates a loan with this budget.
    pub fn new(budget: Budget) -> RemoteLoan {
        RemoteLoan { budget: Some(budget), state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, LoanState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the call has a loan.
    pub fn is_granted(&self) -> bool {
        self.budget.is_some()
    }

    /// Marks the loan as sent, before the request leaves.
    pub fn mark_sent(&self) {
        *self.lock() = LoanState::Sent;
    }

    /// Records the final usage; `None` if the remote side did not start.
    pub fn settle(&self, account: Option<&UsageReport>) {
        let spent = account.zip(self.budget.as_ref()).map(|(account, budget)| account.capped_to(budget));
        *self.lock() = LoanState::Settled(spent.unwrap_or_default());
    }

    /// Settles the loan with the usage in the `_meta` of a result. If that is invalid, the usage stays unknown.
    pub fn settle_with(&self, meta: Option<&Map<String, Value>>) {
        if let Ok(account) = meta.map_or(Ok(None), UsageReport::from_meta) {
            self.settle(account.as_ref());
        }
    }

    /// Returns the usage to charge.
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

impl ToolContext {
    /// Writes the context of the call into the `_meta` of its request, which is about to leave the process.
    pub fn attach_remote_context(&self, meta: &mut Map<String, Value>) {
        self.remote_context.write_meta(meta);
        self.loan.mark_sent();
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::{Limit, Resources, Usage};
    use serde_json::json;

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
    fn invalid_usage_report_leaves_the_loan_unconfirmed() {
        let lent = Budget { tokens: Limit::AtMost(10), ..Budget::UNLIMITED };
        let spent_after = |meta: Option<Value>| {
            let loan = RemoteLoan::new(lent);
            loan.mark_sent();
            loan.settle_with(meta.as_ref().and_then(Value::as_object));
            loan.spent()
        };
        let unconfirmed = Spent::unconfirmed(Resources { tokens: 10, ..Resources::default() });
        assert_eq!(spent_after(Some(json!({ "brigade/spent": { "output_tokens": "many" } }))), unconfirmed);
        assert_eq!(spent_after(Some(json!({ "brigade/spent": { "output_tokens": 4 } }))).usage.output, 4);
        assert_eq!([spent_after(Some(json!({}))), spent_after(None)], [Spent::default(); 2]);
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
