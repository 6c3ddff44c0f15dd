//! Network of commands in a sandbox. The commands are this test program, so that the tests need no other.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use brigade_sandbox::single_quoted;
use brigade_testing::{Script, call, reply};
use rustls::client::ClientConnection;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;

use crate::cli::support::{BackgroundRun, CommandResult, Home};

const ON: [&str; 4] = ["--set", "sandbox.mode=workspace", "--mode", "auto"];

/// A command that runs a probe. Its results are lines that start with `probe: `.
pub(crate) fn probe(what: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let program = single_quoted(program.to_str().unwrap());
    format!(
        "PROBE={} {program} --exact cli::sandbox_network::entry --ignored --nocapture 2>&1",
        single_quoted(what)
    )
}

pub(crate) fn probes(what: &[&str]) -> String {
    what.iter().map(|what| probe(what)).collect::<Vec<_>>().join("; ")
}

fn probed(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.strip_prefix("probe: ")).collect()
}

#[test]
#[ignore = "a command for other tests"]
fn entry() {
    let what = std::env::var("PROBE").unwrap();
    let words: Vec<&str> = what.split(' ').collect();
    let result = match words.as_slice() {
        ["tcp", address] => {
            outcome(TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(5)))
        }
        ["udp", address] => outcome(UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"x", address)),
        ["name", name] => outcome((*name, 80).to_socket_addrs()),
        ["get", url] => {
            let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
            last_line(&through_proxy(format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), b""))
        }
        ["connect", to] => last_line(&through_proxy(connect(to).as_bytes(), b"hello")),
        ["tls", to, server_name] => {
            format!("{:?}", through_proxy(connect(to).as_bytes(), &client_hello(server_name)))
        }
        _ => panic!("{what}"),
    };
    println!("\nprobe: {result}");
    std::process::exit(0);
}

fn outcome<T, E: std::fmt::Display>(result: Result<T, E>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "done".to_owned())
}

fn connect(to: &str) -> String {
    format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")
}

/// Sends a request to the proxy, more bytes after a positive response, and returns everything after the head of the
/// response.
fn through_proxy(request: &[u8], more: &[u8]) -> String {
    let proxy = std::env::var("http_proxy").unwrap();
    let mut stream = TcpStream::connect(proxy.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(request).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 200") && !more.is_empty() {
        stream.write_all(more).unwrap();
    }
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    String::from_utf8_lossy(&rest).into_owned()
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or("nothing").to_owned()
}

fn client_hello(server_name: &str) -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client =
        ClientConnection::new(config.into(), server_name.to_owned().try_into().unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// Server of the host on the loopback interface. It answers the first bytes of each connection.
struct Server {
    port: u16,
    received: Receiver<Vec<u8>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, received) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut first = vec![0; 16 << 10];
                let length = stream.read(&mut first).unwrap_or_default();
                first.truncate(length);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nthe answer");
                if sender.send(first).is_err() {
                    return;
                }
            }
        });
        Server { port, received }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The first bytes of all connections so far. They end with a connection of the test itself.
    fn received(&self) -> Vec<Vec<u8>> {
        TcpStream::connect(self.address()).unwrap().write_all(b"the last one").unwrap();
        self.received.iter().take_while(|first| first != b"the last one").collect()
    }
}

fn shell(command: &str) -> Script {
    Script::new().turns([call("shell", json!({ "command": command })), reply("{results}")])
}

/// Runs one command and returns the result that the model sees.
fn run(home: &Home, command: &str, settings: &[&str]) -> String {
    home.run(shell(command), &[&ON, settings].concat()).exits_with(0).stdout.clone()
}

fn network(hosts: &[&str]) -> String {
    format!("sandbox.network={}", json!(hosts))
}

