//! Servers of providers and pages that redirect with the key, or never end.

use brigade_testing::{HttpResponse, HttpServer, Script, call, reply};
use serde_json::json;

use crate::cli::support::{CommandResult, Home};
use crate::hostile::place::{Place, SECRET};

/// Redirects of a provider: the status, and the place that it names.
const REDIRECTS: [(&str, &str); 10] = [
    ("301 Moved Permanently", "http://127.0.0.1:@TCP/v1/chat/completions"),
    ("302 Found", "http://127.0.0.1:@TCP/v1/chat/completions"),
    ("303 See Other", "http://127.0.0.1:@TCP/"),
    ("307 Temporary Redirect", "http://127.0.0.1:@TCP/v1/chat/completions"),
    ("308 Permanent Redirect", "http://127.0.0.1:@TCP/v1/chat/completions"),
    ("307 Temporary Redirect", "//127.0.0.1:@TCP/"),
    ("307 Temporary Redirect", "http://user:pass@127.0.0.1:@TCP/"),
    ("307 Temporary Redirect", "HTTP:127.0.0.1:@TCP"),
    ("300 Multiple Choices", "http://127.0.0.1:@TCP/"),
    ("200 OK\r\nRefresh: 0;url=http://127.0.0.1:@TCP/", "http://127.0.0.1:@TCP/"),
];
const KINDS: [&str; 4] = ["openai", "responses", "anthropic", "gemini"];

/// Pages that are large when they are parsed.
const PAGES: [fn() -> String; 6] = [
    || "<div>".repeat(200_000),
    || "<p><a><b>".repeat(8_000),
    || format!("<table>{}", "<tr><td><table>".repeat(20_000)),
    || format!("<a {}>x</a>", "x=y ".repeat(200_000)),
    || "&amp;".repeat(300_000),
    || format!("<!--{}", "<!--".repeat(300_000)),
];

pub(crate) fn inputs() -> Vec<u8> {
    let redirects = std::iter::repeat_n(27, REDIRECTS.len() + 1);
    redirects.chain(std::iter::repeat_n(36, PAGES.len() + 3)).collect()
}

/// The key of a provider is not sent to another server, and is in nothing that is shown or stored.
#[test]
fn h27_provider_redirect_is_not_followed() {
    for (at, (status, location)) in REDIRECTS.into_iter().enumerate() {
        let mut place = Place::new();
        let location = format!("Location: {}\r\n", place.fill_in(location, "0"));
        let response = HttpResponse::with_headers(&place.fill_in(status, "0"), &location, SECRET);
        let server = HttpServer::always(response);
        let kind = format!("providers.far.kind={}", KINDS[at % KINDS.len()]);
        let base = format!("providers.far.base_url={}", server.url("/v1"));
        let key = "providers.far.api_key_env=ANTHROPIC_API_KEY";
        let arguments = [
            "run",
            "-v",
            "--model",
            "far/x",
            "--set",
            &kind,
            "--set",
            &base,
            "--set",
            key,
            "--timeout",
            "10s",
            "x",
        ];
        let mut command = place.brigade(&arguments);
        let done = CommandResult::run(&mut command);
        assert_ne!(done.code, 0, "{status}: {}", done.stdout);
        assert!(!server.requests().is_empty(), "{status}: {}", done.stderr);
        let shown = CommandResult::run(&mut place.brigade(&["sessions", "export", "last"]));
        for text in [&done.stdout, &done.stderr, &shown.stdout] {
            assert!(!text.contains(SECRET), "{status}: {text}");
        }
        assert_eq!(place.violations(), Vec::<String>::new(), "{status}");
    }
}

fn fetch(url: &str, arguments: &[&str]) -> String {
    let script = Script::new().turns([call("web_fetch", json!({ "url": url })), reply("{results}")]);
    let home = Home::new();
    let done = home.run(
        script,
        &[&["--set", "web.allow_loopback=true", "--set", "web.timeout=\"5s\""], arguments].concat(),
    );
    done.exits_with(0).stdout.clone()
}

#[test]
fn h27_page_redirect_to_a_private_network_is_not_followed() {
    let place = Place::new();
    let location = format!("Location: http://169.254.169.254:{}/\r\n", place.tcp_port());
    let server = HttpServer::always(HttpResponse::with_headers("302 Found", &location, ""));
    let result = fetch(&server.url("/"), &[]);
    assert!(result.contains("cannot fetch"), "{result}");
}

/// A page takes bounded time and space. The result is bounded, too.
#[test]
fn h36_pages_are_bounded() {
    let html = "Content-Type: text/html\r\n";
    let pages = PAGES.map(|page| HttpResponse::with_headers("200 OK", html, page()));
    let endless = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
        .to_owned()
        + &"10\r\n<div><div><p>aaa\r\n".repeat(4_000);
    let zeros =
        HttpResponse::with_headers("200 OK", &format!("{html}Content-Encoding: gzip\r\n"), gzip_bomb());
    let claimed = HttpResponse::raw("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx");
    for page in pages.into_iter().chain([HttpResponse::raw(endless), zeros, claimed]) {
        let server = HttpServer::always(page);
        let result = fetch(&server.url("/"), &["--timeout", "30s"]);
        assert!(result.len() < 200_000, "{} bytes", result.len());
    }
}

/// Stored blocks of the compression format: a header, and a block that claims 65,535 zeros again and again.
fn gzip_bomb() -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    for _ in 0..60 {
        bytes.extend([0, 0xff, 0xff, 0, 0]);
        bytes.extend(std::iter::repeat_n(0, 65_535));
    }
    bytes
}
