//! Layers of configuration, merged so that every value keeps its origin.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::project::ProjectConfig;
use super::{keys, raw, schema, servers};
use crate::error::CliError;

/// Merged values with their origins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layers {
    table: Table,
    origins: BTreeMap<Vec<String>, String>,
    /// File of the project, if one was added.
    project: Option<String>,
}

impl Layers {
    /// Layers with the default values only.
    pub(super) fn defaults() -> Result<Layers, CliError> {
        let table = raw::default_table().map_err(schema::unserializable)?;
        let mut layers = Layers::default();
        merge(&mut layers.table, table, &mut Vec::new(), "default", &mut layers.origins);
        Ok(layers)
    }

    /// Default values, with those of these sections.
    pub(super) fn only(self, sections: &[&str]) -> Result<Layers, CliError> {
        let mut layers = Layers::defaults()?;
        let is_kept = |section: &str| sections.contains(&section);
        layers.table.extend(self.table.into_iter().filter(|(key, _)| is_kept(key)));
        let origins = self.origins.into_iter();
        layers
            .origins
            .extend(origins.filter(|(path, _)| path.first().is_some_and(|section| is_kept(section))));
        Ok(layers)
    }

    /// All values.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Origin of each value.
    pub(crate) fn origins(&self) -> impl Iterator<Item = (String, &str)> {
        self.origins.iter().map(|(path, origin)| (path.join("."), origin.as_str()))
    }

    /// Origin of a value in a section; if there are several, the first.
    pub(super) fn origin(&self, section: &[&str]) -> &str {
        self.origins_in(section).next().map_or("config", String::as_str)
    }

    /// Whether any value of a section comes from the project.
    pub(super) fn is_from_project(&self, section: &[&str]) -> bool {
        self.project.is_some() && self.origins_in(section).any(|origin| Some(origin) == self.project.as_ref())
    }

    fn origins_in(&self, section: &[&str]) -> impl Iterator<Item = &String> {
        let is_inside = move |path: &[String]| {
            path.len() >= section.len() && path.iter().zip(section).all(|(a, b)| a == b)
        };
        self.origins.iter().filter(move |(path, _)| is_inside(path)).map(|(_, origin)| origin)
    }

    /// Adds `config.toml`, or `config.json` beside it.
    pub(super) fn add_file(&mut self, toml_file: &Path) -> Result<(), CliError> {
        match parse(toml_file, read)? {
            Some((table, origin)) => self.add(table, &origin),
            None => Ok(()),
        }
    }

    /// Adds the configuration of a trusted project. Its rules are added to those of the user, so a project cannot
    /// remove a restriction of the user.
    pub(super) fn add_project(&mut self, project: &ProjectConfig) -> Result<(), CliError> {
        let ProjectConfig { table, file } = project;
        let mut table = table.clone();
        let mut joined = Vec::new();
        self.project = Some(file.clone());
        // A server of the user keeps its name. A definition that replaces parts of it could send its keys elsewhere.
        if let Some(Value::Table(servers)) = table.get_mut("mcpServers")
            && let Some(Value::Table(user_servers)) = self.table.get("mcpServers")
        {
            servers.retain(|name, _| !user_servers.contains_key(name));
        }
        if let Some(Value::Table(servers)) = table.get_mut("acp").and_then(|acp| acp.get_mut("servers"))
            && let Some(Value::Table(user_servers)) = self.table.get("acp").and_then(|acp| acp.get("servers"))
        {
            servers.retain(|name, _| !user_servers.contains_key(name));
        }
        if let Some(Value::Table(rules)) = table.get_mut("permissions") {
            for (list, value) in rules.iter_mut() {
                let path = vec!["permissions".to_owned(), list.clone()];
                let (Some(before), Some(more)) = (self.rules(list), value.as_array_mut()) else { continue };
                more.retain(|rule| !before.contains(rule));
                more.splice(0..0, before);
                let origin = self.origins.get(&path).map_or("", String::as_str);
                joined.push((format!("{origin} and {file}"), path));
            }
        }
        self.add(table, file)?;
        self.origins.extend(joined.into_iter().map(|(origin, path)| (path, origin)));
        Ok(())
    }

    /// Rules of a list, if there are any.
    fn rules(&self, list: &str) -> Option<Vec<Value>> {
        let rules = self.table.get("permissions").and_then(|section| section.get(list));
        rules.and_then(Value::as_array).filter(|rules| !rules.is_empty()).cloned()
    }

    /// Adds variables such as `SWARM__MAX_DEPTH`.
    pub(super) fn add_environment(&mut self, variables: &[(String, String)]) -> Result<(), CliError> {
        for (name, text) in variables {
            let parts: Vec<String> = name.split("__").map(str::to_owned).collect();
            let path = keys::restore_case(&parts);
            let value = value(&path, text);
            self.add(nested(&path, value), &format!("BRIGADE_{name}"))?;
        }
        Ok(())
    }

