//! The reference of the configuration keys in `docs/configuration.md`.

use std::path::Path;

use serde_json::Value;

use super::super::keys;
use super::schema;

const HEAD: &str = "\
# Configuration keys

Set keys in `config.toml` or `config.json`, in an environment variable, or with `--set KEY=VALUE`. Sources in order of
increasing precedence: configuration file, trusted project, environment variables, flags. A project can set only some
keys; its permission rules are added to yours, and it cannot replace your MCP and ACP servers. Values in variables and
in `--set` are TOML; strings need no quotes.

`brigade config show` prints all values and their origins; `brigade config schema` prints these keys as a JSON Schema.
NAME is a name of your choice. Names that are set by a variable are in lower case.

";

/// Name of a model. Shells do not permit it in the name of a variable.
const MODEL: &str = "\"PROVIDER/MODEL\"";

struct Reference {
    text: String,
    paths: Vec<Vec<String>>,
}

impl Reference {
    fn section(&mut self, section: &Value, path: &[&str]) {
        let properties = section["properties"].as_object().into_iter().flatten();
        // The schema also accepts keys of other programs.
        let is_ours = |key: &str| keys::find(&[path, &[key]].concat()).is_some();
        let keys: Vec<(&String, &Value, &str)> = properties
            .filter(|(key, _)| is_ours(key))
            .map(|(key, schema)| (key, schema, schema["description"].as_str().unwrap()))
            .collect();
        let is_section = |schema: &Value| schema["type"] == "object" && entry(schema).is_none();
        let is_leaf =
            |schema: &Value| !is_section(schema) && entry(schema).is_none_or(|entry| !is_section(entry));
        if keys.iter().any(|(_, schema, _)| is_leaf(schema)) {
            self.text.push_str(
                "| Key | Type | Default | Description | Environment variable |\n|---|---|---|---|---|\n",
            );
        }
        for (key, schema, description) in keys.iter().filter(|(_, schema, _)| is_leaf(schema)) {
            let path = [path, &[key.as_str()]].concat();
            let default = schema.get("default").map_or(String::new(), |default| format!("`{default}`"));
            let variable = match path.contains(&MODEL) {
                true => String::new(),
                false => format!("`BRIGADE_{}`", path.join("__").to_uppercase()),
            };
            let kind = keys::expected(schema).replace('|', "\\|");
            // The size of the integer type is no limit that users would reach.
            let kind =
                kind.replace(" from 0 to 4294967295", "").replace(" from 1 to 4294967295", " of at least 1");
            let key = path.join(".");
            self.text.push_str(&format!("| `{key}` | {kind} | {default} | {description} | {variable} |\n"));
            if !variable.is_empty() {
                self.paths.push(path.iter().map(|part| (*part).to_owned()).collect());
            }
        }
        for (key, schema, description) in keys.iter().filter(|(_, schema, _)| !is_leaf(schema)) {
            let (inner, names): (&Value, &[&str]) = match entry(schema) {
                Some(entry) if schema.get("propertyNames").is_some() => (entry, &[MODEL]),
                Some(entry) => (entry, &["NAME"]),
                None => (schema, &[]),
            };
            let path = [path, &[key.as_str()], names].concat();
            self.text.push_str(&format!("\n## `{}`\n\n{description}\n\n", path.join(".")));
            self.section(inner, &path);
        }
    }
}

/// Schema of the named entries of a section.
fn entry(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|entry| entry.is_object())
}

fn reference() -> Reference {
    let mut reference = Reference { text: HEAD.to_owned(), paths: Vec::new() };
    reference.section(&schema().unwrap(), &[]);
    reference
}

#[test]
fn documented_keys_match_the_structs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = reference().text;
    if std::fs::read_to_string(&page).ok().as_ref() != Some(&text) {
        std::fs::write(&page, text).unwrap();
        panic!("docs/configuration.md did not match the keys. It is regenerated now: review and commit it.");
    }
}

#[test]
fn documented_variables_set_their_key() {
    for path in reference().paths {
        let variable = path.join("__").to_uppercase();
        let parts: Vec<String> = variable.split("__").map(str::to_owned).collect();
        let found = keys::restore_case(&parts);
        let expected: Vec<String> =
            path.iter().map(|part| if part == "NAME" { "name".to_owned() } else { part.clone() }).collect();
        assert_eq!(found, expected, "BRIGADE_{variable}");
        assert!(keys::find(&found).is_some(), "{variable}");
    }
}
