//! `brigade tools add` and `remove`: edit `mcpServers` in the user's configuration.

use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};
use url::Url;

use super::ToolsAdd;
use crate::args::{Global, OutputFormat};
use crate::error::{CliError, Exit, unwritable};
use crate::output;
use crate::private_files;
use crate::sanitize;
use crate::settings::Settings;
use crate::summary::shell_quoted;

const SERVERS: &str = "mcpServers";
/// Longer names leave too few characters for the names of tools.
const MAX_NAME_CHARS: usize = 40;

/// Adds a server.
pub(super) fn add(global: &Global, add: &ToolsAdd) -> Result<Exit, CliError> {
    let name = &add.server;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(is_plain) || name.contains("__") {
        return Err(CliError::usage(format!(
            "cannot add '{}': invalid server name. Use 1 to {MAX_NAME_CHARS} letters, digits, `-` and single `_`.",
            sanitize::line(name)
        )));
    }
    if let Some(url) = &add.url {
        check_url(name, url)?;
    }
    let entry = entry(add);
    let mut config = ConfigFile::open(global, || {
        format!("Add this entry to `{SERVERS}` in config.json: \"{name}\": {}", as_json(add))
    })?;
    if let Some(known) = config.server(name) {
        return Err(CliError::usage(format!(
            "cannot add '{name}': `{SERVERS}.{known}` is already in {}. Remove it first: brigade tools remove {known}",
            config.shown()
        )));
    }
    append(&mut config.document, name, entry).map_err(|cause| config.unusable(cause))?;
    config.write()?;
    let hint = "List its tools with: brigade tools list --servers";
    report(
        global,
        &config,
        "added",
        name,
        &format!("Added the MCP server {name} to {}.", config.shown()),
        hint,
    )
}

/// Rejects a URL that no server can have. A URL with variables is checked when the server is started.
fn check_url(name: &str, text: &str) -> Result<(), CliError> {
    let is_http = |url: &Url| matches!(url.scheme(), "http" | "https");
    if text.contains("${") || Url::parse(text).is_ok_and(|url| is_http(&url)) {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "cannot add '{name}': `{}` is not an HTTP URL. Use a URL such as https://host/mcp.",
        sanitize::line(text)
    )))
}

/// Removes a server.
pub(super) fn remove(global: &Global, name: &str) -> Result<Exit, CliError> {
    let shown = sanitize::line(name);
    let mut config =
        ConfigFile::open(global, || format!("Remove the entry `{shown}` from `{SERVERS}` in config.json."))?;
    let Some(known) = config.server(name) else {
        let names = config.servers();
        let found = match names.is_empty() {
            true => "It has no servers.".to_owned(),
            false => format!("Its servers are {}.", sanitize::line(&names.join(", "))),
        };
        return Err(CliError::usage(format!(
            "cannot remove '{shown}': {} has no `{SERVERS}.{shown}`. {found} Servers of a project are in its .mcp.json or .brigade/config.toml.",
            config.shown()
        )));
    };
    remove_entry(&mut config.document, &known).map_err(|cause| config.unusable(cause))?;
    config.write()?;
    let done = format!("Removed the MCP server {} from {}.", sanitize::line(&known), config.shown());
    report(global, &config, "removed", &known, &done, "")
}

fn report(
    global: &Global,
    config: &ConfigFile,
    what: &str,
    server: &str,
    done: &str,
    hint: &str,
) -> Result<Exit, CliError> {
    match global.output_format {
        OutputFormat::Text => {
            output::text(done)?;
            if !hint.is_empty() {
                output::note(hint);
            }
        }
        OutputFormat::Json | OutputFormat::StreamJson => {
            output::json(&json!({ "type": what, "server": server, "file": config.file }))?;
        }
    }
    Ok(Exit::Done)
}

/// Configuration entry of a server.
fn entry(add: &ToolsAdd) -> Table {
    let mut entry = Table::new();
    if let Some(url) = &add.url {
        entry["url"] = value(url);
    }
    if let Some((program, arguments)) = add.command.split_first() {
        entry["command"] = value(program);
        if !arguments.is_empty() {
            entry["args"] = value(arguments.iter().collect::<Array>());
        }
    }
    if !add.env.is_empty() {
        entry["env"] = value(add.env.iter().map(|(name, text)| (name, text)).collect::<InlineTable>());
    }
    entry
}

/// Entry in the format of `config.json`.
fn as_json(add: &ToolsAdd) -> serde_json::Value {
    let mut entry = json!({});
    if let Some(url) = &add.url {
        entry["url"] = json!(url);
    }
    if let Some((program, arguments)) = add.command.split_first() {
        entry["command"] = json!(program);
        if !arguments.is_empty() {
            entry["args"] = json!(arguments);
        }
    }
    for (name, text) in &add.env {
        entry["env"][name] = json!(text);
    }
    entry
}

