//! What a call is lent for work that it hands on, and what becomes of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_core::account::Account;
use brigade_core::{Budget, Spent};

/// What a call is lent for work that it hands on to another Brigade. Most calls are lent nothing.
///
/// # Contract
///
/// * Who hands work on says so before anything leaves: from then on all of the loan is in doubt.
/// * What the far side says that it used counts, but never for more than the loan.
#[derive(Clone, Default)]
pub struct Purse {
    lent: Option<Budget>,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// Nothing has left.
    #[default]
    Whole,
    /// Nobody knows what of it is used.
    Away,
    /// This much is.
    Back(Spent),
}

impl Purse {
    /// A purse with a loan.
    pub fn new(lent: Budget) -> Purse {
        Purse { lent: Some(lent), state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a loan at all.
    pub fn is_lent(&self) -> bool {
        self.lent.is_some()
    }

    /// The work is about to leave.
    pub fn hand_on(&self) {
        *self.lock() = State::Away;
    }

    /// The work is over, and this is what it used; nothing where the far side did not begin.
    pub fn settle(&self, account: Option<&Account>) {
        let spent = account.zip(self.lent.as_ref()).map(|(account, lent)| account.within(lent));
        *self.lock() = State::Back(spent.unwrap_or_default());
    }

    /// What of the loan is gone.
    pub fn spent(&self) -> Spent {
        match *self.lock() {
            State::Whole => Spent::default(),
            State::Away => Spent::doubtful(self.lent.map(|lent| lent.counted_by(&lent)).unwrap_or_default()),
            State::Back(spent) => spent,
        }
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::{Amount, Limit, Usage};

    use super::*;

    #[test]
    fn all_is_in_doubt_until_somebody_says_what_was_used() {
        let purse = Purse::new(Budget { tokens: Limit::AtMost(10), ..Budget::UNLIMITED });
        assert_eq!(purse.spent(), Spent::default());
        purse.hand_on();
        assert_eq!(purse.spent(), Spent::doubtful(Amount { tokens: 10, ..Amount::default() }));
        purse.settle(Some(&Account { output_tokens: 4, ..Account::default() }));
        assert_eq!(
            purse.spent(),
            Spent { usage: Usage { output: 4, ..Usage::default() }, ..Spent::default() }
        );
        purse.hand_on();
        purse.settle(None);
        assert_eq!(purse.spent(), Spent::default());
    }

    #[test]
    fn an_empty_purse_pays_for_nothing() {
        let purse = Purse::default();
        purse.hand_on();
        assert_eq!(purse.spent(), Spent::default());
        purse.settle(Some(&Account { output_tokens: 4, turns: 9, ..Account::default() }));
        assert_eq!(purse.spent(), Spent::default());
    }
}
