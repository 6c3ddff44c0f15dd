//! Outstanding loans of a round.

use std::collections::BTreeMap;

use super::RoundSpec;
use crate::delegation::Execution;
use crate::id::{CallId, SessionId};
use crate::money::Resources;

/// Outstanding loan.
#[derive(Debug, Clone, PartialEq)]
pub struct Loan {
    /// Call that requested the child.
    pub call: CallId,
    /// Amount of the loan.
    pub amount: Resources,
    /// Task of the child; kept while the loan is outstanding, so that a resume can start it from here.
    pub round: Box<RoundSpec>,
}

impl Loan {
    pub(super) fn execution(&self) -> Execution {
        self.round.delegation.execution
    }
}

/// Outstanding loans by child.
#[derive(Debug, Clone, Default)]
pub(super) struct Loans {
    pub(super) by_child: BTreeMap<SessionId, Loan>,
    /// Number of loans that a call waits for.
    pub(super) foreground: usize,
}

impl Loans {
    /// Adds a loan, and returns an earlier one of the same child.
    pub(super) fn add(&mut self, child: &SessionId, loan: Loan) -> Option<Loan> {
        self.foreground += foreground(&loan);
        let older = self.by_child.insert(child.clone(), loan);
        self.foreground -= older.as_ref().map_or(0, foreground);
        older
    }

    pub(super) fn remove(&mut self, child: &SessionId) -> Option<Loan> {
        let loan = self.by_child.remove(child)?;
        self.foreground -= foreground(&loan);
        Some(loan)
    }

    /// Returns the children that may outlive the session.
    pub(super) fn detachable(&self) -> Vec<SessionId> {
        let can_detach = |loan: &Loan| loan.execution() == Execution::Detachable;
        let loans = self.by_child.iter().filter(|(_, loan)| can_detach(loan));
        loans.map(|(child, _)| child.clone()).collect()
    }
}

fn foreground(loan: &Loan) -> usize {
    usize::from(loan.execution() == Execution::Foreground)
}
