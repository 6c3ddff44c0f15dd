//! The JSON Schema of the configuration, made from the table of keys and the table of defaults.

use brigade_core::permission::Mode;
use serde_json::{Map, Value, json};

use super::keys::{self, Key, Kind};
use super::servers;
use crate::failure::Failure;

/// A duration: units one after the other, or seconds alone.
const TIME: &str = r"^\s*([0-9]+|([0-9]+(ms|s|m|h))+)\s*$";
/// An amount of dollars.
const DOLLARS: &str = r"^\s*\$?([0-9]+\.?[0-9]*|\.[0-9]+)\s*$";
/// A permission rule: a tool, and perhaps what it is called with.
const RULE: &str = r"^\s*[a-z0-9_-]+\*?(\([\s\S]+\))?\s*$";
/// A provider and a model of it.
const MODEL: &str = "^[^/]+/.+$";

/// Nano-dollars in a dollar.
const NANO: f64 = 1_000_000_000.0;

/// The schema, in draft 2020-12. Whatever the settings take fits it, and what fits it they take but for what a pattern
/// cannot say, such as a rule for a tool that does not exist.
pub(crate) fn schema() -> Result<Value, Failure> {
    let defaults = super::default_table(Mode::default())
        .map_err(|error| Failure::failed(format!("the defaults: {error}")))?;
    let mut defaults = serde_json::to_value(defaults)
        .map_err(|error| Failure::failed(format!("the defaults cannot be written as JSON: {error}")))?;
    // It depends on whether somebody is there.
    if let Some(permissions) = defaults.get_mut("permissions").and_then(Value::as_object_mut) {
        permissions.remove("mode");
    }
    let mut schema = section(keys::ROOT, Some(&defaults));
    let of_others = json!({ "description": "Of other programs; it says nothing here" });
    for key in servers::BESIDE {
        schema["properties"][key] = of_others.clone();
    }
    let server = &mut schema["properties"]["mcpServers"]["additionalProperties"]["properties"];
    for key in servers::PASSED_OVER {
        server[key] = of_others.clone();
    }
    server[servers::ENABLED] = json!({ "type": "boolean", "description": "The opposite of disabled" });
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of brigade");
    schema["description"] = json!("config.toml or config.json; a project may set a part of it in .brigade");
    Ok(schema)
}

fn section(known: &[Key], defaults: Option<&Value>) -> Value {
    let mut properties = Map::new();
    for (name, kind, about) in known {
        let default = defaults.and_then(|defaults| defaults.get(name));
        let mut property = of_kind(kind, default);
        property["description"] = json!(about);
        if let Some(default) = default.filter(|default| !default.is_object()) {
            property["default"] = default.clone();
        }
        properties.insert((*name).to_owned(), property);
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn of_kind(kind: &Kind, default: Option<&Value>) -> Value {
    let text = || json!({ "type": "string" });
    let texts = || json!({ "type": "array", "items": text() });
    let number = |least: i64, most: i64| json!({ "type": "integer", "minimum": least, "maximum": most });
    let dollars = |most: f64| {
        let number = json!({ "type": "number", "minimum": 0, "maximum": most });
        json!([number, { "type": "string", "pattern": DOLLARS }])
    };
    let unlimited = || json!({ "const": keys::UNLIMITED });
    match kind {
        Kind::Text => text(),
        Kind::Texts => texts(),
        Kind::TextOrTexts => json!({ "anyOf": [text(), texts()] }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Number => number(0, u32::MAX.into()),
        Kind::Positive => number(1, u32::MAX.into()),
        Kind::Count => json!({ "anyOf": [number(0, i64::MAX), unlimited()] }),
        Kind::Dollars => {
            let mut any = dollars(u64::MAX as f64 / NANO);
            any.as_array_mut().into_iter().for_each(|any| any.push(unlimited()));
            json!({ "anyOf": any })
        }
        Kind::Price => json!({ "anyOf": dollars(keys::MOST_PRICE as f64 / NANO) }),
        Kind::Tokens => number(1, keys::MOST_TOKENS),
        // The second pattern keeps out what leaves no time.
        Kind::Time => json!({ "anyOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "string", "pattern": TIME, "allOf": [{ "pattern": "[1-9]" }] },
        ] }),
        Kind::Rules => json!({ "type": "array", "items": { "type": "string", "pattern": RULE } }),
        Kind::Section(known) => section(known, default),
        Kind::Named(inner) => json!({ "type": "object", "additionalProperties": of_kind(inner, None) }),
        Kind::Models(inner) => json!({
            "type": "object",
            "propertyNames": { "pattern": MODEL },
            "additionalProperties": of_kind(inner, None),
        }),
    }
}