    /// Adds `--set key=value`.
    pub(super) fn add_set(&mut self, settings: &[String]) -> Result<(), CliError> {
        for setting in settings {
            let Some((key, text)) = setting.split_once('=') else {
                return Err(CliError::usage(format!(
                    "--set {setting}: expected key=value, as in swarm.max_depth=2"
                )));
            };
            let path = key_path(key.trim())
                .ok_or_else(|| CliError::usage(format!("--set {setting}: '{key}' is not a valid key")))?;
            let value = value(&path, text);
            self.add(nested(&path, value), &format!("--set {key}"))?;
        }
        Ok(())
    }

    /// Adds the configuration of a task of `eval`.
    pub(super) fn add_task(&mut self, table: Table) -> Result<(), CliError> {
        self.add(table, "task")
    }

    /// Adds flags, or variables of other programs, that correspond to keys.
    pub(super) fn add_flags(
        &mut self,
        flags: Vec<(&'static str, &'static [&'static str], Value)>,
    ) -> Result<(), CliError> {
        for (flag, path, value) in flags {
            let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
            self.add(nested(&path, value), flag)?;
        }
        Ok(())
    }

    fn add(&mut self, table: Table, origin: &str) -> Result<(), CliError> {
        keys::check(&table).map_err(|problem| CliError::usage(format!("{origin}: {problem}")))?;
        merge(&mut self.table, table, &mut Vec::new(), origin, &mut self.origins);
        Ok(())
    }

    /// All values as TOML, each with its origin.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        self.render_section(&self.table, &mut Vec::new(), &mut text);
        text
    }

    fn render_section(&self, table: &Table, path: &mut Vec<String>, text: &mut String) {
        let (sections, values): (Vec<_>, Vec<_>) = table.iter().partition(|(_, value)| value.is_table());
        if !path.is_empty() && (!values.is_empty() || sections.is_empty()) {
            let quoted: Vec<String> = path.iter().map(|part| quoted(part)).collect();
            text.push_str(&format!("\n[{}]\n", quoted.join(".")));
        }
        for (key, value) in values {
            path.push(key.clone());
            let origin = self.origins.get(path).map_or("", String::as_str);
            text.push_str(&format!("{} = {value}  # from {}\n", quoted(key), crate::sanitize::line(origin)));
            path.pop();
        }
        for (key, value) in sections {
            if let Some(inner) = value.as_table() {
                path.push(key.clone());
                self.render_section(inner, path, text);
                path.pop();
            }
        }
    }

    /// Copy without the values of variables for other programs, which may be keys.
    pub(crate) fn without_secrets(&self) -> Layers {
        fn hide(table: &mut Table) {
            for (key, value) in table.iter_mut() {
                match value {
                    Value::Table(inner) if key == "env" || key == "headers" => {
                        inner.iter_mut().for_each(|(_, value)| *value = Value::String("(hidden)".to_owned()));
                    }
                    Value::Table(inner) => hide(inner),
                    _ => {}
                }
            }
        }
        let mut shown = self.clone();
        for section in ["mcpServers", "acp"] {
            if let Some(Value::Table(inner)) = shown.table.get_mut(section) {
                hide(inner);
            }
        }
        shown
    }
}

/// Parses `config.toml` or `config.json` beside it. Returns the values and the name of the file.
pub(super) fn parse(
    toml_file: &Path,
    read: impl Fn(&Path) -> Result<Option<String>, CliError>,
) -> Result<Option<(Table, String)>, CliError> {
    let json_file = toml_file.with_extension("json");
    let (file, table) = match (read(toml_file)?, read(&json_file)?) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            let names = format!("{} and {}", toml_file.display(), json_file.display());
            return Err(CliError::usage(format!("{names} both exist. Delete one of them.")));
        }
        (Some(text), None) => (toml_file, toml::from_str::<Table>(&text).map_err(CliError::usage)),
        (None, Some(text)) => (json_file.as_path(), from_json(&text)),
    };
    let origin = file.display().to_string();
    let mut table = table.map_err(|error| {
        let error = error.to_string();
        let failure = CliError::usage(format!("{origin}: {}", error.trim_end()));
        if error.contains("duplicate key") {
            return failure.hint("This table or key is already defined. Add the lines to the existing one.");
        }
        failure
    })?;
    servers::remove_ignored_keys(&mut table);
    Ok(Some((table, origin)))
}

fn read(file: &Path) -> Result<Option<String>, CliError> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        // A home that is a file has no configuration. The store reports that problem.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(None),
        Err(error) => {
            let failure = CliError::usage(format!("cannot read {}: {error}", file.display()));
            Err(match error.kind() {
                std::io::ErrorKind::PermissionDenied => failure.hint(
                    "If another Brigade started this one as a server, set `sandbox.mode = \"off\"` in the server's entry in its configuration.",
                ),
                _ => failure,
            })
        }
    }
}