#[test]
fn listed_address_is_reached_through_the_proxy_and_nothing_else() {
    let home = Home::outside_tmp().with_test_program();
    let (listed, other) = (Server::start(), Server::start());
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let (to, other_to) = (listed.address(), other.address());
    let udp_to = udp.local_addr().unwrap().to_string();
    let command = probes(&[
        &format!("get http://{to}/x"),
        &format!("connect {to}"),
        &format!("get http://{other_to}/x"),
        &format!("connect {other_to}"),
        "connect evil.example:443",
        "connect localhost:80",
        "connect 169.254.169.254:80",
        &format!("tcp {to}"),
        &format!("tcp {other_to}"),
        "tcp 192.0.2.1:443",
        &format!("udp {udp_to}"),
        "udp 192.0.2.1:53",
        "name secret.evil.example",
    ]);
    let output = run(&home, &format!("{command}; echo no_proxy=$no_proxy"), &["--set", &network(&[&to])]);
    let lines = probed(&output);
    assert_eq!(lines[..2], ["the answer", "the answer"], "{output}");
    let private = "it is an address of this machine. Only an exact IP address and port can be allowed";
    for (line, (target, cause)) in lines[2..7].iter().zip([
        (other_to.as_str(), private),
        (&other_to, private),
        ("evil.example:443", "the sandbox does not allow this host. Request it with `needs.hosts`"),
        ("localhost:80", private),
        ("169.254.169.254:80", "it is a link-local address"),
    ]) {
        let refused = format!("cannot connect to `{target}`: {cause}");
        assert!(line.starts_with(&refused), "{line}");
        // The result names it too, although these clients did not fail.
        assert!(output.contains(&format!("\n({refused}")), "{refused}: {output}");
    }
    assert!(lines[7..9].iter().all(|line| line.starts_with("Connection refused")), "{output}");
    assert!(lines[9].starts_with("Network is unreachable"), "{output}");
    // The loopback interface is that of the sandbox.
    assert_eq!(lines[10], "done", "{output}");
    assert!(lines[11].starts_with("Network is unreachable"), "{output}");
    assert!(lines[12].starts_with("failed to lookup address information"), "{output}");
    assert!(output.contains("no_proxy=localhost,::1\n"), "{output}");

    let received = listed.received();
    assert_eq!(received.len(), 2);
    assert_eq!(
        String::from_utf8_lossy(&received[0]),
        format!("GET /x HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n")
    );
    assert_eq!(received[1], b"hello");
    assert!(other.received().is_empty());
    assert_eq!(udp.recv(&mut [0; 9]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// Without a list, nothing serves a proxy.
#[test]
fn network_that_is_off_has_no_proxy() {
    let home = Home::outside_tmp().with_test_program();
    let server = Server::start();
    let command =
        format!("echo proxy=$http_proxy$HTTPS_PROXY; {}", probe(&format!("tcp {}", server.address())));
    let output = run(&home, &command, &["--set", "sandbox.network=false"]);
    assert!(output.contains("proxy=\n") && probed(&output)[0].starts_with("Connection refused"), "{output}");
    assert!(server.received().is_empty());
    let output = run(&home, &command, &["--set", "sandbox.network=true"]);
    assert!(output.contains("proxy=\n") && probed(&output) == ["done"], "{output}");
}

#[test]
fn tls_must_name_the_host_of_the_tunnel() {
    let home = Home::outside_tmp().with_test_program();
    let server = Server::start();
    let to = server.address();
    let command = probes(&[
        &format!("tls {to} evil.example"),
        &format!("tls {to} localhost"),
        // An address has no server name.
        &format!("tls {to} 127.0.0.1"),
    ]);
    let output = run(&home, &command, &["--set", &network(&[&to])]);
    let alert = format!("{:?}", "\u{15}\u{3}\u{1}\0\u{2}\u{2}p");
    let lines = probed(&output);
    assert_eq!(lines[..2], [alert.as_str(); 2], "{output}");
    assert!(lines[2].contains("the answer"), "{output}");
    assert!(
        output.contains(&format!("(cannot connect to `{to}`: the TLS handshake does not name this host")),
        "{output}"
    );
    // The refused connections were opened, but nothing was sent over them.
    let received = server.received();
    let sent: Vec<_> = received.iter().filter(|first| !first.is_empty()).collect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].starts_with(&[22, 3, 1]));
}

#[test]
fn approved_hosts_are_reached_by_this_command_only() {
    let home = Home::outside_tmp().with_test_program();
    let (approved, other) = (Server::start(), Server::start());
    let command = probes(&[
        &format!("get http://{}/", approved.address()),
        &format!("get http://{}/", other.address()),
    ]);
    let needs = json!({ "command": command, "needs": { "hosts": [approved.address()] } });
    let direct = probe(&format!("tcp {}", approved.address()));
    let script = Script::new().turns([
        call("shell", needs.clone()),
        call("shell", json!({ "command": format!("echo proxy=$http_proxy; {direct}") })),
        reply("{results}"),
    ]);
    let settings =
        ["--set", "sandbox.mode=workspace", "--set", "permissions.questions=wait", "--mode", "auto"];
    let mut running = BackgroundRun::start(&home, script, &settings);
    running.wait_for("asked");
    let asked = home.brigade(&["answer", &running.session]);
    asked.exits_with(0).stdout_contains("hosts").stdout_contains(&approved.address());
    assert!(approved.received().is_empty());
    home.brigade(&["answer", &running.session, "yes"]).exits_with(0);
    let (code, lines, _) = running.end();
    let shown = serde_json::to_string(&lines).unwrap();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("probe: the answer"), "{shown}");
    assert!(shown.contains(&format!("cannot connect to `{}`", other.address())), "{shown}");
    // The second command reaches a proxy that would ask the user, and nothing beside it.
    assert!(shown.contains("proxy=http://") && shown.contains("probe: Connection refused"), "{shown}");
    assert_eq!((approved.received().len(), other.received().len()), (1, 0));

    // Without the user's approval, it does not start.
    let script = Script::new().turns([call("shell", needs), reply("{results}")]);
    let allow = ["--set", "permissions.allow=[\"shell\"]"];
    let output = home.run(script, &[&ON[..], &allow].concat());
    assert!(!output.exits_with(0).stdout.contains("probe: "), "{}", output.stdout);
    assert!(approved.received().is_empty());
}

