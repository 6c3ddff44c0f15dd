//! JSON Schema of the configuration, generated from the table of keys and the default values.

use brigade_core::permission::Mode;
use serde_json::{Map, Value, json};

use super::keys::{self, KeySpec, ValueKind};
use super::servers;
use crate::error::CliError;

/// Duration: a sequence of numbers with units, or seconds alone.
const DURATION_PATTERN: &str = r"^\s*([0-9]+|([0-9]+(ms|s|m|h))+)\s*$";
/// Amount of dollars.
const DOLLARS_PATTERN: &str = r"^\s*\$?([0-9]+\.?[0-9]*|\.[0-9]+)\s*$";
/// Permission rule: a tool, and optionally its arguments.
const RULE_PATTERN: &str = r"^\s*[a-z0-9_-]+\*?(\([\s\S]+\))?\s*$";
/// Provider and model.
const MODEL_PATTERN: &str = "^[^/]+/.+$";

/// Nano-dollars in a dollar.
const NANO_PER_DOLLAR: f64 = 1_000_000_000.0;

/// JSON Schema in draft 2020-12. It accepts every valid configuration. It rejects invalid ones, except for what a
/// pattern cannot express, such as a rule for an unknown tool.
pub(crate) fn schema() -> Result<Value, CliError> {
    let defaults = super::default_table(Mode::default())
        .map_err(|error| CliError::failed(format!("cannot serialize the default settings: {error}")))?;
    let mut defaults = serde_json::to_value(defaults).map_err(|error| {
        CliError::failed(format!("cannot serialize the default settings as JSON: {error}"))
    })?;
    // The default depends on whether a user can be asked.
    if let Some(permissions) = defaults.get_mut("permissions").and_then(Value::as_object_mut) {
        permissions.remove("mode");
    }
    let mut schema = section_schema(keys::ROOT, Some(&defaults));
    let ignored = json!({ "description": "Used by other programs; ignored by Brigade" });
    for key in servers::IGNORED_TOP_LEVEL_KEYS {
        schema["properties"][key] = ignored.clone();
    }
    let server = &mut schema["properties"]["mcpServers"]["additionalProperties"]["properties"];
    for key in servers::IGNORED_SERVER_KEYS {
        server[key] = ignored.clone();
    }
    server[servers::ENABLED_KEY] = json!({ "type": "boolean", "description": "Opposite of `disabled`" });
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of brigade");
    schema["description"] =
        json!("config.toml or config.json; a project may set some of the keys in .brigade");
    Ok(schema)
}

fn section_schema(known: &[KeySpec], defaults: Option<&Value>) -> Value {
    let mut properties = Map::new();
    for (name, kind, about) in known {
        let default = defaults.and_then(|defaults| defaults.get(name));
        let mut property = kind_schema(kind, default);
        property["description"] = json!(about);
        if let Some(default) = default.filter(|default| !default.is_object()) {
            property["default"] = default.clone();
        }
        properties.insert((*name).to_owned(), property);
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn kind_schema(kind: &ValueKind, default: Option<&Value>) -> Value {
    let text = || json!({ "type": "string" });
    let texts = || json!({ "type": "array", "items": text() });
    let number = |least: i64, most: i64| json!({ "type": "integer", "minimum": least, "maximum": most });
    let dollars = |most: f64| {
        let number = json!({ "type": "number", "minimum": 0, "maximum": most });
        json!([number, { "type": "string", "pattern": DOLLARS_PATTERN }])
    };
    let unlimited = || json!({ "const": keys::UNLIMITED });
    match kind {
        ValueKind::Text => text(),
        ValueKind::Texts => texts(),
        ValueKind::TextOrTexts => json!({ "anyOf": [text(), texts()] }),
        ValueKind::OneOf(words) => json!({ "enum": words }),
        ValueKind::Bool => json!({ "type": "boolean" }),
        ValueKind::Number => number(0, u32::MAX.into()),
        ValueKind::Positive => number(1, u32::MAX.into()),
        ValueKind::Count => json!({ "anyOf": [number(0, i64::MAX), unlimited()] }),
        ValueKind::Dollars => {
            let mut any = dollars(u64::MAX as f64 / NANO_PER_DOLLAR);
            any.as_array_mut().into_iter().for_each(|any| any.push(unlimited()));
            json!({ "anyOf": any })
        }
        ValueKind::Price => json!({ "anyOf": dollars(keys::MAX_PRICE_NANO_USD as f64 / NANO_PER_DOLLAR) }),
        ValueKind::Tokens => number(1, keys::MAX_TOKENS),
        // The second pattern rejects a duration of 0.
        ValueKind::Time => json!({ "anyOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "string", "pattern": DURATION_PATTERN, "allOf": [{ "pattern": "[1-9]" }] },
        ] }),
        ValueKind::Rules => {
            json!({ "type": "array", "items": { "type": "string", "pattern": RULE_PATTERN } })
        }
        ValueKind::Section(known) => section_schema(known, default),
        ValueKind::Named(inner) => {
            json!({ "type": "object", "additionalProperties": kind_schema(inner, None) })
        }
        ValueKind::Models(inner) => json!({
            "type": "object",
            "propertyNames": { "pattern": MODEL_PATTERN },
            "additionalProperties": kind_schema(inner, None),
        }),
    }
}