pub(super) fn from_json(text: &str) -> Result<Table, CliError> {
    let value = brigade_core::json::parse(text).map_err(CliError::usage)?;
    let value =
        Value::try_from(value).map_err(|error| CliError::usage(format!("unsupported value: {error}")))?;
    match value {
        Value::Table(table) => Ok(table),
        _ => Err(CliError::usage("expected a JSON object with configuration keys")),
    }
}

/// Parses a dotted key. Names with spaces may be quoted as in TOML, or written as they are.
fn key_path(key: &str) -> Option<Vec<String>> {
    if key.is_empty() || key.contains('\n') {
        return None;
    }
    let mut path = Vec::new();
    let Ok(mut table) = toml::from_str::<Table>(&format!("{key} = 0")) else {
        let parts: Vec<String> = key.split('.').map(|part| part.trim().to_owned()).collect();
        return parts.iter().all(|part| !part.is_empty()).then_some(parts);
    };
    while let Some((part, value)) = std::mem::take(&mut table).into_iter().next() {
        path.push(part);
        if let Value::Table(inner) = value {
            table = inner;
        }
    }
    Some(path)
}

/// Parses a value from a flag or variable. For text keys it is the text itself; otherwise it is TOML, or text if it
/// is not valid TOML.
fn value(path: &[String], text: &str) -> Value {
    let plain = || Value::String(text.to_owned());
    if keys::is_text(path) {
        let quoted = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
        return if quoted { parsed(text).unwrap_or_else(plain) } else { plain() };
    }
    parsed(text).unwrap_or_else(plain)
}

fn parsed(text: &str) -> Option<Value> {
    let table: Table = toml::from_str(&format!("value = {}", text.trim())).ok()?;
    let mut entries = table.into_iter();
    match (entries.next(), entries.next()) {
        (Some((_, value)), None) => Some(value),
        _ => None,
    }
}

fn nested(path: &[String], value: Value) -> Table {
    let Some((first, rest)) = path.split_first() else { return Table::new() };
    let value = if rest.is_empty() { value } else { Value::Table(nested(rest, value)) };
    Table::from_iter([(first.clone(), value)])
}

fn merge(
    base: &mut Table,
    over: Table,
    path: &mut Vec<String>,
    origin: &str,
    origins: &mut BTreeMap<Vec<String>, String>,
) {
    for (key, value) in over {
        path.push(key.clone());
        match value {
            Value::Table(inner) => {
                let entry = base.entry(key).or_insert_with(|| Value::Table(Table::new()));
                if let Value::Table(existing) = entry {
                    merge(existing, inner, path, origin, origins);
                }
            }
            value => {
                base.insert(key, value);
                origins.insert(path.clone(), origin.to_owned());
            }
        }
        path.pop();
    }
}

pub(super) fn quoted(key: &str) -> String {
    let bare =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if bare { key.to_owned() } else { Value::String(key.to_owned()).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(settings: &[&str]) -> Result<Layers, CliError> {
        let mut layers = Layers::defaults()?;
        let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
        layers.add_set(&settings)?;
        Ok(layers)
    }

    #[test]
    fn later_layers_win_and_keep_their_origin() {
        let mut layers =
            set(&["swarm.max_depth=2", "swarm.roles.Security Auditor.tools=[\"read_file\"]"]).unwrap();
        layers
            .add_environment(&[("SWARM__MAX_DEPTH".into(), "3".into()), ("MODEL".into(), "7".into())])
            .unwrap();
        assert_eq!(layers.table["swarm"]["max_depth"].as_integer(), Some(3));
        assert_eq!(layers.table["model"].as_str(), Some("7"));
        let text = layers.render();
        assert!(text.contains("max_depth = 3  # from BRIGADE_SWARM__MAX_DEPTH"), "{text}");
        assert!(text.contains("max_concurrent = 3  # from default"), "{text}");
        assert!(text.contains("[swarm.roles.\"Security Auditor\"]"), "{text}");
        assert_eq!(toml::from_str::<Table>(&text).unwrap(), layers.table);
    }

    #[test]
    fn invalid_set_flag_is_refused() {
        for wrong in ["swarm.max_depth", "=1", "swarm.max_depth=two", "nothing=1", "swarm..x=1"] {
            assert!(set(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn value_cannot_inject_more_keys() {
        assert!(set(&["swarm.max_depth=2\nmodel='x'"]).is_err());
    }

    #[test]
    fn json_has_the_same_keys() {
        let table =
            from_json(r#"{"swarm": {"max_depth": 2, "roles": {"a": {"tools": ["read_file"]}}}}"#).unwrap();
        assert!(keys::check(&table).is_ok());
        assert!(from_json("[]").is_err());
        assert!(from_json(r#"{"model": "a", "model": "b"}"#).is_err(), "duplicate keys");
    }

    #[test]
    fn variables_of_other_programs_are_hidden() {
        let layers = set(&["mcpServers.files.env.TOKEN=\"secret\""]).unwrap();
        assert!(!layers.without_secrets().render().contains("secret"));
    }
}
