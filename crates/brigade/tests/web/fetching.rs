//! Pages of well-behaved servers.

use std::io::Write;

use brigade_core::event::Effect;
use brigade_core::permission::{ActionKind, Subject};
use serde_json::json;

use super::server::{Server, call, fetch, fetch_error, reply, settings};

#[test]
fn html_page_becomes_markdown() {
    let page = "<!doctype html><title>Tea</title><body><h1>How to make tea</h1><script>track()</script>\
                <p>Take <b>hot</b> water, see <a href='/cups'>cups</a>.<ul><li>green<li>black</ul>";
    let server = Server::page("text/html; charset=utf-8", page);
    let cups = server.url("/cups");
    assert_eq!(
        fetch(&server.url("/tea")),
        format!(
            "Title: Tea\n\n# How to make tea\n\nTake **hot** water, see [cups]({cups}).\n\n- green\n- black\n"
        )
    );
    let request = server.requests().remove(0).to_lowercase();
    assert!(request.starts_with("get /tea http/1.1\r\n"), "{request}");
    assert!(
        request.contains("user-agent: brigade/") && request.contains("accept-encoding: gzip\r\n"),
        "{request}"
    );
    assert!(!request.contains("cookie") && !request.contains("referer"), "{request}");
}

#[test]
fn text_is_returned_unchanged() {
    let body = "# a\n\n<b>*x*</b>\n";
    for kind in ["text/plain", "text/markdown", "application/json", "application/feed+json", "text/csv"] {
        assert_eq!(fetch(&Server::page(kind, body).url("/")), body, "{kind}");
    }
    let untyped = |body: &'static str| Server::always(reply("200 OK", "", body));
    assert_eq!(fetch(&untyped("plain <b>").url("/")), "plain <b>");
    assert_eq!(fetch(&untyped("<!DOCTYPE html><b>x</b>").url("/")), "**x**\n");
    assert_eq!(fetch(&Server::page("text/html", "<p> ").url("/")), "(the page has no text)\n");
}

#[test]
fn legacy_charsets_are_decoded() {
    assert!(
        fetch(&Server::page("text/html; charset=windows-1252", b"<p>na\xefve \x80").url("/"))
            .contains("naïve €")
    );
    assert!(
        fetch(&Server::page("text/html", b"<meta charset=koi8-r><p>\xd7\xcf\xc4\xc1").url("/"))
            .contains("вода")
    );
    assert!(fetch(&Server::page("text/plain", b"caf\xe9 au lait").url("/")).contains("café"));
    assert!(fetch(&Server::page("text/html; charset=nonsense", "<p>é").url("/")).contains('é'));
}

#[test]
fn gzip_pages_are_read() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all("<p>hello".repeat(1000).as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    let headers = "Content-Type: text/html\r\nContent-Encoding: gzip\r\n";
    let whole = reply("200 OK", headers, &body);
    let server = Server::always(whole);
    assert_eq!(fetch(&server.url("/")).matches("hello").count(), 1000);

    let broken = reply("200 OK", headers, &body[..body.len() / 2]);
    let server = Server::always(broken);
    assert!(fetch_error(&settings(), &server.url("/")).contains("incomplete or invalid"));
    let other = reply("200 OK", "Content-Type: text/html\r\nContent-Encoding: br\r\n", b"x");
    let server = Server::always(other);
    assert!(fetch_error(&settings(), &server.url("/")).contains("content encoding `br`"));
}

#[test]
fn long_page_is_read_in_parts() {
    let server = Server::page("text/plain; charset=utf-8", "aé".repeat(100));
    let part = |offset: u64, limit: u64| {
        let arguments = json!({ "url": server.url("/"), "offset": offset, "limit": limit });
        call(&settings(), &[], "web_fetch", arguments)
    };
    assert_eq!(part(0, 3).text.as_str(), "aé\n(297 more bytes; continue with offset 3)\n");
    assert_eq!(part(3, 2).text.as_str(), "a\n(296 more bytes; continue with offset 4)\n");
    assert_eq!(part(4, 1).text.as_str(), "é\n(294 more bytes; continue with offset 6)\n");
    assert_eq!(part(297, 100).text.as_str(), "aé");
    assert!(part(300, 1).text.as_str().contains("300 bytes") && part(300, 1).is_error());
    assert!(part(0, 0).is_error());
    let usual = fetch(&Server::page("text/plain", "x".repeat(100_000)).url("/"));
    assert!(usual.ends_with("\n(34464 more bytes; continue with offset 65536)\n"), "{}", usual.len());
}

#[test]
fn redirects_are_followed_and_reported() {
    let end = Server::page("text/plain", "here");
    let first = Server::redirect(end.url("/end"));
    assert_eq!(fetch(&first.url("/")), format!("here\n(redirected to {})\n", end.url("/end")));
    let relative = Server::start(|request| {
        let more = request.starts_with("GET /a ");
        let (status, headers) = if more { ("301 Moved", "Location: b\r\n") } else { ("200 OK", "") };
        reply(status, headers, "there")
    });
    assert!(fetch(&relative.url("/a")).starts_with("there\n(redirected to "));
}

#[test]
fn error_statuses_and_binary_types_are_reported() {
    for (status, expected) in [
        ("404 Not Found", "returned 404 Not Found. The page does not exist"),
        ("403 Forbidden", "not public"),
        ("429 Slow Down", "Wait before"),
        ("503 Down", "Try again later"),
        ("302 Found", "invalid redirect"),
    ] {
        let whole = reply(status, "Content-Type: text/html\r\n", b"<p>secret");
        let text = fetch_error(&settings(), &Server::always(whole).url("/"));
        assert!(text.starts_with("cannot fetch 127.0.0.1: ") && text.contains(expected), "{text}");
    }
    for kind in ["image/png", "application/pdf", "application/octet-stream"] {
        let text = fetch_error(&settings(), &Server::page(kind, "x").url("/"));
        assert!(text.contains(kind) && text.contains("only HTML and text"), "{text}");
    }
    let text = fetch_error(&settings(), &Server::page("text/plain", "a\0b").url("/"));
    assert!(text.contains("binary"), "{text}");
}

#[test]
fn check_reports_the_host() {
    let toolbox = brigade::Toolbox::new().with_web(settings());
    let tool = toolbox.get("web_fetch").unwrap();
    assert_eq!((tool.effect(), tool.network()), (Effect::Pure, true));
    assert_eq!(tool.spec().schema["properties"]["url"]["type"], "string");
    let mut seen = Vec::new();
    let mut judge = |action: &brigade_core::permission::Action<'_>| {
        assert_eq!(action.kind, ActionKind::Pure);
        if let Subject::Host(host) = action.subject {
            seen.push(host.to_owned());
        }
    };
    for url in
        ["https://WWW.Example.com:443/a?b#c", "http://[::1]/", "http://0177.1/", "https://bücher.example"]
    {
        tool.check(&json!({ "url": url }), &mut judge).unwrap();
    }
    assert_eq!(seen, ["www.example.com", "[::1]", "127.0.0.1", "xn--bcher-kva.example"]);
    let wrong = tool.check(&json!({ "url": "example.com" }), &mut |_| {}).unwrap_err();
    assert!(wrong.text.as_str().contains("https://example.com/page"), "{}", wrong.text);
}
