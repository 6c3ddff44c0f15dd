//! Usage report of remote work.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::amount::dollars_as_f64;
use crate::grant::Budget;
use crate::money::{Resources, Spent, Usage};
use crate::remote_context::InvalidMeta;

/// `_meta` key of a usage report.
pub const META_KEY: &str = "brigade/spent";

/// Key in a tool's `_meta` which declares that a call accepts a loan and returns a usage report.
const LOAN_META_KEY: &str = "brigade/loan";

/// Declares in the `_meta` of a tool that its calls accept a loan.
pub fn declare_loan(meta: &mut Map<String, Value>) {
    meta.insert(LOAN_META_KEY.to_owned(), true.into());
}

/// Whether calls of a tool with this `_meta` accept a loan.
pub fn accepts_loan(meta: &Map<String, Value>) -> bool {
    meta.get(LOAN_META_KEY) == Some(&Value::Bool(true))
}

/// Usage of remote work, as the remote side reports it in `_meta` under [`META_KEY`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageReport {
    /// Input tokens, cached or not.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Nano-dollars for both.
    pub usd: u64,
    /// Agents that were started.
    pub agents: u64,
    /// Model replies.
    pub turns: u64,
    /// Tokens whose use is unconfirmed.
    #[serde(rename = "tokens_in_doubt")]
    pub unconfirmed_tokens: u64,
    /// Nano-dollars for these.
    #[serde(rename = "usd_in_doubt")]
    pub unconfirmed_usd: u64,
    /// Agents whose start is unconfirmed.
    #[serde(rename = "agents_in_doubt")]
    pub unconfirmed_agents: u64,
}

impl UsageReport {
    /// Reads the report of a `_meta` object, if it contains one.
    pub fn from_meta(meta: &Map<String, Value>) -> Result<Option<UsageReport>, InvalidMeta> {
        let Some(value) = meta.get(META_KEY) else { return Ok(None) };
        let report = serde_json::from_value(value.clone());
        report.map(Some).map_err(|cause| InvalidMeta { key: META_KEY, cause: cause.to_string() })
    }

    /// Returns the report as JSON. `usd` is in nano-dollars; the same amount is added with its unit.
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Value::Object(fields) = &mut value {
            add_cost_units(fields);
        }
        value
    }

    /// Writes the report into a `_meta` object.
    pub fn write_meta(&self, meta: &mut Map<String, Value>) {
        meta.insert(META_KEY.to_owned(), self.to_json());
    }

    /// Converts the report to usage, capped to the loan: the remote side cannot charge more than that. The rest is
    /// recorded as excess.
    pub fn capped_to(&self, lent: &Budget) -> Spent {
        let mut left = *lent;
        let mut take = |requested: Resources| {
            let granted = Resources {
                tokens: requested.tokens.min(left.tokens.number()),
                usd: requested.usd.min(left.usd.number()),
                agents: requested.agents.min(left.agents.number()),
            };
            left = left.minus(granted);
            granted
        };
        let input = take(Resources { tokens: self.input_tokens, usd: self.usd, agents: self.agents });
        let output = take(Resources { tokens: self.output_tokens, ..Resources::default() });
        let reported_unconfirmed = Resources {
            tokens: self.unconfirmed_tokens,
            usd: self.unconfirmed_usd,
            agents: self.unconfirmed_agents,
        };
        let unconfirmed = take(reported_unconfirmed);
        let reported = Resources { tokens: self.input_tokens, usd: self.usd, agents: self.agents };
        let reported = reported
            .plus(Resources { tokens: self.output_tokens, ..Resources::default() })
            .plus(reported_unconfirmed);
        Spent {
            usage: Usage { input: input.tokens, output: output.tokens, ..Usage::default() },
            usd: input.usd,
            agents: input.agents,
            turns: self.turns,
            unconfirmed,
            excess: reported.minus(input.plus(output).plus(unconfirmed)).tokens,
            ..Spent::default()
        }
    }
}

