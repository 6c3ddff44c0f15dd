//! The library's MCP client for the conformance suite: a program that connects to the given server, uses
//! everything that it offers, and logs in if required.

#![expect(clippy::unwrap_used, reason = "this is part of the tests")]
#![expect(
    clippy::disallowed_methods,
    reason = "this is a program of its own, with an environment and an exit code"
)]
#![expect(clippy::print_stderr, reason = "the suite keeps what it says")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use brigade::Secret;
use brigade::mcp::oauth::{GrantType, LoginFlow, LoginSettings, OAuthClient};
use brigade::mcp::{HttpEndpoint, ServerConfig, Servers, Transport};
use brigade::tool::{AnyTool, Files, ProgressReporter, RemoteLoan, ToolContext, Workspace};
use brigade_core::permission::Permissions;
use brigade_core::{CallId, RemoteContext, SessionId, ToolOutput};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

/// Maximum number of logins.
const MAX_LOGINS: usize = 3;
/// Message of the client when the user has to act.
const LOGIN_HINT: &str = "log in, please";

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let mut client = Person::new(folder);
    let outcome = client.call_all_tools().await;
    if let Err(why) = &outcome {
        eprintln!("{why}");
    }
    std::process::exit(i32::from(outcome.is_err()));
}

/// A user of a server, who may log in to it.
struct Person {
    folder: TempDir,
    address: HttpEndpoint,
    context: Value,
    logins: usize,
}

impl Person {
    fn new(folder: TempDir) -> Person {
        let url = std::env::args().next_back().unwrap();
        let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
        let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
        let context: Value = serde_json::from_str(&context).unwrap_or_default();
        let text = |key: &str| context[key].as_str().map(str::to_owned);
        let client = match scenario.as_str() {
            "auth/basic-cimd" => Some("https://conformance-test.local/client-metadata.json".to_owned()),
            _ => text("client_id"),
        };
        let login = LoginSettings {
            file: Some(folder.path().join("login.json")),
            grant_type: if scenario.starts_with("auth/client-credentials") {
                GrantType::ClientCredentials
            } else {
                GrantType::AuthorizationCode
            },
            client: client.map(|id| OAuthClient { id, secret: text("client_secret").map(Secret::new) }),
            scopes: Vec::new(),
            hint: LOGIN_HINT.to_owned(),
        };
        let address = HttpEndpoint {
            url: Secret::new(url),
            headers: Vec::new(),
            login,
            proxies: brigade::model::Proxies::default(),
        };
        Person { folder, address, context, logins: 0 }
    }

    /// Connects and calls every tool, including those that appear after a login.
    async fn call_all_tools(&mut self) -> Result<(), String> {
        let mut servers = self.connect().await?;
        let calls = self.calls(&servers);
        for (tool, arguments) in calls {
            loop {
                let output = self.call(&servers, &tool, arguments.clone()).await?;
                eprintln!("{tool}: {}", output.text);
                if !output.is_error() || !output.text.as_str().contains(LOGIN_HINT) {
                    break;
                }
                self.log_in().await?;
                servers = self.connect().await?;
            }
        }
        Ok(())
    }

    async fn connect(&mut self) -> Result<Servers, String> {
        loop {
            let definition = ServerConfig {
                name: "s".to_owned(),
                transport: Transport::Http(self.address.clone()),
                call_timeout: Duration::from_secs(10),
                start_timeout: Duration::from_secs(20),
            };
            let servers = Servers::start(vec![definition]).await;
            for problem in servers.problems() {
                eprintln!("{problem}");
            }
            match servers.problems().iter().any(|problem| problem.message.contains(LOGIN_HINT)) {
                true => self.log_in().await?,
                false if servers.tools().is_empty() && !servers.problems().is_empty() => {
                    return Err("the server cannot be used".to_owned());
                }
                false => return Ok(servers),
            }
        }
    }