#[test]
fn needed_hosts_are_checked_before_the_user_is_asked() {
    let home = Home::outside_tmp().with_test_program();
    for (host, problem) in [
        ("*", "matches too many hosts"),
        ("*.example.org", "contains a wildcard. Name each host."),
        ("https://example.org/", "Use only the host"),
        ("10.0.0.5", "Add the port"),
        ("0x7f.1:80", "is not a host"),
    ] {
        let needs = json!({ "command": "echo ran", "needs": { "hosts": [host] } });
        let output = home.run(Script::new().turns([call("shell", needs), reply("{results}")]), &ON);
        let stdout = &output.exits_with(0).stdout;
        assert!(stdout.contains(problem) && !stdout.contains("ran\n"), "{host}: {stdout}");
    }
}

#[test]
fn network_setting_is_checked() {
    let home = Home::new().with_test_program();
    for (value, problem) in [
        ("[\"example.org\", \"10.0.0.5\"]", "`10.0.0.5` is an IP address without a port"),
        ("[\"*\"]", "`*` matches too many hosts"),
        (
            "[\"*.com\", \"a b\"]",
            "`*.com` matches too many hosts. Use `*.` with a domain of at least two parts, such as `*.example.com`; `a b` is not a host",
        ),
        ("[\"https://example.org\"]", "Use only the host"),
        ("[1]", "`sandbox.network` must be true or false or a list of hosts such as"),
        ("some", "`sandbox.network` must be true or false or a list of hosts such as"),
    ] {
        let setting = format!("sandbox.network={value}");
        let shown = home.brigade(&["config", "show", "--set", &setting]);
        shown.exits_with(2).stderr_contains("`sandbox.network`").stderr_contains(problem);
    }
    let shown = |value: &str| {
        let mut command = home.command(&["config", "show"]);
        CommandResult::run(command.env("BRIGADE_SANDBOX__NETWORK", value))
    };
    for value in ["true", "false", "[\"example.org\", \"*.example.org:8443\"]"] {
        shown(value).exits_with(0).stdout_contains(&format!("network = {value}"));
    }
    shown("[\"127.1:80\"]")
        .exits_with(2)
        .stderr_contains("BRIGADE_SANDBOX__NETWORK")
        .stderr_contains("127.1");
}

/// Every connection is in the diagnostics, with its host and without its content.
#[test]
fn connections_are_in_the_diagnostics() {
    let home = Home::outside_tmp().with_test_program();
    let server = Server::start();
    let to = server.address();
    let command = probes(&[&format!("connect {to}"), "connect evil.example:443"]);
    let model = home.script(shell(&command));
    let setting = network(&[&to]);
    let mut command = home.command(&["run", "--model", &model, "--set", &setting, "the task"]);
    let done = CommandResult::run(command.args(ON).env("BRIGADE_LOG", "debug"));
    let log = &done.exits_with(0).stderr;
    let line = |text: &str| log.lines().find(|line| line.contains("brigade::sandbox") && line.contains(text));
    let (opened, refused) = (line("connection opened").unwrap(), line("connection refused").unwrap());
    assert!(opened.contains(&to) && refused.contains("evil.example:443"), "{log}");
    assert!(!log.contains("hello"), "{log}");
}