/// Appends an entry at the end of the file, below any comments.
fn append(document: &mut DocumentMut, name: &str, mut entry: Table) -> Result<(), &'static str> {
    let is_empty = document.is_empty();
    let last = last_position(document.as_table());
    let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
    let servers = document.entry(SERVERS).or_insert_with(|| {
        let mut servers = Table::new();
        servers.set_implicit(true);
        Item::Table(servers)
    });
    match servers {
        Item::Table(servers) => {
            let gap = if is_empty && trailing.is_empty() { "" } else { "\n" };
            let line_end = if trailing.is_empty() || trailing.ends_with('\n') { "" } else { "\n" };
            entry.decor_mut().set_prefix(format!("{trailing}{line_end}{gap}"));
            entry.set_position(Some(last + 1));
            servers.insert(name, Item::Table(entry));
            document.set_trailing("");
        }
        other => {
            let servers = other.as_inline_table_mut().ok_or("`mcpServers` is not a table")?;
            // The space before the closing brace would end up before a comma.
            let last = servers.iter_mut().last().map(|(_, last)| last.decor_mut());
            if let Some(decor) = last
                && decor.suffix().and_then(|suffix| suffix.as_str()).is_some_and(|suffix| suffix == " ")
            {
                decor.set_suffix("");
            }
            servers.insert(name, entry.into_inline_table().into());
        }
    }
    Ok(())
}

/// Removes an entry and the comment lines directly above it. Comments that are separated by an empty line stay.
fn remove_entry(document: &mut DocumentMut, name: &str) -> Result<(), &'static str> {
    let servers =
        document.get_mut(SERVERS).and_then(Item::as_table_like_mut).ok_or("`mcpServers` is not a table")?;
    let Some(Item::Table(entry)) = servers.remove(name) else { return Ok(()) };
    let prefix = entry.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    let kept = up_to_last_blank_line(prefix);
    if kept.trim().is_empty() {
        return Ok(());
    }
    let after = entry.position().unwrap_or(isize::MAX);
    match next_table(document.as_table_mut(), after) {
        Some(next) => {
            let next_prefix = next.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
            let joined = format!("{kept}{next_prefix}");
            next.decor_mut().set_prefix(joined);
        }
        None => {
            let joined = format!("{kept}{}", document.trailing().as_str().unwrap_or_default());
            document.set_trailing(joined);
        }
    }
    Ok(())
}

/// Text up to the last empty line.
fn up_to_last_blank_line(prefix: &str) -> &str {
    let mut end = 0;
    let mut at = 0;
    for line in prefix.split_inclusive('\n') {
        if line.trim().is_empty() {
            end = at;
        }
        at += line.len();
    }
    &prefix[..end]
}

fn last_position(table: &Table) -> isize {
    let below = table.iter().map(|(_, item)| match item {
        Item::Table(inner) => last_position(inner),
        Item::ArrayOfTables(inner) => inner.iter().map(last_position).max().unwrap_or_default(),
        _ => 0,
    });
    below.max().unwrap_or_default().max(table.position().unwrap_or_default())
}

