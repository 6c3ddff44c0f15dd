//! Optional parameters of the delegation tools beyond the contracts.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::amount;
use crate::delegation::{Delegation, Execution};
use crate::grant::Budget;
use crate::message::Refusal;
use crate::text::Text;

/// Parameter beyond the contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExtraParameter {
    /// Lets the caller continue while the child works.
    Background,
    /// Requires a result that matches a JSON Schema.
    Schema,
    /// Limits the tokens of the child.
    Tokens,
    /// Limits the dollars of the child.
    Usd,
}

impl ExtraParameter {
    /// Returns the name of the parameter.
    pub fn name(self) -> &'static str {
        match self {
            ExtraParameter::Background => "background",
            ExtraParameter::Schema => "schema",
            ExtraParameter::Tokens => "tokens",
            ExtraParameter::Usd => "usd",
        }
    }
}

/// Adds the parameters to the schema of a tool.
pub(super) fn add_to(schema: &mut Value, extras: &BTreeSet<ExtraParameter>) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for extra in extras {
        match extra {
            ExtraParameter::Background => properties.insert(
                "background".to_owned(),
                json!({
                    "enum": [false, true, "detach"],
                    "description": "`true`: the call returns at once; the result arrives later, before your \
                                    run ends. Use `tell` and `stop` meanwhile. `detach`: your run can end first"
                }),
            ),
            ExtraParameter::Schema => properties.insert(
                "schema".to_owned(),
                json!({ "type": "object", "description": "JSON Schema of the result" }),
            ),
            ExtraParameter::Tokens => properties.insert(
                "tokens".to_owned(),
                json!({
                    "type": "integer",
                    "minimum": 1,
                    "description": "Token budget of the sub-agent, input and output"
                }),
            ),
            ExtraParameter::Usd => properties.insert(
                "usd".to_owned(),
                json!({
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "description": "Cost budget of the sub-agent, in dollars"
                }),
            ),
        };
    }
}

/// Parses the parameters of a call into its delegation.
pub(super) fn parse_into(
    delegation: &mut Delegation,
    extras: &BTreeSet<ExtraParameter>,
    arguments: &str,
) -> Result<(), Refusal> {
    if extras.is_empty() {
        return Ok(());
    }
    let value = crate::json::parse(arguments).map_err(|cause| cause.to_string())?;
    let (mut tokens, mut usd) = (None, None);
    for extra in extras {
        match (extra, value.get(extra.name())) {
            (_, None | Some(Value::Null)) => {}
            (ExtraParameter::Background, Some(Value::Bool(true))) => {
                delegation.execution = Execution::Background
            }
            (ExtraParameter::Background, Some(Value::Bool(false))) => {}
            (ExtraParameter::Background, Some(Value::String(word))) if word == "detach" => {
                delegation.execution = Execution::Detachable;
            }
            (ExtraParameter::Background, Some(_)) => {
                return Err("Invalid 'background' argument: expected true, false or \"detach\"".into());
            }
            (ExtraParameter::Schema, Some(schema @ Value::Object(_))) => {
                delegation.schema = Some(Text::from(schema.to_string()));
            }
            (ExtraParameter::Schema, Some(_)) => {
                return Err("Invalid 'schema' argument: expected a JSON Schema object".into());
            }
            (ExtraParameter::Tokens, Some(value)) => {
                let invalid = |cause| format!("Invalid 'tokens' argument: {cause}");
                tokens = Some(amount::tokens_from_value(value).map_err(invalid)?);
            }
            (ExtraParameter::Usd, Some(value)) => {
                let invalid = |cause| format!("Invalid 'usd' argument: {cause}");
                usd = Some(amount::dollars_from_value(value).map_err(invalid)?);
            }
        }
    }
    delegation.budget = Budget::of(tokens, usd).or(delegation.budget);
    Ok(())
}
