//! What comes back with work that left the process: what it used up there.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::grant::Budget;
use crate::money::{Amount, Spent, Usage};

/// The key of `_meta` that an account stands under.
pub const KEY: &str = "brigade/spent";

/// What became of work that was handed on, as the far side says in `_meta` under [`KEY`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Tokens that models read, cached or not.
    pub input_tokens: u64,
    /// Tokens that they wrote.
    pub output_tokens: u64,
    /// Dollars for both.
    pub usd: f64,
    /// Agents that were started.
    pub agents: u64,
    /// Replies of models.
    pub turns: u64,
    /// Tokens of which nobody knows whether they were used.
    pub tokens_in_doubt: u64,
    /// Dollars for these.
    pub usd_in_doubt: f64,
    /// Agents of which nobody knows whether they were started.
    pub agents_in_doubt: u64,
}

impl Account {
    /// The account that a `_meta` object carries, if it carries one.
    pub fn in_meta(meta: &Map<String, Value>) -> Result<Option<Account>, String> {
        let Some(value) = meta.get(KEY) else { return Ok(None) };
        let account = serde_json::from_value(value.clone());
        account.map(Some).map_err(|cause| format!("`_meta.{KEY}`: {cause}"))
    }

    /// Puts the account into a `_meta` object.
    pub fn put(&self, meta: &mut Map<String, Value>) {
        if let Ok(value) = serde_json::to_value(self) {
            meta.insert(KEY.to_owned(), value);
        }
    }

    /// The same in our own books, as far as it stays within what was lent. Who says that it used more than it had is
    /// not believed: all of the loan counts as used then, and nothing beyond it.
    pub fn within(&self, lent: &Budget) -> Spent {
        let usage = Usage { input: self.input_tokens, output: self.output_tokens, ..Usage::default() };
        let in_doubt = Amount {
            tokens: self.tokens_in_doubt,
            usd: nanos(self.usd_in_doubt),
            agents: self.agents_in_doubt,
        };
        let spent = Spent {
            usage,
            usd: nanos(self.usd),
            agents: self.agents,
            turns: self.turns,
            in_doubt,
            ..Spent::default()
        };
        match lent.fits(spent.amount()) {
            true => spent,
            false => Spent::doubtful(lent.counted_by(lent)),
        }
    }
}

impl From<&Spent> for Account {
    fn from(spent: &Spent) -> Account {
        Account {
            input_tokens: spent.usage.input_total(),
            output_tokens: spent.usage.output,
            usd: dollars(spent.usd),
            agents: spent.agents,
            turns: spent.turns,
            tokens_in_doubt: spent.in_doubt.tokens,
            usd_in_doubt: dollars(spent.in_doubt.usd),
            agents_in_doubt: spent.in_doubt.agents,
        }
    }
}

fn dollars(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Whatever is no amount of money is nothing, and what is too much is the most there is.
fn nanos(dollars: f64) -> u64 {
    (dollars * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grant::Limit;

    fn some() -> Spent {
        Spent {
            usage: Usage { input: 5, output: 7, ..Usage::default() },
            usd: 123_456_789,
            agents: 2,
            turns: 3,
            in_doubt: Amount { tokens: 11, usd: 13, agents: 1 },
            ..Spent::default()
        }
    }

    #[test]
    fn what_is_put_is_booked_as_it_was() {
        let mut meta = Map::new();
        assert_eq!(Account::in_meta(&meta), Ok(None));
        Account::from(&some()).put(&mut meta);
        let account = Account::in_meta(&meta).unwrap().unwrap();
        assert_eq!(account.within(&Budget::UNLIMITED), some());
        let just =
            Budget { tokens: Limit::AtMost(23), usd: Limit::AtMost(123_456_802), agents: Limit::AtMost(3) };
        assert_eq!(account.within(&just), some());
    }

    #[test]
    fn nobody_uses_more_than_the_loan() {
        let account = Account::from(&some());
        for (lent, gone) in [
            (
                Budget { tokens: Limit::AtMost(22), ..Budget::UNLIMITED },
                Amount { tokens: 22, ..Amount::default() },
            ),
            (
                Budget { usd: Limit::AtMost(9), tokens: Limit::AtMost(50), ..Budget::UNLIMITED },
                Amount { usd: 9, tokens: 50, agents: 0 },
            ),
            (Budget { agents: Limit::AtMost(0), ..Budget::UNLIMITED }, Amount::default()),
        ] {
            assert_eq!(account.within(&lent), Spent::doubtful(gone));
        }
    }

    #[test]
    fn nonsense_is_no_account() {
        for bad in [json!("much"), json!({ "agents": -1 }), json!({ "usd": "all" })] {
            let meta = Map::from_iter([(KEY.to_owned(), bad.clone())]);
            assert!(Account::in_meta(&meta).is_err(), "{bad}");
        }
        let odd = Account { usd: -4.0, usd_in_doubt: f64::INFINITY, ..Account::default() };
        let spent = odd.within(&Budget::UNLIMITED);
        assert_eq!((spent.usd, spent.in_doubt.usd), (0, u64::MAX));
    }
}