/// First table after this position that has its own header.
fn next_table(table: &mut Table, after: isize) -> Option<&mut Table> {
    let mut next: Option<&mut Table> = None;
    for (_, item) in table.iter_mut() {
        let found = match item {
            Item::Table(inner) => {
                let is_candidate = !inner.is_dotted()
                    && !inner.is_implicit()
                    && inner.position().is_some_and(|at| at > after);
                if is_candidate { Some(inner) } else { next_table(inner, after) }
            }
            Item::ArrayOfTables(inner) => {
                inner.iter_mut().find(|table| table.position().is_some_and(|at| at > after))
            }
            _ => None,
        };
        let is_sooner = match (&found, &next) {
            (Some(found), Some(next)) => found.position() < next.position(),
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_sooner {
            next = found;
        }
    }
    next
}

/// The user's configuration file.
struct ConfigFile {
    file: PathBuf,
    document: DocumentMut,
}

impl ConfigFile {
    /// Reads `config.toml`. A `config.json` is not edited; the error says what to change in it.
    fn open(global: &Global, advice: impl Fn() -> String) -> Result<ConfigFile, CliError> {
        let file = Settings::load_defaults(global)?.config_file;
        let json_file = file.with_extension("json");
        if json_file.symlink_metadata().is_ok() {
            return Err(CliError::usage(format!(
                "cannot edit {}: this command edits only config.toml. {}",
                json_file.display(),
                sanitize::line(&advice())
            )));
        }
        // A symbolic link is kept, and its target is replaced.
        let file = file.canonicalize().unwrap_or(file);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(CliError::usage(format!("cannot read {}: {error}", file.display()))),
        };
        let document = text.parse::<DocumentMut>().map_err(|error| {
            CliError::usage(format!("cannot edit {}: {}", file.display(), error.to_string().trim_end()))
        })?;
        Ok(ConfigFile { file, document })
    }

    fn shown(&self) -> String {
        shell_quoted(&self.file.display().to_string())
    }

    fn unusable(&self, cause: &str) -> CliError {
        CliError::usage(format!("cannot edit {}: {cause}.", self.shown()))
    }

    fn servers(&self) -> Vec<String> {
        let servers = self.document.get(SERVERS).and_then(Item::as_table_like);
        servers.map_or_else(Vec::new, |servers| servers.iter().map(|(name, _)| name.to_owned()).collect())
    }

    /// Name of a server as it is written in the file. Names are compared without regard to case.
    fn server(&self, name: &str) -> Option<String> {
        self.servers().into_iter().find(|known| known.eq_ignore_ascii_case(name))
    }

    /// Writes the file atomically.
    fn write(&self) -> Result<(), CliError> {
        let failed = |error: std::io::Error| unwritable(&self.file, &error);
        let folder = self.file.parent().unwrap_or(Path::new("."));
        private_files::create_directory(folder).map_err(failed)?;
        let rights = match self.file.metadata() {
            Ok(found) => found.permissions(),
            Err(_) => Permissions::from_mode(0o600),
        };
        let mut new = tempfile::Builder::new().prefix(".config-").tempfile_in(folder).map_err(failed)?;
        new.write_all(self.document.to_string().as_bytes()).map_err(failed)?;
        new.as_file().set_permissions(rights).map_err(failed)?;
        new.as_file().sync_all().map_err(failed)?;
        new.persist(&self.file).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
# Mine.
model = \"ollama/qwen3\"   # local

[budget]
#usd = 2.50

# Files of this machine.
[mcpServers.files]
command = \"files\"
# args = [\"-v\"]

# Tickets, since spring.
[mcpServers.tickets]
url = \"https://tickets.example/mcp\"

[mcpServers.tickets.oauth]
clientId = \"x\"

[limits]
#lead_turns = 50
";

    fn added(config: &str, name: &str, command: &[&str]) -> String {
        let mut document: DocumentMut = config.parse().unwrap();
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let wanted = ToolsAdd { server: name.to_owned(), url: None, env: Vec::new(), command };
        append(&mut document, name, entry(&wanted)).unwrap();
        document.to_string()
    }

    fn removed(config: &str, name: &str) -> String {
        let mut document: DocumentMut = config.parse().unwrap();
        remove_entry(&mut document, name).unwrap();
        document.to_string()
    }

    #[test]
    fn append_adds_the_entry_at_the_end_only() {
        let lines = "\n[mcpServers.git]\ncommand = \"git-mcp\"\nargs = [\"--root\", \"a b\"]\n";
        let both = added(CONFIG, "git", &["git-mcp", "--root", "a b"]);
        assert_eq!(both, format!("{CONFIG}{lines}"));
        assert_eq!(removed(&both, "git"), CONFIG);
        assert_eq!(added("", "git", &["git-mcp"]), "[mcpServers.git]\ncommand = \"git-mcp\"\n");
        assert_eq!(
            added("# Nothing yet.", "git", &["g"]),
            "# Nothing yet.\n\n[mcpServers.git]\ncommand = \"g\"\n"
        );
        assert_eq!(added("model = 'm'", "git", &["g"]), "model = 'm'\n\n[mcpServers.git]\ncommand = \"g\"\n");
        assert_eq!(
            added("mcpServers = { a = { command = \"a\" } }\n", "git", &["g"]),
            "mcpServers = { a = { command = \"a\" }, git = { command = \"g\" } }\n"
        );
    }

    #[test]
    fn remove_entry_drops_only_its_own_comment() {
        let rest = CONFIG.replace(
            "\n# Tickets, since spring.\n[mcpServers.tickets]\nurl = \"https://tickets.example/mcp\"\n\n[mcpServers.tickets.oauth]\nclientId = \"x\"\n",
            "",
        );
        assert!(rest.contains("# args = [\"-v\"]\n\n[limits]"), "{rest}");
        assert_eq!(removed(CONFIG, "tickets"), rest);
        let last =
            "[mcpServers.a]\ncommand = \"a\"\n# args = []\n\n[mcpServers.b]\ncommand = \"b\"\n# the end\n";
        assert_eq!(removed(last, "b"), "[mcpServers.a]\ncommand = \"a\"\n# args = []\n# the end\n");
        assert_eq!(removed("[mcpServers.a]\ncommand = \"a\"\n", "a"), "");
        assert_eq!(removed("mcpServers.a.command = \"a\"\nmodel = \"m\"\n", "a"), "model = \"m\"\n");
    }
}
