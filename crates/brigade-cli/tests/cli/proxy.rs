//! Providers, MCP servers and search engines behind an HTTP proxy that opens real tunnels to a TLS server.
//!
//! No resolver knows `models.example`, so the server can only be reached through the proxy.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::console::Console;
use crate::cli::support::{CommandResult, Home};
use crate::cli::tls::{TlsServer, authority};

/// Proxy that responds to tunnel requests with this status, opens a tunnel to the provider if it is 200, and reports
/// the requests.
fn proxy(status: &'static str, provider: &str) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, asked) = channel();
    let provider = provider.to_owned();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
            let head: Vec<String> =
                lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let _ = sender.send(head.join("\n"));
            let _ = write!(client, "HTTP/1.1 {status}\r\nVia: test\r\n\r\n");
            if status.starts_with("200") {
                let server = TcpStream::connect(&provider).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let (mut from, mut to) = (server, client);
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    (address, asked)
}

fn home() -> Home {
    let home = Home::new();
    let config = "model = 'far/small'\n[providers.far]\nkind = 'openai'\nbase_url = 'https://models.example/v1'\n\
        [limits]\nretry_pause = '1ms'\n";
    home.write("home/config.toml", config);
    home
}

fn run(home: &Home, variables: &[(&str, &str)]) -> CommandResult {
    run_with(home, &[], variables)
}

fn run_with(home: &Home, set: &[&str], variables: &[(&str, &str)]) -> CommandResult {
    let mut command = home.command(&["run", "hi"]);
    command.args(set.iter().flat_map(|set| ["--set", set]));
    command.env("SSL_CERT_FILE", authority()).envs(variables.iter().copied());
    CommandResult::run(&mut command)
}

#[test]
fn requests_use_a_proxy_tunnel() {
    let (address, asked) = proxy("200 Connection established", &TlsServer::provider().address);
    for (variable, url) in [
        ("HTTPS_PROXY", format!("http://{address}")),
        ("https_proxy", format!("http://{address}/")),
        ("HTTPS_PROXY", address.clone()),
    ] {
        let home = home();
        run(&home, &[(variable, &url)]).exits_with(0).stdout_contains("hello");
        let request = asked.recv().unwrap();
        assert!(
            request.starts_with("CONNECT models.example:443 HTTP/1.1\nHost: models.example:443"),
            "{request}"
        );
        assert!(!request.contains("Proxy-Authorization"), "{request}");
    }
}

#[test]
fn proxy_password_is_sent_only_to_the_proxy() {
    let (address, asked) = proxy("200 OK", &TlsServer::provider().address);
    let url = format!("http://me:sesame-1234@{address}");
    let home = home();
    let mut console = Console::new(&home);
    run(&home, &[("HTTPS_PROXY", &url)]).exits_with(0).stdout_contains("hello");
    let request = asked.recv().unwrap();
    assert!(request.contains("Proxy-Authorization: Basic bWU6c2VzYW1lLTEyMzQ="), "{request}");
    let (address, _asked) = proxy("403 Forbidden", "");
    let url = format!("http://me:sesame-1234@{address}");
    let refused = run(&home, &[("HTTPS_PROXY", &url)]);
    refused
        .exits_with(1)
        .stderr_contains(&format!("the proxy {address} refused the connection with status 403"));
    console.add(&refused);
    let socks = run(&home, &[("HTTPS_PROXY", "socks5://me:sesame-1234@127.0.0.1:1080")]);
    console.add(socks.exits_with(2));
    for done in [&refused, &socks] {
        assert!(!done.stderr.contains("sesame") && !done.stdout.contains("sesame"), "{}", done.stderr);
    }
    for file in home.files() {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("sesame"), "{}", file.display());
    }
    insta::assert_snapshot!(console.text());
}

