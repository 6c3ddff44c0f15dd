//! MCP servers whose tools collide with others, change, or never end. The server is that of `cli/mcp.rs`.

use brigade_testing::{Reply, Script, call, reply};
use serde_json::{Value, json};

use crate::cli::mcp::servers;
use crate::cli::support::Home;

/// Addresses of an authorization server that are no web addresses.
const AUTH_URLS: [&str; 6] = [
    "file:///bin/sh",
    "javascript:alert(1)",
    "$(touch F)",
    "-a Calculator",
    "ftp://x/",
    "http://x/ & touch F",
];

/// Behaviour of the server, the tools that are called in turn, and a part of the last result.
const CALLS: [(u8, &str, &[&str], &str); 13] = [
    (41, "collides", &["echo"], "round trip"),
    (41, "collides", &["read_file"], "Unknown tool"),
    (41, "collides", &["Read.File"], "Unknown tool"),
    (41, "collides", &["écho"], "Unknown tool"),
    (42, "", &["echo", "change", "echo"], "has changed"),
    (42, "modern", &["change", "fresh"], "Unknown tool"),
    (42, "slow", &["change", "echo"], "has changed"),
    (43, "", &["hang", "echo"], "round trip"),
    (43, "", &["wrong_id", "echo"], "round trip"),
    (43, "", &["twice", "echo"], "round trip"),
    (43, "", &["die", "echo"], "round trip"),
    (43, "", &["long_line", "echo"], ""),
    (43, "", &["flood"], ""),
];

pub(crate) fn inputs() -> Vec<u8> {
    let calls = CALLS.iter().map(|(family, _, _, _)| *family);
    calls.chain(std::iter::repeat_n(31, AUTH_URLS.len())).collect()
}

fn tool_call(tool: &str) -> Reply {
    call(&format!("mcp__fix__{tool}"), json!({ "text": "round trip" }))
}

/// Makes the calls of all entries of a family.
#[track_caller]
fn attack(family: u8) {
    for (_, behaviour, tools, expected) in CALLS.iter().filter(|entry| entry.0 == family) {
        let home = Home::new();
        let mut config: Value =
            serde_json::from_str(&servers(&home, json!({ "timeout": if family == 43 { 3 } else { 20 } })))
                .unwrap();
        config["mcpServers"]["fix"]["env"]["FIXTURE_MANNERS"] = json!(behaviour);
        home.write("home/config.json", &config.to_string());
        let turns = tools.iter().map(|tool| tool_call(tool)).chain([reply("{results}")]);
        let done =
            home.run(Script::new().turns(turns.collect::<Vec<_>>()), &["--mode", "auto", "--timeout", "40s"]);
        let text = &done.exits_with(0).stdout;
        assert!(text.contains(expected) && text.len() < 100_000, "{tools:?}: {text}\n{}", done.stderr);
    }
}

#[test]
fn h41_colliding_tools_are_not_offered() {
    attack(41);
}

#[test]
fn h42_changed_tool_is_not_called() {
    attack(42);
}

#[test]
fn h43_hostile_server_does_not_stop_the_run() {
    attack(43);
}

/// A login never starts a program with the address that a server names.
#[test]
fn h31_authorization_address_is_not_a_command() {
    for address in AUTH_URLS {
        let metadata = json!({
            "issuer": "http://x", "authorization_endpoint": address, "token_endpoint": address,
            "registration_endpoint": address, "authorization_servers": [address], "resource": address,
        });
        let server = brigade_testing::HttpServer::start(move |request| match request.path() {
            "/mcp" => brigade_testing::HttpResponse::new("401 Unauthorized", ""),
            _ => brigade_testing::HttpResponse::with_headers(
                "200 OK",
                "Content-Type: application/json\r\n",
                metadata.to_string(),
            ),
        });
        let home = Home::new();
        let config = json!({ "mcpServers": { "x": { "url": server.url("/mcp") } } });
        home.write("home/config.json", &config.to_string());
        let done = home.brigade(&["tools", "login", "x"]);
        assert!(
            [1, 2].contains(&done.code) && !done.stderr.contains("panicked"),
            "{address}: {}",
            done.stderr
        );
        assert!(!home.work().join("F").exists());
    }
}
