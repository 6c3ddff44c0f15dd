//! `brigade mcp` with the MCP Inspector, a third-party client, over standard input and output and over HTTP.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use brigade_outer_tests::{CommandOutput, TestEnv, inspector, processes_with};
use brigade_testing::Script;
use serde_json::Value;

const TOKEN: &str = "a-token-that-is-long-enough";

/// An environment whose children always return the same text.
fn test_env() -> TestEnv {
    let env = TestEnv::new("");
    std::fs::write(env.path("script.toml"), Script::new().reply("The child did it.").to_string()).unwrap();
    let config = format!("model = 'script:{}'\n", env.path("script.toml").display());
    std::fs::write(env.path("home/config.toml"), config).unwrap();
    env
}

/// Runs the Inspector with a server and a method.
fn inspect(env: &TestEnv, server: &[&str], method: &[&str]) -> CommandOutput {
    let home = env.path("inspector");
    std::fs::create_dir_all(&home).unwrap();
    let mut command = inspector(&home);
    command.args(server).args(method).current_dir(env.path("work"));
    env.finish(env.start(&mut command))
}

/// The command line of our server, with the variables of the environment, because the Inspector sets its own.
fn over_stdio(env: &TestEnv) -> Vec<String> {
    let ours = env.command(&["mcp"]);
    let mut words = vec!["/usr/bin/env".to_owned(), "-i".to_owned()];
    let pairs = ours.get_envs().filter_map(|(key, value)| Some((key.to_str()?, value?.to_str()?)));
    words.extend(pairs.map(|(key, value)| format!("{key}={value}")));
    words.extend([ours.get_program().to_str().unwrap().to_owned(), "mcp".to_owned()]);
    words
}

/// A server over HTTP, which ends with the test.
struct HttpServer {
    child: Child,
    address: String,
}

impl HttpServer {
    fn start(env: &TestEnv) -> HttpServer {
        let mut command = env.command(&["mcp", "--listen", "127.0.0.1:0", "--token-env", "THE_TOKEN"]);
        command.env("THE_TOKEN", TOKEN).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let begin = line.find("http://")?;
            Some(line[begin..].split([' ', ';']).next()?.to_owned())
        });
        std::thread::spawn(move || lines.count());
        HttpServer { child, address: address.unwrap() }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn result(output: &CommandOutput) -> Value {
    assert_eq!(output.code, 0, "{output:?}");
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| unreachable!("{output:?}"))
}

const LIST: [&str; 2] = ["--method", "tools/list"];
const CALL: [&str; 7] = [
    "--method",
    "tools/call",
    "--tool-name",
    "delegate",
    "--tool-arg",
    "role=Helper",
    "task=say what you did",
];

/// The Inspector's name for the newest version of the protocol.
const NEWEST: [&str; 2] = ["--protocol-era", "modern"];

/// Checks the list of tools and the result of a call, in the default version and in the newest.
fn check(env: &TestEnv, server: &[&str]) {
    let newest = [&NEWEST, server].concat();
    for server in [server, &newest] {
        let listed = result(&inspect(env, server, &LIST));
        let tools = listed["tools"].as_array().unwrap();
        let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        for name in ["delegate", "session_status", "tell", "stop", "read_result"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let called = result(&inspect(env, server, &CALL));
        let text = called["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("The child did it.") && called["isError"] != true, "{called}");
        // Errors are in the result, for the model that made the call.
        let wrong = inspect(
            env,
            server,
            &["--method", "tools/call", "--tool-name", "delegate", "--tool-arg", "role=Helper"],
        );
        assert!(wrong.stdout.contains("task") && wrong.stdout.contains("\"isError\": true"), "{wrong:?}");
    }
}

#[test]
fn tools_are_listed_and_called_over_stdio() {
    let env = test_env();
    let words = over_stdio(&env);
    check(&env, &words.iter().map(String::as_str).collect::<Vec<_>>());
    // The command line of the server contains the home.
    let home = env.path("home").display().to_string();
    let started = Instant::now();
    while !processes_with(&home).is_empty() {
        assert!(started.elapsed().as_secs() < 20, "{:?}", processes_with(&home));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn tools_over_http_need_the_token() {
    let env = test_env();
    let http_server = HttpServer::start(&env);
    let header = format!("Authorization: Bearer {TOKEN}");
    check(&env, &[&http_server.address, "--transport", "http", "--header", &header]);
    for wrong in [&[][..], &["--header", "Authorization: Bearer another-token-than-that"]] {
        let server = [&[&http_server.address, "--transport", "http"], wrong].concat();
        let refused = inspect(&env, &server, &LIST);
        assert_ne!(refused.code, 0, "{refused:?}");
        assert!(!refused.stdout.contains("delegate"), "{refused:?}");
    }
}