#[test]
fn proxy_refusing_a_tunnel_is_named() {
    let home = home();
    let mut console = Console::new(&home);
    let (address, asked) = proxy("407 Proxy Authentication Required", "");
    let done = run(&home, &[("HTTPS_PROXY", &format!("http://{address}"))]);
    console.add(done.exits_with(1));
    assert_eq!(asked.try_iter().count(), 1, "asking again would not help");
    let (address, asked) = proxy("502 Bad Gateway", "");
    run(&home, &[("HTTPS_PROXY", &format!("http://{address}"))])
        .exits_with(1)
        .stderr_contains("status 502")
        .stderr_contains("after 6 attempts");
    assert_eq!(asked.try_iter().count(), 6);
    let done = run(&home, &[("HTTPS_PROXY", "http://127.0.0.1:9")]);
    done.exits_with(1)
        .stderr_contains("cannot connect to the proxy 127.0.0.1:9: Connection refused")
        .stderr_contains("Check HTTPS_PROXY");
    insta::assert_snapshot!(console.text());
}

#[test]
fn no_proxy_hosts_and_loopback_are_reached_directly() {
    let (address, asked) = proxy("200 OK", &TlsServer::provider().address);
    let proxy = format!("http://{address}");
    let home = home();
    for (variable, exempt) in [("NO_PROXY", "localhost,.example"), ("no_proxy", "models.example")] {
        // No resolver knows the name; some respond late.
        let soon = "providers.far.connect_timeout=200ms";
        let done = run_with(&home, &[soon], &[("HTTPS_PROXY", &proxy), (variable, exempt)]);
        done.exits_with(1).stderr_contains("cannot reach far");
    }
    let local = "providers.far.base_url=https://127.0.0.1:9/v1";
    run_with(&home, &[local], &[("HTTPS_PROXY", &proxy)]).exits_with(1).stderr_contains("cannot reach far");
    assert_eq!(asked.try_iter().count(), 0, "the proxy was not asked");
}

#[test]
fn wrong_host_certificate_is_refused_behind_a_proxy() {
    let (address, _asked) = proxy("200 OK", &TlsServer::provider().address);
    let home = home();
    let other = "providers.far.base_url=https://other.example/v1";
    let done = run_with(&home, &[other], &[("HTTPS_PROXY", &format!("http://{address}"))]);
    done.exits_with(1).stderr_contains("cannot reach far").stderr_contains("certificate");
}

/// `CONNECT` lines that a proxy without tunnels receives from a command.
fn tunnels_requested(home: &Home, arguments: &[&str], exempt: &str) -> Vec<String> {
    let (address, asked) = proxy("403 Forbidden", "");
    let mut command = home.command(arguments);
    command.env("HTTPS_PROXY", format!("http://{address}")).env("NO_PROXY", exempt);
    CommandResult::run(&mut command);
    asked.try_iter().filter_map(|head| head.lines().next().map(str::to_owned)).collect()
}

#[test]
fn mcp_server_at_https_is_reached_through_the_proxy() {
    let home = Home::new();
    let mut console = Console::new(&home);
    home.write("home/config.toml", "[mcpServers.far]\nurl = 'https://mcp.example/mcp'\n");
    let list = ["tools", "list", "--servers"];
    let requested = tunnels_requested(&home, &list, "");
    assert!(requested.iter().all(|line| line == "CONNECT mcp.example:443 HTTP/1.1"), "{requested:?}");
    assert!(!requested.is_empty());
    assert!(tunnels_requested(&home, &list, "mcp.example").is_empty());
    let mut socks = home.command(&list);
    let done = CommandResult::run(socks.env("HTTPS_PROXY", "socks5://127.0.0.1:1080"));
    console.add(&done);
    insta::assert_snapshot!(console.text());
}

#[test]
fn search_engine_at_https_is_reached_through_the_proxy() {
    let home = Home::new();
    home.write("home/config.toml", "[web]\nsearch = 'https://searx.example'\n");
    let model =
        home.script(Script::new().turns([call("web_search", json!({ "query": "tea" })), reply("done")]));
    let run = ["run", "--mode", "auto", "--model", &model, "Search for tea"];
    assert_eq!(tunnels_requested(&home, &run, ""), ["CONNECT searx.example:443 HTTP/1.1"]);
    assert!(tunnels_requested(&home, &run, ".example").is_empty());
}