    /// Logs in as a user who accepts everything.
    async fn log_in(&mut self) -> Result<(), String> {
        if self.logins == MAX_LOGINS {
            return Err("that is enough".to_owned());
        }
        self.logins += 1;
        let attempt = LoginFlow::begin(&self.address).await.map_err(|error| error.to_string())?;
        let url = attempt.url().to_owned();
        let browser = tokio::task::spawn_blocking(move || follow_redirects(&url));
        let finished = tokio::time::timeout(Duration::from_secs(10), attempt.finish()).await;
        finished.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        browser.await.map_err(|error| error.to_string())
    }

    /// The calls to make: those that the suite requests, or every tool once.
    fn calls(&self, servers: &Servers) -> Vec<(String, Value)> {
        if let Some(calls) = self.context["toolCalls"].as_array() {
            let named = |call: &Value| {
                let tool = format!("mcp__s__{}", call["name"].as_str().unwrap_or_default().to_lowercase());
                (tool, call["arguments"].clone())
            };
            return calls.iter().map(named).collect();
        }
        let mut calls = Vec::new();
        for tool in servers.tools() {
            let spec = tool.spec();
            match spec.name.as_str() {
                "mcp__s__json_schema_echo" => {
                    let other = servers.tools().iter().find(|other| other.spec().name != spec.name);
                    calls.push((
                        spec.name.clone(),
                        json!({ "schema": other.map(|other| &other.spec().schema) }),
                    ));
                }
                "mcp__s__read_resource" => {
                    calls.push((spec.name.clone(), json!({})));
                    calls.push((spec.name.clone(), json!({ "uri": "file:///path/to/file%20name.txt" })));
                }
                "mcp__s__get_prompt" => {
                    calls.push((spec.name.clone(), json!({})));
                    calls.push((spec.name.clone(), json!({ "name": "test_prompt" })));
                }
                _ => calls.push((spec.name.clone(), Value::Object(sample_arguments(&spec.schema)))),
            }
        }
        calls
    }

    async fn call(&self, servers: &Servers, tool: &str, arguments: Value) -> Result<ToolOutput, String> {
        let found: Option<&Arc<dyn AnyTool>> = servers.tools().iter().find(|found| found.spec().name == tool);
        let Some(found) = found else { return Ok(ToolOutput::error(format!("no {tool}"))) };
        let (_stop, stopped) = watch::channel(false);
        let workspace = Workspace::open(self.folder.path()).map_err(|error| error.to_string())?;
        let context = ToolContext {
            session: SessionId::root(7),
            call: CallId { turn: 1, index: 0 },
            files: Files::new(workspace, Arc::new(Permissions::default()), [String::new()].into()),
            shell: None,
            sandbox: brigade::sandbox::CommandSandbox::none(),
            stop: stopped,
            remote_context: RemoteContext::default(),
            loan: RemoteLoan::default(),
            hosts: brigade::tool::HostAsker::default(),
            progress: ProgressReporter::default(),
            seen: brigade::tool::SeenSlot::default(),
        };
        Ok(found.run(arguments, &context).await)
    }
}

/// Creates arguments that match a schema.
fn sample_arguments(schema: &Value) -> Map<String, Value> {
    let mut arguments = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = match property["type"].as_str() {
            Some("number" | "integer") => json!(5),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("text"),
        };
        arguments.insert(name.clone(), value);
    }
    arguments
}

/// Opens a URL and follows its redirects.
fn follow_redirects(url: &str) {
    let mut next = Some(url.to_owned());
    for _ in 0..5 {
        let Some(url) = next.take() else { return };
        next = redirect_target(&url);
    }
}

/// The redirect target of a URL.
fn redirect_target(url: &str) -> Option<String> {
    let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
    let mut stream = TcpStream::connect(host).ok()?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let is_location = |line: &&str| line.to_ascii_lowercase().starts_with("location:");
    answer.lines().find(is_location)?.split_once(':').map(|(_, location)| location.trim().to_owned())
}
