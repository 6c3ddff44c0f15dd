//! Budgets in the units of users: dollars, tokens and agents.

use super::{Budget, Limit};
use crate::amount::NANO;

/// Budget under construction. It is checked by [`BudgetBuilder::build`].
///
/// ```
/// use brigade_core::Budget;
/// let budget = Budget::usd(2.50).tokens(500_000).agents(20).build()?;
/// assert!(Budget::usd(-1.0).build().is_err());
/// # Ok::<(), brigade_core::grant::InvalidBudget>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[must_use = "a budget limits nothing until it is given to a run"]
pub struct BudgetBuilder {
    tokens: Option<Limit>,
    usd: Option<Amount>,
    agents: Option<Limit>,
}

/// Amount of dollars, as given.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Amount {
    Dollars(f64),
    NanoDollars(Limit),
}

/// Reason why a budget cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum InvalidBudget {
    /// The amount of dollars is not a positive number, or it is too small or too large to be represented.
    #[error(
        "cannot use a budget of {0} dollars: the amount is not positive or is out of range. Use a number such as 2.50."
    )]
    Dollars(f64),
    /// No tokens at all.
    #[error("cannot use a budget of 0 tokens: no model could be called. Use a number such as 500000.")]
    NoTokens,
}

impl Budget {
    /// Limits the cost in dollars.
    pub fn usd(dollars: f64) -> BudgetBuilder {
        BudgetBuilder::default().usd(dollars)
    }

    /// Limits the tokens, input and output together.
    pub fn tokens(tokens: u64) -> BudgetBuilder {
        BudgetBuilder::default().tokens(tokens)
    }

    /// Limits the number of sub-agents that are started. 0 permits none.
    pub fn agents(agents: u64) -> BudgetBuilder {
        BudgetBuilder::default().agents(agents)
    }
}

impl BudgetBuilder {
    /// Limits the cost in dollars, rounded to nano-dollars.
    pub fn usd(self, dollars: f64) -> BudgetBuilder {
        BudgetBuilder { usd: Some(Amount::Dollars(dollars)), ..self }
    }

    /// Limits the tokens, input and output together.
    pub fn tokens(self, tokens: u64) -> BudgetBuilder {
        BudgetBuilder { tokens: Some(Limit::AtMost(tokens)), ..self }
    }

    /// Limits the number of sub-agents that are started. 0 permits none.
    pub fn agents(self, agents: u64) -> BudgetBuilder {
        BudgetBuilder { agents: Some(Limit::AtMost(agents)), ..self }
    }

    /// Returns the budget. What was not limited is unlimited.
    pub fn build(self) -> Result<Budget, InvalidBudget> {
        self.build_with_defaults(Budget::UNLIMITED)
    }

    /// Returns the budget. What was not limited has the limit of `defaults`.
    pub fn build_with_defaults(self, defaults: Budget) -> Result<Budget, InvalidBudget> {
        if self.tokens == Some(Limit::AtMost(0)) {
            return Err(InvalidBudget::NoTokens);
        }
        let usd = match self.usd {
            None => defaults.usd,
            Some(Amount::NanoDollars(limit)) => limit,
            Some(Amount::Dollars(dollars)) => Limit::AtMost(nano_dollars(dollars)?),
        };
        let tokens = self.tokens.unwrap_or(defaults.tokens);
        Ok(Budget { tokens, usd, agents: self.agents.unwrap_or(defaults.agents) })
    }
}

impl From<Budget> for BudgetBuilder {
    fn from(budget: Budget) -> BudgetBuilder {
        BudgetBuilder {
            tokens: Some(budget.tokens),
            usd: Some(Amount::NanoDollars(budget.usd)),
            agents: Some(budget.agents),
        }
    }
}

fn nano_dollars(dollars: f64) -> Result<u64, InvalidBudget> {
    let nano = (dollars * NANO as f64).round();
    // 2^64 is the first number that does not fit. A comparison with NaN is false.
    if nano >= 1.0 && nano < u64::MAX as f64 { Ok(nano as u64) } else { Err(InvalidBudget::Dollars(dollars)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_rounded_to_nano_dollars() {
        let usd = |dollars| Budget::usd(dollars).build().map(|budget| budget.usd);
        assert_eq!(usd(2.50), Ok(Limit::AtMost(2_500_000_000)));
        assert_eq!(usd(0.1), Ok(Limit::AtMost(100_000_000)));
        assert_eq!(usd(0.1 + 0.2), Ok(Limit::AtMost(300_000_000)));
        assert_eq!(usd(1e-9), Ok(Limit::AtMost(1)));
    }

    #[test]
    fn invalid_amounts_are_errors() {
        for wrong in [
            0.0,
            -0.0,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e-10,
            1e300,
            18_446_744_073.709_553,
        ] {
            let error = Budget::usd(wrong).build().unwrap_err();
            assert!(matches!(error, InvalidBudget::Dollars(_)), "{wrong}");
        }
        assert_eq!(Budget::tokens(0).build(), Err(InvalidBudget::NoTokens));
        assert_eq!(
            Budget::usd(-1.0).build().unwrap_err().to_string(),
            "cannot use a budget of -1 dollars: the amount is not positive or is out of range. Use a number such as 2.50."
        );
    }

    #[test]
    fn limits_that_are_not_named_come_from_the_defaults() {
        let defaults = Budget { tokens: Limit::AtMost(7), usd: Limit::Unlimited, agents: Limit::AtMost(3) };
        let budget = Budget::usd(1.0).build_with_defaults(defaults);
        assert_eq!(budget, Ok(Budget { usd: Limit::AtMost(1_000_000_000), ..defaults }));
        let all = Budget::agents(0).tokens(5).usd(1.0).build_with_defaults(defaults);
        let expected =
            Budget { tokens: Limit::AtMost(5), usd: Limit::AtMost(1_000_000_000), agents: Limit::AtMost(0) };
        assert_eq!(all, Ok(expected));
        assert_eq!(Budget::tokens(5).build(), Ok(Budget { tokens: Limit::AtMost(5), ..Budget::UNLIMITED }));
    }

    #[test]
    fn complete_budget_stays_exact() {
        let budget =
            Budget { tokens: Limit::AtMost(9), usd: Limit::AtMost(u64::MAX), agents: Limit::Unlimited };
        assert_eq!(BudgetBuilder::from(budget).build_with_defaults(Budget::default()), Ok(budget));
    }
}