/// Adds `usd_nano` and `cost_usd` next to `usd`, which is in nano-dollars.
pub fn add_cost_units(fields: &mut Map<String, Value>) {
    let nano = match fields.get("usd") {
        None => 0,
        Some(value) => match value.as_u64() {
            Some(nano) => nano,
            // An unlimited amount has no number.
            None => return,
        },
    };
    fields.insert("usd_nano".to_owned(), nano.into());
    fields.insert("cost_usd".to_owned(), dollars_as_f64(nano).into());
}

impl From<&Spent> for UsageReport {
    fn from(spent: &Spent) -> UsageReport {
        UsageReport {
            input_tokens: spent.usage.input_total(),
            output_tokens: spent.usage.output,
            usd: spent.usd,
            agents: spent.agents,
            turns: spent.turns,
            unconfirmed_tokens: spent.unconfirmed.tokens,
            unconfirmed_usd: spent.unconfirmed.usd,
            unconfirmed_agents: spent.unconfirmed.agents,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grant::Limit;

    fn sample_spent() -> Spent {
        Spent {
            usage: Usage { input: 5, output: 7, ..Usage::default() },
            usd: 123_456_789,
            agents: 2,
            turns: 3,
            unconfirmed: Resources { tokens: 11, usd: 13, agents: 1 },
            ..Spent::default()
        }
    }

    #[test]
    fn usage_report_round_trips_through_meta() {
        let mut meta = Map::new();
        assert_eq!(UsageReport::from_meta(&meta), Ok(None));
        UsageReport::from(&sample_spent()).write_meta(&mut meta);
        let report = UsageReport::from_meta(&meta).unwrap().unwrap();
        assert_eq!(report.capped_to(&Budget::UNLIMITED), sample_spent());
        let just =
            Budget { tokens: Limit::AtMost(23), usd: Limit::AtMost(123_456_802), agents: Limit::AtMost(3) };
        assert_eq!(report.capped_to(&just), sample_spent());
    }

    #[test]
    fn usage_report_is_capped_to_the_loan() {
        let report = UsageReport::from(&sample_spent());
        let lent = Budget { tokens: Limit::AtMost(10), ..Budget::UNLIMITED };
        let spent = report.capped_to(&lent);
        assert_eq!((spent.usage.input, spent.usage.output, spent.unconfirmed.tokens), (5, 5, 0));
        assert_eq!(spent.excess, 13);
        // An exceeded field does not reduce the others.
        assert_eq!((spent.usd, spent.agents, spent.unconfirmed.agents), (123_456_789, 2, 1));
        let nothing = report.capped_to(&Budget::default());
        assert_eq!(nothing.amount(), Resources::default());
        let greedy =
            UsageReport { input_tokens: u64::MAX, output_tokens: u64::MAX, ..UsageReport::default() };
        assert_eq!(greedy.capped_to(&lent).amount(), Resources { tokens: 10, ..Resources::default() });
    }

    #[test]
    fn invalid_usage_report_is_rejected() {
        for bad in [json!("much"), json!({ "agents": -1 }), json!({ "usd": 0.5 })] {
            let meta = Map::from_iter([(META_KEY.to_owned(), bad.clone())]);
            assert!(UsageReport::from_meta(&meta).is_err(), "{bad}");
        }
    }

    #[test]
    fn cost_is_written_in_dollars_too_unless_it_is_unlimited() {
        let json = UsageReport::from(&sample_spent()).to_json();
        assert_eq!(
            (&json["usd"], &json["usd_nano"], &json["cost_usd"]),
            (&json!(123_456_789), &json!(123_456_789), &json!(0.123_456_789))
        );
        let units = |value: Value| {
            let mut fields = value.as_object().unwrap().clone();
            add_cost_units(&mut fields);
            Value::Object(fields)
        };
        assert_eq!(units(json!({})), json!({ "usd_nano": 0, "cost_usd": 0.0 }));
        assert_eq!(units(json!({ "usd": "unlimited" })), json!({ "usd": "unlimited" }));
    }
}
