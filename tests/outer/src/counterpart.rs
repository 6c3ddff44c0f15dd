//! Third-party servers and clients that `scripts/test` installs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// aimock: serves the provider APIs from fixtures, and keeps a journal.
pub struct Aimock {
    /// Its address.
    pub address: String,
    _process: Process,
}

/// A real small model behind a llama.cpp server.
pub struct LocalModel {
    /// Its address.
    pub address: String,
    _process: Process,
}

/// The MCP reference server "everything", over HTTP.
pub struct Everything {
    /// Its address.
    pub address: String,
    _process: Process,
}

/// The suites of AgentDojo as MCP servers over HTTP, and a model that obeys every injection.
pub struct AgentDojo {
    /// Its address.
    pub address: String,
    _process: Process,
}

/// Our own server for the MCP conformance suite, over the HTTP layer of `brigade mcp`.
pub struct McpFixture {
    /// Its address.
    pub address: String,
    _process: Process,
}

struct Process(Child);

impl Aimock {
    /// A valid key.
    pub const KEY: &'static str = "sk-planted-0123456789abcdef";
    /// Another valid key.
    pub const OTHER_KEY: &'static str = "sk-hidden-fedcba9876543210";

    /// Starts it on a free port with a fixture file and these flags.
    pub fn start(fixtures: &Path, flags: &[&str]) -> Aimock {
        let mut command = program("node");
        command.arg(tools("aimock/node_modules/@copilotkit/aimock/dist/cli.js"));
        command.args(["--port", "0", "--strict", "--validate-on-load", "--journal-max", "0", "--fixtures"]);
        command.arg(fixtures).args(flags).stderr(Stdio::null());
        command.env("AIMOCK_API_KEYS", [Aimock::KEY, Aimock::OTHER_KEY].join(","));
        let mut process = Process(command.spawn().unwrap());
        let address = process.printed("http://");
        Aimock { address, _process: process }
    }

    /// Every request as aimock understood it: in Chat Completions format, whatever the actual format was.
    pub fn journal(&self) -> Vec<Value> {
        let Value::Array(journal) = get_json(&self.address, "/__aimock/journal") else { return Vec::new() };
        journal
    }
}

impl AgentDojo {
    /// Starts it on a free port.
    pub fn start() -> AgentDojo {
        let mut command = program(tools("agentdojo/bin/python"));
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("counterparts/agentdojo/server.py"));
        let mut process = Process(command.spawn().unwrap());
        AgentDojo { address: process.printed("http://"), _process: process }
    }

    /// Figures of all pairs of tasks under a plan.
    pub fn report(&self, plan: &str) -> Value {
        get_json(&self.address, &format!("/report/{plan}"))
    }
}

/// The JSON at a path of a local server.
fn get_json(server: &str, path: &str) -> Value {
    let address = server.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let key = Aimock::KEY;
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nx-api-key: {key}\r\nConnection: close\r\n\r\n");
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

impl Everything {
    /// Starts it on a port that was free a moment ago, because it cannot choose one itself.
    pub fn start() -> Everything {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = free.unwrap().port();
        let mut command = program("node");
        command.arg(mcp_server("everything")).arg("streamableHttp").env("PORT", port.to_string());
        let process = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let started = std::time::Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed().as_secs() < 60, "the server is not listening");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        Everything { address: format!("http://127.0.0.1:{port}/mcp"), _process: process }
    }
}

impl McpFixture {
    /// Starts it on a free port.
    pub fn start() -> McpFixture {
        let mut process = Process(program(crate::sibling_binary("mcp-fixture")).spawn().unwrap());
        McpFixture { address: process.printed("http://"), _process: process }
    }
}

/// The MCP conformance suite.
pub fn conformance(home: &Path) -> Command {
    script("mcp/node_modules/@modelcontextprotocol/conformance/dist/index.js", home)
}

/// The MCP Inspector in its command-line mode.
pub fn inspector(home: &Path) -> Command {
    let launcher = "mcp/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let mut command = script(launcher, home);
    command.arg("--cli");
    command
}

/// acpx, a headless ACP client.
pub fn acpx(home: &Path) -> Command {
    script("acp/node_modules/acpx/dist/cli.js", home)
}

/// A Node.js program with a separate home and an otherwise empty environment.
fn script(path: &str, home: &Path) -> Command {
    let node = node();
    let mut command = program(&node);
    let folders = node.parent().into_iter().map(Path::to_owned);
    let path_of_all = folders.chain(["/usr/bin".into(), "/bin".into()]);
    command.arg(tools(path)).env_clear().env("HOME", home);
    command.env("PATH", std::env::join_paths(path_of_all).unwrap()).stdin(Stdio::null());
    command
}

/// Node.js: the version that `scripts/test` installed, or the system's if it was new enough.
#[expect(clippy::disallowed_methods, reason = "commands under test have another PATH than the tests")]
pub fn node() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = cache().join("node/node_modules/node/bin/node");
    let others = std::env::split_paths(&path).map(|folder| folder.join("node"));
    let found = std::iter::once(installed).chain(others).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("node is missing"))
}

/// An MCP reference server for Node.js.
pub fn mcp_server(name: &str) -> PathBuf {
    tools(&format!("mcp/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"))
}

impl LocalModel {
    /// Starts it on a free port.
    pub fn start() -> LocalModel {
        let mut command = program(tools("python/bin/python"));
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("counterparts/serve_model.py"));
        let mut process = Process(command.stderr(Stdio::null()).spawn().unwrap());
        LocalModel { address: process.printed("http://"), _process: process }
    }
}

impl Process {
    /// Reads its output until a word with this prefix.
    fn printed(&mut self, beginning: &str) -> String {
        let mut lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let found = lines.find_map(|line| {
            let line = line.unwrap();
            Some(line.split(' ').find(|word| word.starts_with(beginning))?.to_owned())
        });
        // The rest is read as well, so that the process never blocks on its output.
        std::thread::spawn(move || lines.count());
        found.unwrap_or_else(|| panic!("the server exited before it was ready"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests start servers")]
fn program(path: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(path);
    // The model server exits when its input ends, and so with this process, however that exits.
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Path of a tool that `scripts/test` installed.
pub fn tools(path: &str) -> PathBuf {
    let path = cache().join(path);
    assert!(path.exists(), "{} is missing. Install it with scripts/test.", path.display());
    path
}

/// Directory of the tools that `scripts/test` installs.
#[expect(clippy::disallowed_methods, reason = "the same folder as in scripts/test")]
pub(crate) fn cache() -> PathBuf {
    let usual = || {
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("brigade-tests")
    };
    std::env::var_os("TEST_TOOLS").map_or_else(usual, PathBuf::from)
}
