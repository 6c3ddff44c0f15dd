//! Configuration layer of a trusted project.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::{SCRIPT_PREFIX, keys, layers, servers};
use crate::error::CliError;
use crate::trust::{FileContent, MCP_FILE, ProjectFiles};

const MCP_SERVERS: &str = "mcpServers";

/// Keys that a project may set. All others, including future ones, can be set only by the user:
///
/// - `providers`: a server of the project would receive the user's keys, by the names of their variables.
/// - `prices`: a model that looks cheaper than it is would exceed the user's budget.
/// - `store`: sessions would be stored or searched where the user does not expect them.
/// - `notify`: a program would be started without approval on every run.
/// - `shell`: commands would get the user's secrets.
/// - `sandbox`: commands would reach what the user hides from them.
/// - `agents`: its paths lead to files that the hash of the project does not cover.
///
/// Permissions, including the mode `auto`, and servers to start are allowed: `brigade trust` shows them before they
/// take effect. The rules of a project are added to those of the user and cannot remove one.
const ALLOWED_KEYS: [&str; 12] = [
    "model",
    "fallbacks",
    "default_agent",
    "delegation",
    "swarm",
    "subagent",
    "spawn",
    "budget",
    "limits",
    "permissions",
    MCP_SERVERS,
    "acp",
];

/// Checked configuration of a project.
#[derive(Debug)]
pub(crate) struct ProjectConfig {
    pub(crate) table: Table,
    /// File that contains them.
    pub(crate) file: String,
}

impl ProjectConfig {
    /// Reads `.brigade/config.toml` or `.brigade/config.json`, and `.mcp.json`, from the files of a project as they
    /// were hashed.
    pub(crate) fn read(root: &Path, files: &ProjectFiles) -> Result<Option<ProjectConfig>, CliError> {
        let text = |file: &Path| {
            let found = file.strip_prefix(root).ok().and_then(|path| files.get(path));
            let wrong = |problem: &str| CliError::usage(format!("{} {problem}", file.display()));
            match found {
                None => Ok(None),
                Some(FileContent::File(bytes)) => match std::str::from_utf8(bytes) {
                    Ok(text) => Ok(Some(text.to_owned())),
                    Err(_) => Err(wrong("is not valid UTF-8")),
                },
                Some(FileContent::Link(_)) => Err(wrong(
                    "is a symbolic link, and links are not followed. Replace it with the file itself",
                )),
                Some(FileContent::Other(_)) => Err(wrong("is not a regular file")),
            }
        };
        let (mut table, mut file) =
            layers::parse(&root.join(".brigade/config.toml"), text)?.unwrap_or_default();
        let mcp_file = root.join(MCP_FILE);
        if let Some(text) = text(&mcp_file)? {
            let mcp_file = mcp_file.display().to_string();
            let found = servers::from_mcp_json(&text);
            let found = found.map_err(|problem| CliError::usage(format!("{mcp_file}: {problem}")))?;
            keys::check(&found).map_err(|problem| CliError::usage(format!("{mcp_file}: {problem}")))?;
            file = if file.is_empty() { mcp_file } else { format!("{file} and {mcp_file}") };
            add_servers(&mut table, found);
        }
        if file.is_empty() {
            return Ok(None);
        }
        keys::check(&table).map_err(|problem| CliError::usage(format!("{file}: {problem}")))?;
        if let Some(key) = table.keys().find(|key| !ALLOWED_KEYS.contains(&key.as_str())) {
            return Err(CliError::usage(format!(
                "{file}: a project cannot set `{key}`. Move it to your own configuration \
                 (`brigade config show` names the file)"
            )));
        }
        resolve_script_paths(&mut table, root);
        Ok(Some(ProjectConfig { table, file }))
    }

    /// Every key with its value, for display.
    pub(crate) fn values(&self) -> Vec<(String, &Value)> {
        fn collect<'a>(table: &'a Table, path: &str, values: &mut Vec<(String, &'a Value)>) {
            for (key, value) in table {
                let key = layers::quoted(key);
                let key = if path.is_empty() { key } else { format!("{path}.{key}") };
                match value {
                    Value::Table(inner) if !inner.is_empty() => collect(inner, &key, values),
                    value => values.push((key, value)),
                }
            }
        }
        let mut values = Vec::new();
        collect(&self.table, "", &mut values);
        values
    }
}

/// Adds servers that the configuration does not name itself.
fn add_servers(table: &mut Table, found: Table) {
    let Some(Value::Table(found)) = found.into_iter().next().map(|(_, servers)| servers) else { return };
    let section = table.entry(MCP_SERVERS).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(servers) = section {
        for (name, server) in found {
            servers.entry(name).or_insert(server);
        }
    }
}

/// Resolves the paths of scripts that a project names against its folder, independent of the current folder.
fn resolve_script_paths(table: &mut Table, root: &Path) {
    for (key, value) in table {
        match value {
            Value::Table(inner) => resolve_script_paths(inner, root),
            Value::String(text) if key == "model" => resolve_script_path(text, root),
            Value::Array(names) if key == "fallbacks" => {
                for name in names {
                    if let Value::String(text) = name {
                        resolve_script_path(text, root);
                    }
                }
            }
            _ => {}
        }
    }
}

fn resolve_script_path(model: &mut String, root: &Path) {
    if let Some(path) = model.strip_prefix(SCRIPT_PREFIX).map(PathBuf::from)
        && let Some(path) = root.join(path).to_str()
    {
        *model = format!("{SCRIPT_PREFIX}{path}");
    }
}
