//! JSON Schema of the configuration, derived from the structs that read it.

use std::sync::LazyLock;

use brigade_core::delegation_styles::spawn::SpawnConfig;
use brigade_core::delegation_styles::subagent::SubagentConfig;
use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Value, json};

use super::raw::{self, RawConfig};
use super::servers;
use crate::error::CliError;

/// Schema of the keys. It is derived only if a key has to be explained or looked up.
pub(super) static KEYS: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let generator = settings.with_transform(RecursiveTransform(simplify)).into_generator();
    generator.into_root_schema_for::<RawConfig>().to_value()
});

/// Removes what configuration files cannot contain, and what does not matter to their users.
fn simplify(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else { return };
    // An optional value is absent, never null.
    if let Some(Value::Array(forms)) = object.get_mut("anyOf") {
        forms.retain(|form| form["type"] != "null");
        if let [Value::Object(only)] = forms.as_mut_slice() {
            let only = std::mem::take(only);
            object.remove("anyOf");
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
    if let Some(kind) = object.get("type").and_then(|kinds| kinds.get(0)).cloned() {
        object.insert("type".to_owned(), kind);
    }
    if let Some(Value::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    if object.remove("format").is_some_and(|format| format == "uint32") {
        object.entry("maximum").or_insert(u32::MAX.into());
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    // The effective defaults are added later. A list may name something twice.
    for key in ["default", "uniqueItems", "writeOnly"] {
        object.remove(key);
    }
}

/// JSON Schema in draft 2020-12. It accepts every valid configuration. It rejects invalid ones, except for what a
/// pattern cannot express, such as a rule for an unknown tool.
pub(crate) fn schema() -> Result<Value, CliError> {
    let defaults = raw::default_table().map(serde_json::to_value);
    let mut defaults = match defaults {
        Ok(Ok(defaults)) => defaults,
        Ok(Err(error)) => return Err(unserializable(error)),
        Err(error) => return Err(unserializable(error)),
    };
    // The default depends on whether a user can be asked.
    if let Some(permissions) = defaults["permissions"].as_object_mut() {
        permissions.remove("mode");
    }
    let mut schema = KEYS.clone();
    add_defaults(&mut schema, &defaults);
    // These sections are absent by default, but their keys have defaults.
    add_defaults(
        &mut schema,
        &json!({ "subagent": SubagentConfig::default(), "spawn": SpawnConfig::default() }),
    );
    let ignored = json!({ "description": "Used by other programs; ignored by Brigade." });
    for key in servers::IGNORED_TOP_LEVEL_KEYS {
        schema["properties"][key] = ignored.clone();
    }
    let server = &mut schema["properties"]["mcpServers"]["additionalProperties"]["properties"];
    for key in servers::IGNORED_SERVER_KEYS {
        server[key] = ignored.clone();
    }
    server[servers::ENABLED_KEY] = json!({ "type": "boolean", "description": "Opposite of `disabled`." });
    schema["title"] = json!("Configuration of brigade");
    schema["description"] =
        json!("config.toml or config.json; a project may set some of the keys in .brigade");
    Ok(schema)
}

/// Error for default values that have no TOML or JSON form.
pub(super) fn unserializable(error: impl std::fmt::Display) -> CliError {
    CliError::failed(format!("cannot serialize the default settings: {error}"))
}

fn add_defaults(section: &mut Value, defaults: &Value) {
    for (key, default) in defaults.as_object().into_iter().flatten() {
        let property = &mut section["properties"][key];
        match default {
            Value::Null => {}
            Value::Object(_) => add_defaults(property, default),
            default => property["default"] = default.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
