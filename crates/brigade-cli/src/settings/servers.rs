//! Section `mcpServers`, and `.mcp.json` of a project.

use std::collections::BTreeMap;
use std::time::Duration;

use brigade::Secret;
use brigade::mcp::oauth::{GrantType, LoginSettings, OAuthClient};
use brigade::mcp::{
    DEFAULT_CALL_TIMEOUT, DEFAULT_START_TIMEOUT, HttpEndpoint, ServerConfig, ServerProblem, StdioCommand,
    Transport,
};
use brigade::sandbox::ServerOrigin;
use brigade_core::Hash;
use brigade_sandbox::GuardCommand;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;
use toml::{Table, Value};

use super::server_sandbox::{RawServerSandbox, ServerEntry, ServerKind};
use super::shell::BRIGADE_PREFIX;
use super::values::{InvalidValue, Time};
use super::{Settings, keys, layers};
use crate::error::CliError;

/// Variables of the user that a server gets by default.
const PASSED_VARIABLES: [&str; 2] = ["PATH", "HOME"];

/// Keys of other programs beside `mcpServers`, which are ignored.
pub(super) const IGNORED_TOP_LEVEL_KEYS: [&str; 2] = ["$schema", "inputs"];
/// Keys of other programs in a server entry, which are ignored: permissions are configured in Brigade's own section.
pub(super) const IGNORED_SERVER_KEYS: [&str; 21] = [
    "$schema",
    "alwaysAllow",
    "alwaysLoad",
    "auth",
    "autoApprove",
    "description",
    "dev",
    "disabledTools",
    "enabledTools",
    "excludeTools",
    "gallery",
    "icon",
    "includeTools",
    "inputs",
    "name",
    "note",
    "tools",
    "transportType",
    "trust",
    "version",
    "watchPaths",
];

/// Key of other programs with the opposite meaning of `disabled`.
pub(super) const ENABLED_KEY: &str = "enabled";

/// From this value on, a plain number is milliseconds, as other programs write it. Below it is seconds.
const MILLIS_THRESHOLD: u64 = 1_000;

/// Entry of a server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawMcpServer {
    /// Program to start.
    command: Option<String>,
    /// Arguments of the program.
    args: Vec<String>,
    /// Environment variables of the program.
    env: BTreeMap<String, String>,
    /// Directory in which the program starts; by default the working directory.
    cwd: Option<String>,
    /// URL of a remote server.
    url: Option<String>,
    /// HTTP headers of requests.
    headers: BTreeMap<String, String>,
    /// OAuth login, if the server requires one.
    oauth: RawLogin,
    /// Timeout of a call, by default 1m; a plain number means seconds below 1000, otherwise milliseconds.
    timeout: Option<CallTimeout>,
    /// Whether the server is disabled.
    disabled: bool,
    /// Sandbox of the program.
    sandbox: RawServerSandbox,
    /// Transport: stdio or http; by default derived from `command` and `url`.
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// Section `oauth` of a server.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawLogin {
    /// Id of a registered client, or the URL of a client metadata document.
    client_id: Option<String>,
    /// Secret of the client; preferably a variable such as ${CLIENT_SECRET}.
    client_secret: Option<String>,
    /// Scopes to request; by default those that the server names.
    scopes: Vec<String>,
    /// Login by you in a browser (authorization_code), or by the client with its secret (client_credentials).
    grant: Grant,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Grant {
    #[default]
    AuthorizationCode,
    ClientCredentials,
}

/// Timeout of a call, in seconds or, if it is a large plain number, in milliseconds.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "Json")]
#[schemars(inline, !try_from, transparent)]
struct CallTimeout(Time);

impl TryFrom<Json> for CallTimeout {
    type Error = InvalidValue;

    fn try_from(value: Json) -> Result<CallTimeout, InvalidValue> {
        let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
        match number {
            Some(millis) if millis >= MILLIS_THRESHOLD => {
                Ok(CallTimeout(Time(Duration::from_millis(millis))))
            }
            _ => value.try_into().map(CallTimeout),
        }
    }
}

/// Server whose variables are not expanded yet, so that their values are not kept longer than needed.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    raw: Hidden,
    /// Whether the server is disabled.
    pub(crate) is_disabled: bool,
    /// Whether any part of it comes from a project.
    is_from_project: bool,
}

