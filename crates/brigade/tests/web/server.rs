//! Small test server, and helpers that call the tools.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::tool::{Files, SearchEngine, ToolContext, Toolbox, WebSettings, Workspace};
use brigade_core::permission::{Permissions, Rule};
use brigade_core::{CallId, SessionId, ToolOutput};
use brigade_testing::{HttpRequest, HttpResponse, HttpServer};
use serde_json::{Value, json};
use tokio::sync::watch;

pub(super) use crate::models::server::reply;

/// Timeout of a call in these tests.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);
/// Time within which every call must end.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(10);

/// Server of web pages.
pub(super) struct Server(HttpServer);

impl Server {
    /// Starts a server. `answer` gets the text of each request.
    pub(super) fn start(answer: impl Fn(&str) -> HttpResponse + Send + Sync + 'static) -> Server {
        Server(HttpServer::start(move |request| answer(&request.text())))
    }

    pub(super) fn always(response: HttpResponse) -> Server {
        Server(HttpServer::always(response))
    }

    /// Creates a server that always returns the same page.
    pub(super) fn page(content_type: &str, body: impl AsRef<[u8]>) -> Server {
        Server::always(reply("200 OK", &format!("Content-Type: {content_type}\r\n"), body))
    }

    /// Creates a server that always redirects.
    pub(super) fn redirect(location: impl Into<String>) -> Server {
        Server::always(reply("302 Found", &format!("Location: {}\r\n", location.into()), ""))
    }

    pub(super) fn url(&self, path: &str) -> String {
        self.0.url(path)
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port()
    }

    /// Returns the requests that were received.
    pub(super) fn requests(&self) -> Vec<String> {
        self.0.requests().iter().map(HttpRequest::text).collect()
    }

    /// Returns the number of connections that were opened.
    pub(super) fn connections(&self) -> usize {
        self.0.connections()
    }
}

/// Returns settings that permit access to the test servers.
pub(super) fn settings() -> WebSettings {
    WebSettings { allow_loopback: true, timeout: TIMEOUT, ..WebSettings::default() }
}

pub(super) fn searching(search: SearchEngine) -> WebSettings {
    WebSettings { search: Some(search), timeout: TIMEOUT, ..WebSettings::default() }
}

/// Calls a tool with these deny rules.
pub(super) fn call(settings: &WebSettings, deny: &[&str], tool: &str, arguments: Value) -> ToolOutput {
    run(settings, Permissions { deny: rules(deny), ..Permissions::default() }, tool, arguments)
}

/// Calls a tool with these ask rules.
pub(super) fn call_asking(settings: &WebSettings, ask: &[&str], tool: &str, arguments: Value) -> ToolOutput {
    run(settings, Permissions { ask: rules(ask), ..Permissions::default() }, tool, arguments)
}

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|rule| rule.parse().unwrap()).collect()
}

/// Calls a tool as the driver does once it is permitted. The call has to end soon in every case.
fn run(settings: &WebSettings, rules: Permissions, tool: &str, arguments: Value) -> ToolOutput {
    let folder = tempfile::tempdir().unwrap();
    let workspace = Workspace::open(folder.path()).unwrap();
    let context = ToolContext {
        session: SessionId::root(7),
        call: CallId { turn: 1, index: 0 },
        files: Files::new(workspace, Arc::new(rules), BTreeSet::new()),
        shell: None,
        sandbox: brigade::sandbox::CommandSandbox::none(),
        hosts: brigade::tool::HostAsker::deny(),
        stop: watch::channel(false).1,
        remote_context: brigade_core::RemoteContext::default(),
        loan: brigade::tool::RemoteLoan::default(),
        progress: brigade::tool::ProgressReporter::default(),
        seen: brigade::tool::SeenSlot::default(),
    };
    let toolbox = Toolbox::new().with_web(settings.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    let output = runtime.block_on(toolbox.get(tool).unwrap().run(arguments, &context));
    assert!(begun.elapsed() < MAX_WAIT, "it took {:?}: {}", begun.elapsed(), output.text);
    output
}

/// Fetches a page and expects success.
pub(super) fn fetch(url: &str) -> String {
    let output = call(&settings(), &[], "web_fetch", json!({ "url": url }));
    assert!(!output.is_error(), "{}", output.text);
    output.text.to_string()
}

/// Fetches a page and expects an error.
pub(super) fn fetch_error(settings: &WebSettings, url: &str) -> String {
    let output = call(settings, &[], "web_fetch", json!({ "url": url }));
    assert!(output.is_error(), "{}", output.text);
    output.text.to_string()
}
