//! Addresses that are never connected to.

use brigade::tool::WebSettings;
use serde_json::json;

use super::server::{Server, TIMEOUT, call, call_asking, fetch_error, settings};

fn default_settings() -> WebSettings {
    WebSettings { timeout: TIMEOUT, ..WebSettings::default() }
}

#[test]
fn loopback_is_blocked_by_default() {
    let server = Server::page("text/plain", "inside");
    let port = server.port();
    for host in ["127.0.0.1", "localhost", "127.1", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]"] {
        let text = fetch_error(&default_settings(), &format!("http://{host}:{port}/"));
        assert!(text.contains("port"), "{host}: {text}");
        let text = fetch_error(&default_settings(), &format!("http://{host}/"));
        assert!(text.contains("web.allow_loopback") && text.contains("is this machine"), "{host}: {text}");
    }
    assert_eq!(server.connections(), 0, "nobody may have connected");
}

#[test]
fn private_networks_stay_blocked_with_loopback_allowed() {
    for host in [
        "10.0.0.1",
        "192.168.0.1",
        "172.16.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[::]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:a00:1::]",
    ] {
        for settings in [default_settings(), settings()] {
            let text = fetch_error(&settings, &format!("http://{host}/latest/meta-data/"));
            assert!(text.contains("which is not allowed. Use a public address"), "{host}: {text}");
        }
    }
    let text = fetch_error(&settings(), "http://1.1.1.1:8080/");
    assert!(text.contains("port 8080 is not allowed"), "{text}");
}

#[test]
fn redirect_to_a_blocked_address_is_refused() {
    let inside = Server::page("text/plain", "inside");
    for (target, expected) in [
        ("http://169.254.169.254/latest", "which is not allowed"),
        ("http://10.0.0.1/", "which is not allowed"),
        ("http://[fd00:ec2::254]/", "which is not allowed"),
        ("http://0/", "which is not allowed"),
        ("file:///etc/passwd", "only http and https"),
        ("http://user:hunter2@127.0.0.1/", "user name or password"),
        ("http://1.1.1.1:22/", "port 22 is not allowed"),
        ("gopher://127.0.0.1/", "only http and https"),
    ] {
        let text = fetch_error(&settings(), &Server::redirect(target).url("/"));
        assert!(text.contains(expected) && !text.contains("hunter2"), "{target}: {text}");
    }
    assert_eq!(inside.connections(), 0);
}

#[test]
fn redirect_loop_ends() {
    let server = Server::redirect("/again");
    let text = fetch_error(&settings(), &server.url("/"));
    assert!(text.contains("more than 5 redirects"), "{text}");
    assert_eq!(server.requests().len(), 6);
}

#[test]
fn redirect_obeys_deny_rules() {
    let inside = Server::page("text/plain", "inside");
    let first = Server::redirect(format!("http://localhost:{}/", inside.port()));
    let rules = ["web_fetch(localhost)"];
    let output = call(&settings(), &rules, "web_fetch", json!({ "url": first.url("/") }));
    assert!(output.is_error(), "{}", output.text);
    let expected = "it redirects to localhost, which is denied: the rule `web_fetch(localhost)` in `permissions.deny` forbids it";
    assert!(output.text.as_str().contains(expected), "{}", output.text);
    assert_eq!(inside.connections(), 0);
    assert!(!call(&settings(), &[], "web_fetch", json!({ "url": first.url("/") })).is_error());
    assert_eq!(inside.connections(), 1);
}

#[test]
fn redirect_obeys_ask_rules_of_its_own_host() {
    let inside = Server::page("text/plain", "inside");
    let first = Server::redirect(format!("http://localhost:{}/", inside.port()));
    let asked = json!({ "url": first.url("/") });
    let output = call_asking(&settings(), &["web_fetch", "web_fetch(localhost)"], "web_fetch", asked.clone());
    let expected = "the rule `web_fetch(localhost)` requires approval";
    assert!(output.text.as_str().contains(expected), "{}", output.text);
    // An approval of the tool as a whole covers the whole call.
    assert!(!call_asking(&settings(), &["web_fetch"], "web_fetch", asked).is_error());
}

#[test]
fn unknown_host_is_reported() {
    let text = fetch_error(&default_settings(), "https://does-not-exist.invalid/");
    assert!(text.starts_with("cannot fetch does-not-exist.invalid: unknown host"), "{text}");
}
