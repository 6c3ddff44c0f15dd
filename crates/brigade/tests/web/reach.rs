//! What is never connected to.

use brigade::tool::WebSettings;
use serde_json::json;

use super::server::{Server, TIMEOUT, call, call_asking, fail, settings};

fn closed() -> WebSettings {
    WebSettings { timeout: TIMEOUT, ..WebSettings::default() }
}

#[test]
fn this_machine_is_closed_unless_it_is_opened() {
    let server = Server::page("text/plain", "inside");
    let port = server.port();
    for host in ["127.0.0.1", "localhost", "127.1", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]"] {
        let text = fail(&closed(), &format!("http://{host}:{port}/"));
        assert!(text.contains("port"), "{host}: {text}");
        let text = fail(&closed(), &format!("http://{host}/"));
        assert!(text.contains("web.allow_loopback") && text.contains("is this machine"), "{host}: {text}");
    }
    assert_eq!(server.requests().len(), 0, "nobody may have connected");
}

#[test]
fn private_networks_stay_closed_even_then() {
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
        for settings in [closed(), settings()] {
            let text = fail(&settings, &format!("http://{host}/latest/meta-data/"));
            assert!(text.contains("which this tool never reaches; use a public address"), "{host}: {text}");
        }
    }
    let text = fail(&settings(), "http://1.1.1.1:8080/");
    assert!(text.contains("port 8080 is closed"), "{text}");
}

#[test]
fn redirects_open_nothing() {
    let inside = Server::page("text/plain", "inside");
    for (target, says) in [
        ("http://169.254.169.254/latest", "never reaches"),
        ("http://10.0.0.1/", "never reaches"),
        ("http://[fd00:ec2::254]/", "never reaches"),
        ("http://0/", "never reaches"),
        ("file:///etc/passwd", "only http and https"),
        ("http://user:hunter2@127.0.0.1/", "user name or password"),
        ("http://1.1.1.1:22/", "port 22 is closed"),
        ("gopher://127.0.0.1/", "only http and https"),
    ] {
        let text = fail(&settings(), &Server::redirect(target).url("/"));
        assert!(text.contains(says) && !text.contains("hunter2"), "{target}: {text}");
    }
    assert_eq!(inside.requests().len(), 0);
}

#[test]
fn a_loop_of_redirects_ends() {
    let server = Server::redirect("/again");
    let text = fail(&settings(), &server.url("/"));
    assert!(text.contains("redirects more than 5 times"), "{text}");
    assert_eq!(server.requests().len(), 6);
}

#[test]
fn a_redirect_does_not_escape_a_rule() {
    let inside = Server::page("text/plain", "inside");
    let first = Server::redirect(format!("http://localhost:{}/", inside.port()));
    let rules = ["web_fetch(localhost)"];
    let output = call(&settings(), &rules, "web_fetch", json!({ "url": first.url("/") }));
    assert!(output.is_error(), "{}", output.text);
    let says = "it redirects to localhost, and `web_fetch(localhost)` in permissions.deny forbids this";
    assert!(output.text.as_str().contains(says), "{}", output.text);
    assert_eq!(inside.requests().len(), 0);
    assert!(!call(&settings(), &[], "web_fetch", json!({ "url": first.url("/") })).is_error());
    assert_eq!(inside.requests().len(), 1);
}

#[test]
fn a_redirect_is_asked_about_by_its_own_host() {
    let inside = Server::page("text/plain", "inside");
    let first = Server::redirect(format!("http://localhost:{}/", inside.port()));
    let asked = json!({ "url": first.url("/") });
    let output = call_asking(&settings(), &["web_fetch", "web_fetch(localhost)"], "web_fetch", asked.clone());
    let says = "the rule `web_fetch(localhost)` asks before that is fetched";
    assert!(output.text.as_str().contains(says), "{}", output.text);
    // Whoever was asked about the tool alone has answered for the whole call.
    assert!(!call_asking(&settings(), &["web_fetch"], "web_fetch", asked).is_error());
}

#[test]
fn names_that_do_not_exist_are_told() {
    let text = fail(&closed(), "https://does-not-exist.invalid/");
    assert!(text.starts_with("does-not-exist.invalid was not fetched: the name is not known"), "{text}");
}