/// Omits values that may contain keys from the debug output.
struct Hidden(RawMcpServer);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Resolves the section.
pub(super) fn resolve(raw: BTreeMap<String, RawMcpServer>, layers: &layers::Layers) -> Vec<Server> {
    let server = |(name, raw): (String, RawMcpServer)| {
        let is_from_project = layers.is_from_project(&["mcpServers", &name]);
        Server { name, is_disabled: raw.disabled, raw: Hidden(raw), is_from_project }
    };
    raw.into_iter().map(server).collect()
}

impl Settings {
    /// HTTP endpoint of a remote server, by its name.
    pub(crate) fn mcp_address(&self, name: &str, guard: &GuardCommand) -> Result<HttpEndpoint, CliError> {
        let Some(server) = self.servers.iter().find(|server| server.name.eq_ignore_ascii_case(name)) else {
            let names: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
            let available = match names.is_empty() {
                true => "No servers are configured".to_owned(),
                false => format!("Configured servers: {}", names.join(", ")),
            };
            return Err(CliError::usage(format!("unknown MCP server '{name}'. {available}")));
        };
        let wrong = |message: &str| CliError::usage(format!("MCP server '{}': {message}", server.name));
        match server.definition(self, guard).map_err(|problem| wrong(&problem.to_string()))?.transport {
            Transport::Http(address) => Ok(address),
            Transport::Stdio(_) => Err(wrong("it is a local program and needs no login")),
        }
    }

    /// Servers that can be started, and the problems of the others. Disabled servers are in neither list.
    pub(crate) fn mcp_definitions(&self, guard: &GuardCommand) -> (Vec<ServerConfig>, Vec<ServerProblem>) {
        let (mut definitions, mut problems) = (Vec::new(), Vec::new());
        for server in self.servers.iter().filter(|server| !server.is_disabled) {
            match server.definition(self, guard) {
                Ok(definition) => definitions.push(definition),
                Err(problem) => {
                    let (server, message) = (server.name.clone(), problem.to_string());
                    problems.push(ServerProblem { server, message });
                }
            }
        }
        (definitions, problems)
    }
}

impl Server {
    fn definition(&self, settings: &Settings, guard: &GuardCommand) -> Result<ServerConfig, CliError> {
        let Hidden(RawMcpServer {
            command,
            args,
            env,
            cwd,
            url,
            headers,
            oauth,
            timeout,
            disabled: _,
            sandbox,
            kind,
        }) = &self.raw;
        let fill = |text: &str| expand_variables(text, |name| variable(name, self.is_from_project, settings));
        let pairs = |pairs: &BTreeMap<String, String>| -> Result<Vec<(String, Secret)>, CliError> {
            pairs.iter().map(|(name, value)| Ok((name.clone(), Secret::new(fill(value)?)))).collect()
        };
        let transport = match (kind.as_deref(), command, url) {
            (Some("sse"), ..) => {
                return Err(CliError::usage(
                    "the SSE transport is not supported. Use the streamable HTTP URL of the server and set \
                     `type = \"http\"`.",
                ));
            }
            (_, Some(_), Some(_)) => {
                return Err(CliError::usage("both `command` and `url` are set. Remove one of them."));
            }
            (_, None, None) => {
                return Err(CliError::usage("neither `command` nor `url` is set. Set one of them."));
            }
            (_, Some(command), None) => {
                let mut environment = passed_variables(settings, env);
                environment.extend(pairs(env)?);
                let folder = cwd.as_deref().map(&fill).transpose()?.unwrap_or_default();
                let command = fill(command)?;
                let origin = if self.is_from_project { ServerOrigin::Project } else { ServerOrigin::User };
                let entry = ServerEntry { kind: ServerKind::Mcp, origin, command: &command, guard };
                Transport::Stdio(StdioCommand {
                    guard: guard.clone(),
                    directory: settings.folder.join(folder),
                    sandbox: sandbox.resolve(entry, settings)?,
                    command,
                    arguments: args.iter().map(|word| fill(word)).collect::<Result<_, _>>()?,
                    environment,
                })
            }
            (_, None, Some(url)) => {
                let url = fill(url)?;
                let login = self.login(oauth, &url, fill, settings)?;
                let headers = pairs(headers)?;
                let proxies = settings.environment.proxies();
                Transport::Http(HttpEndpoint { url: Secret::new(url), headers, login, proxies })
            }
        };
        Ok(ServerConfig {
            name: self.name.clone(),
            transport,
            call_timeout: timeout.map_or(DEFAULT_CALL_TIMEOUT, |CallTimeout(Time(time))| time),
            start_timeout: DEFAULT_START_TIMEOUT,
        })
    }

