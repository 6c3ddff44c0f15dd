//! What comes back with work that left the process: what it used up there.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::grant::Budget;
use crate::money::{Amount, Spent, Usage};

/// The key of `_meta` that an account stands under.
pub const KEY: &str = "brigade/spent";

/// The key of a tool's `_meta` that says that a call of it takes a loan and brings an account.
pub const LOAN: &str = "brigade/loan";

/// What became of work that was handed on, as the far side says in `_meta` under [`KEY`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Tokens that models read, cached or not.
    pub input_tokens: u64,
    /// Tokens that they wrote.
    pub output_tokens: u64,
    /// Nano-dollars for both.
    pub usd: u64,
    /// Agents that were started.
    pub agents: u64,
    /// Replies of models.
    pub turns: u64,
    /// Tokens of which nobody knows whether they were used.
    pub tokens_in_doubt: u64,
    /// Nano-dollars for these.
    pub usd_in_doubt: u64,
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

    /// The account as JSON. Beside `usd`, which is in nano-dollars, the same amount says its unit.
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Value::Object(fields) = &mut value {
            name_units(fields);
        }
        value
    }

    /// Puts the account into a `_meta` object.
    pub fn put(&self, meta: &mut Map<String, Value>) {
        meta.insert(KEY.to_owned(), self.to_json());
    }

    /// The same in our own books, as far as it stays within what was lent: nobody can charge more than that. What goes
    /// beyond it is noted as excess.
    pub fn within(&self, lent: &Budget) -> Spent {
        let mut left = *lent;
        let mut take = |wanted: Amount| {
            let granted = Amount {
                tokens: wanted.tokens.min(left.tokens.number()),
                usd: wanted.usd.min(left.usd.number()),
                agents: wanted.agents.min(left.agents.number()),
            };
            left = left.less(granted);
            granted
        };
        let input = take(Amount { tokens: self.input_tokens, usd: self.usd, agents: self.agents });
        let output = take(Amount { tokens: self.output_tokens, ..Amount::default() });
        let doubt =
            Amount { tokens: self.tokens_in_doubt, usd: self.usd_in_doubt, agents: self.agents_in_doubt };
        let in_doubt = take(doubt);
        let said = Amount { tokens: self.input_tokens, usd: self.usd, agents: self.agents };
        let said = said.plus(Amount { tokens: self.output_tokens, ..Amount::default() }).plus(doubt);
        Spent {
            usage: Usage { input: input.tokens, output: output.tokens, ..Usage::default() },
            usd: input.usd,
            agents: input.agents,
            turns: self.turns,
            in_doubt,
            excess: said.minus(input.plus(output).plus(in_doubt)).tokens,
            ..Spent::default()
        }
    }
}

/// Adds `usd_nano` and `cost_usd` beside `usd`, which is in nano-dollars.
pub fn name_units(fields: &mut Map<String, Value>) {
    let nano = match fields.get("usd") {
        None => 0,
        Some(value) => match value.as_u64() {
            Some(nano) => nano,
            // No limit has no number.
            None => return,
        },
    };
    fields.insert("usd_nano".to_owned(), nano.into());
    fields.insert("cost_usd".to_owned(), (nano as f64 / 1e9).into());
}

impl From<&Spent> for Account {
    fn from(spent: &Spent) -> Account {
        Account {
            input_tokens: spent.usage.input_total(),
            output_tokens: spent.usage.output,
            usd: spent.usd,
            agents: spent.agents,
            turns: spent.turns,
            tokens_in_doubt: spent.in_doubt.tokens,
            usd_in_doubt: spent.in_doubt.usd,
            agents_in_doubt: spent.in_doubt.agents,
        }
    }
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
    fn nobody_charges_more_than_the_loan() {
        let account = Account::from(&some());
        let lent = Budget { tokens: Limit::AtMost(10), ..Budget::UNLIMITED };
        let spent = account.within(&lent);
        assert_eq!((spent.usage.input, spent.usage.output, spent.in_doubt.tokens), (5, 5, 0));
        assert_eq!(spent.excess, 13);
        // One field that is exceeded takes nothing from the others.
        assert_eq!((spent.usd, spent.agents, spent.in_doubt.agents), (123_456_789, 2, 1));
        let nothing = account.within(&Budget::default());
        assert_eq!(nothing.amount(), Amount::default());
        let greedy = Account { input_tokens: u64::MAX, output_tokens: u64::MAX, ..Account::default() };
        assert_eq!(greedy.within(&lent).amount(), Amount { tokens: 10, ..Amount::default() });
    }

    #[test]
    fn nonsense_is_no_account() {
        for bad in [json!("much"), json!({ "agents": -1 }), json!({ "usd": 0.5 })] {
            let meta = Map::from_iter([(KEY.to_owned(), bad.clone())]);
            assert!(Account::in_meta(&meta).is_err(), "{bad}");
        }
    }
}