    /// Login settings. A login belongs to the name and the address of a server, so changing either one does not reuse
    /// a login that was meant for another server.
    fn login(
        &self,
        raw: &RawLogin,
        url: &str,
        fill: impl Fn(&str) -> Result<String, CliError>,
        settings: &Settings,
    ) -> Result<LoginSettings, CliError> {
        let RawLogin { client_id, client_secret, scopes, grant } = raw;
        let name = self.name.to_ascii_lowercase();
        let file = format!("{}.json", Hash::of(format!("{name}\n{url}").as_bytes()));
        let client = match client_id {
            Some(id) => {
                let secret = client_secret.as_deref().map(&fill).transpose()?;
                Some(OAuthClient { id: fill(id)?, secret: secret.map(Secret::new) })
            }
            None => None,
        };
        Ok(LoginSettings {
            file: Some(settings.logins.join(file)),
            grant_type: match grant {
                Grant::AuthorizationCode => GrantType::AuthorizationCode,
                Grant::ClientCredentials => GrantType::ClientCredentials,
            },
            client,
            scopes: scopes.clone(),
            hint: format!("run: brigade tools login {}", self.name),
        })
    }
}

/// Variables that a program gets by default, except those that it is given.
pub(super) fn passed_variables(
    settings: &Settings,
    given: &BTreeMap<String, String>,
) -> Vec<(String, Secret)> {
    let passed = PASSED_VARIABLES.iter().filter(|name| !given.contains_key(**name));
    let value = |name: &str| Some((name.to_owned(), Secret::new(settings.environment.variable(name)?)));
    passed.filter_map(|name| value(name)).collect()
}

/// Variable that a definition names. A project may not use the keys of model providers.
pub(super) fn variable(
    name: &str,
    is_from_project: bool,
    settings: &Settings,
) -> Result<Option<String>, CliError> {
    let is_ours = name.starts_with(BRIGADE_PREFIX) || settings.has_key_in(name);
    if is_from_project && is_ours {
        return Err(CliError::usage(format!(
            "a project cannot use the variable {name}. Define the server in your own configuration."
        )));
    }
    Ok(settings.environment.variable(name))
}

/// Expands `${NAME}` and `${NAME:-otherwise}`.
pub(super) fn expand_variables(
    text: &str,
    variable: impl Fn(&str) -> Result<Option<String>, CliError>,
) -> Result<String, CliError> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, remaining)) = after.split_once('}') else { break };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let value = variable(name)?.filter(|value| !value.is_empty() || default.is_none());
        let value = value.or_else(|| default.map(str::to_owned));
        let value = value.ok_or_else(|| CliError::usage(format!(
                "cannot expand ${{{name}}}: the variable is not set. Set it, or write a default as in ${{{name}:-VALUE}}."
            )))?;
        whole.push_str(before);
        whole.push_str(&value);
        rest = remaining;
    }
    whole.push_str(rest);
    Ok(whole)
}

/// Servers of `.mcp.json` in the form of our own configuration. Unknown keys are ignored, except those that look like
/// a typo of ours.
pub(super) fn from_mcp_json(text: &str) -> Result<Table, CliError> {
    let mut table = layers::from_json(text)?;
    remove_ignored_keys(&mut table);
    let Some(servers) = table.remove("mcpServers") else { return Ok(Table::new()) };
    let Value::Table(mut servers) = servers else {
        return Err(CliError::usage("`mcpServers` must be an object with one entry per server"));
    };
    for (name, server) in &mut servers {
        let Value::Table(server) = server else {
            return Err(CliError::usage(format!("`mcpServers.{name}` must be an object")));
        };
        let is_known = |key: &str| keys::find(&["mcpServers", name, key]).is_some();
        server.retain(|key, _| is_known(key) || keys::is_typo(&["mcpServers", name], key));
        if let Some(Value::Table(login)) = server.get_mut("oauth") {
            login.retain(|key, _| keys::find(&["mcpServers", name, "oauth", key]).is_some());
        }
        if let Some(Value::Table(sandbox)) = server.get_mut("sandbox") {
            sandbox.retain(|key, _| keys::find(&["mcpServers", name, "sandbox", key]).is_some());
        }
    }
    Ok(Table::from_iter([("mcpServers".to_owned(), Value::Table(servers))]))
}

/// Removes keys that other programs write beside servers and into their entries.
pub(super) fn remove_ignored_keys(table: &mut Table) {
    table.retain(|key, _| !IGNORED_TOP_LEVEL_KEYS.contains(&key));
    let Some(Value::Table(servers)) = table.get_mut("mcpServers") else { return };
    for (_, server) in servers {
        if let Value::Table(server) = server {
            server.retain(|key, _| !IGNORED_SERVER_KEYS.contains(&key));
            if let Some(Value::Boolean(enabled)) = server.get(ENABLED_KEY) {
                let disabled = Value::Boolean(!enabled);
                server.remove(ENABLED_KEY);
                server.entry("disabled").or_insert(disabled);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_once() {
        let variable = |name: &str| match name {
            "A" => Ok(Some("one".to_owned())),
            "LOOP" => Ok(Some("${A}".to_owned())),
            "EMPTY" => Ok(Some(String::new())),
            "KEY" => Err(CliError::usage("no")),
            _ => Ok(None),
        };
        let expand_variables =
            |text: &str| expand_variables(text, variable).map_err(|problem| problem.to_string());
        assert_eq!(expand_variables("x ${A}${A}!"), Ok("x oneone!".to_owned()));
        assert_eq!(expand_variables("${LOOP} $A ${"), Ok("${A} $A ${".to_owned()));
        assert_eq!(expand_variables("${B:-two} ${EMPTY:-three} ${EMPTY}"), Ok("two three ".to_owned()));
        assert_eq!(expand_variables("${KEY}"), Err("no".to_owned()));
        assert_eq!(
            expand_variables("${B}"),
            Err("cannot expand ${B}: the variable is not set. Set it, or write a default as in ${B:-VALUE}."
                .to_owned())
        );
    }

    #[test]
    fn mcp_json_of_other_programs_is_read() {
        let text = r#"{"$schema": "x", "inputs": [], "mcpServers": {"a": {"type": "stdio", "command": "x",
            "args": ["y"], "disabled": true, "autoApprove": ["z"], "of_some_program": 1, "oauth": {"callbackPort": 1},
            "timeout": 90000}, "b": {"url": "http://x", "enabled": false}}}"#;
        let table = from_mcp_json(text).unwrap();
        assert!(keys::check(&table).is_ok());
        assert_eq!(table["mcpServers"]["a"]["disabled"].as_bool(), Some(true));
        assert!(table["mcpServers"]["a"].get("autoApprove").is_none());
        assert!(table["mcpServers"]["a"].get("of_some_program").is_none());
        assert_eq!(table["mcpServers"]["b"]["disabled"].as_bool(), Some(true));
        assert!(from_mcp_json("{}").unwrap().is_empty());
        for wrong in ["[]", r#"{"mcpServers": []}"#, r#"{"mcpServers": {"a": 1}}"#, r#"{"a": 1, "a": 2}"#] {
            assert!(from_mcp_json(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn typo_is_not_taken_for_an_unknown_key() {
        let table = from_mcp_json(r#"{"mcpServers": {"a": {"comand": "x"}}}"#).unwrap();
        let message = keys::check(&table).unwrap_err().to_string();
        assert!(message.contains("`mcpServers.a.comand`. Did you mean `mcpServers.a.command`?"), "{message}");
        for key in IGNORED_SERVER_KEYS.into_iter().chain([ENABLED_KEY]) {
            assert!(keys::find(&["mcpServers", "a", key]).is_none(), "{key} is ours");
        }
    }

    #[test]
    fn large_number_is_milliseconds() {
        let time = |value: Json| {
            let CallTimeout(Time(time)) = value.try_into().unwrap();
            time
        };
        assert_eq!(time(60_000.into()), Duration::from_secs(60));
        assert_eq!(time(1_000.into()), Duration::from_secs(1));
        assert_eq!(time(999.into()), Duration::from_secs(999));
        assert_eq!(time("60000".into()), Duration::from_secs(60));
        assert_eq!(time("3600s".into()), Duration::from_secs(3600));
        assert!(CallTimeout::try_from(Json::from(-60_000)).is_err());
    }
}
