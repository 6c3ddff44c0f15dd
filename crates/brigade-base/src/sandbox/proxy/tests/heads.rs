//! Heads of requests to the proxy.

use super::super::head::{self, ForwardRequest, ProxyRequest};
use super::Rng;

fn parse(lines: &str) -> Result<ProxyRequest, u16> {
    head::parse(format!("{}\r\n\r\n", lines.replace('\n', "\r\n")).as_bytes()).map_err(|error| error.status)
}

fn forwarded(lines: &str) -> ForwardRequest {
    match parse(lines) {
        Ok(ProxyRequest::Forward(request)) => request,
        other => panic!("{lines}: {other:?}"),
    }
}

#[test]
fn tunnel_needs_a_host_and_a_port() {
    for (line, expected) in [
        ("CONNECT example.com:443 HTTP/1.1\nHost: example.com:443\nUser-Agent: x", "example.com:443"),
        ("CONNECT EXAMPLE.com.:8443 HTTP/1.0", "example.com:8443"),
        ("CONNECT [fd00::1]:80 HTTP/1.1", "[fd00::1]:80"),
    ] {
        match parse(line) {
            Ok(ProxyRequest::Connect(target)) => assert_eq!(target.to_string(), expected),
            other => panic!("{line}: {other:?}"),
        }
    }
    for authority in [
        "example.com",
        "example.com:",
        "example.com:0443",
        "example.com:443:80",
        "http://example.com:443",
        "example.com:443/",
        "ok.com@evil.com:443",
        "ok.com:443@evil.com:443",
        "evil.com%00.ok.com:443",
        "127.1:443",
        "0x7f.1:443",
        "2130706433:443",
        "017700000001:443",
        "[::1%lo]:443",
        "*:443",
        ":443",
        "example.com:443#",
        "/",
    ] {
        assert_eq!(parse(&format!("CONNECT {authority} HTTP/1.1")), Err(400), "{authority}");
    }
    assert_eq!(parse("CONNECT a.b:443 HTTP/1.1\nContent-Length: 5"), Err(400));
    assert_eq!(parse("CONNECT a.b:443 HTTP/1.1\nTransfer-Encoding: chunked"), Err(400));
    assert_eq!(parse("connect a.b:443 HTTP/1.1"), Err(400));
}

#[test]
fn forwarded_head_is_about_one_request() {
    let request = forwarded(
        "GET HTTP://Example.com/a/b?q=1 HTTP/1.1\nHost: example.com\nAccept: */*\nConnection: X-Secret, keep-alive\n\
         X-Secret: 1\nProxy-Authorization: Basic eA==\nProxy-Connection: keep-alive\nTE: trailers\nUpgrade: h2c\n\
         Cookie: a=b",
    );
    assert_eq!(request.target.to_string(), "example.com:80");
    assert_eq!(
        String::from_utf8(request.head).unwrap(),
        "GET /a/b?q=1 HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\nAccept: */*\r\nCookie: a=b\r\n\r\n"
    );
    let request = forwarded(
        "POST http://example.com:8080?x HTTP/1.1\nHost: EXAMPLE.com:8080\nContent-Length: 12\nConnection: content-length",
    );
    assert_eq!(
        (request.body_bytes, String::from_utf8(request.head).unwrap().as_str()),
        (
            12,
            "POST /?x HTTP/1.1\r\nHost: example.com:8080\r\nConnection: close\r\nContent-Length: 12\r\n\r\n"
        )
    );
    assert!(
        forwarded("GET http://example.com HTTP/1.0")
            .head
            .starts_with(b"GET / HTTP/1.1\r\nHost: example.com\r\n")
    );
}

#[test]
fn ambiguous_requests_are_refused() {
    let get = "GET http://ok.com/ HTTP/1.1\nHost: ok.com";
    for (lines, status) in [
        ("GET / HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("GET ok.com/ HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("GET https://ok.com/ HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("GET ftp://ok.com/ HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("GET http:///x HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("GET http://ok.com@evil.com/ HTTP/1.1\nHost: evil.com".to_owned(), 400),
        ("GET http://ok.com\\@evil.com/ HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("GET http://ok.com#@evil.com/ HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("GET http://127.1/ HTTP/1.1\nHost: 127.1".to_owned(), 400),
        ("GET http://ok.com/ HTTP/1.1".to_owned(), 400),
        ("GET http://ok.com/ HTTP/1.1\nHost: evil.com".to_owned(), 400),
        ("GET http://ok.com/ HTTP/1.1\nHost: ok.com:81".to_owned(), 400),
        ("GET http://ok.com/ HTTP/1.1\nHost:".to_owned(), 400),
        ("GET http://ok.com/ HTTP/1.0\nHost: evil.com".to_owned(), 400),
        (format!("{get}\nHost: ok.com"), 400),
        (format!("{get}\nhost: evil.com"), 400),
        (format!("{get}\nHost : evil.com"), 400),
        (format!("{get}\nContent-Length: 5\nContent-Length: 5"), 400),
        (format!("{get}\nContent-Length: 5\nTransfer-Encoding: chunked"), 400),
        (format!("{get}\nTransfer-Encoding: chunked"), 411),
        (format!("{get}\nTransfer-Encoding: identity"), 411),
        (format!("{get}\nContent-Length: +5"), 400),
        (format!("{get}\nContent-Length: 5, 5"), 400),
        (format!("{get}\nContent-Length: 0x5"), 400),
        (format!("{get}\nContent-Length:"), 400),
        (format!("{get}\nContent-Length: 99999999999999999999"), 400),
        (format!("{get}\nX: a\n folded: b"), 400),
        (format!("{get}\nX: \0"), 400),
        (format!("{get}\nX: a\rEvil: b"), 400),
        (format!("{get}\nBad Name: b"), 400),
        (format!("{get}\n: b"), 400),
        (format!("{get} "), 400),
        ("GET  http://ok.com/ HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("GET http://ok.com/ x HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("GET http://ok.com/ HTTP/2.0\nHost: ok.com".to_owned(), 400),
        ("GET http://ok.com/\u{e9} HTTP/1.1\nHost: ok.com".to_owned(), 400),
        ("PRI * HTTP/2.0".to_owned(), 400),
        ("\u{16}\u{3}\u{1}".to_owned(), 400),
        (format!("{get}{}", "\nX: y".repeat(120)), 431),
    ] {
        let result = parse(&lines);
        // A space after the host is dropped, as RFC 9110 requires.
        if lines.ends_with("ok.com ") {
            assert!(result.is_ok());
        } else {
            assert_eq!(result, Err(status), "{lines:?}");
        }
    }
    for bytes in [
        "GET http://ok.com/ HTTP/1.1\nHost: ok.com\n\n",
        "\r\nGET http://ok.com/ HTTP/1.1\r\n\r\n",
        "",
        "\r\n\r\n",
    ] {
        assert!(head::parse(bytes.as_bytes()).is_err(), "{bytes:?}");
    }
    assert!(head::parse(b"GET http://ok.com/ HTTP/1.1\nHost: ok.com\r\n\r\n").is_err(), "a line without CR");
}

const SEEDS: [&str; 4] = [
    "GET http://ok.com/a HTTP/1.1\r\nHost: ok.com\r\nAccept: */*\r\n\r\n",
    "POST http://ok.com:81/?a=b HTTP/1.1\r\nHost: ok.com:81\r\nContent-Length: 3\r\nConnection: close, te\r\n\r\n",
    "CONNECT ok.com:443 HTTP/1.1\r\nHost: ok.com:443\r\n\r\n",
    "GET http://[fd00::1]:80/ HTTP/1.0\r\nX: \u{e9}\r\n\r\n",
];
const PIECES: [&str; 20] = [
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    "\t",
    ":",
    "@",
    "Host: evil.com\r\n",
    "Content-Length: 9\r\n",
    "\r\n\r\n",
    "#",
    "http://",
    "Transfer-Encoding: chunked\r\n",
    "127.1",
    "%0d%0a",
    ",",
    "0",
    "Connection: host\r\n",
    "\u{430}",
];

/// A mutated head never panics. If it is accepted, exactly one request reaches the host that was checked.
/// `FUZZ=N` sets the number of cases.
#[test]
fn mutated_heads_are_refused_or_name_one_host() {
    let cases = super::fuzz_cases(30_000);
    let mut accepted = 0;
    for case in 0..cases {
        let mut rng = Rng(case);
        let mut bytes = SEEDS[rng.below(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..=rng.below(3) {
            rng.mutate(&mut bytes, &PIECES);
        }
        let Some(length) = head::head_length(&bytes) else { continue };
        let Ok(ProxyRequest::Forward(request)) = head::parse(&bytes[..length]) else { continue };
        accepted += 1;
        let shown = String::from_utf8_lossy(&request.head).into_owned();
        let context = format!("case {case}: {shown:?}");
        assert_eq!(head::head_length(&request.head), Some(request.head.len()), "{context}");
        let lines: Vec<&str> = shown.split("\r\n").collect();
        assert!(!lines.iter().any(|line| line.contains(['\n', '\r', '\0'])), "{context}");
        let count = |name: &str| {
            lines
                .iter()
                .filter(|line| line.split(':').next().is_some_and(|it| it.eq_ignore_ascii_case(name)))
                .count()
        };
        assert_eq!((count("host"), count("connection"), count("transfer-encoding")), (1, 1, 0), "{context}");
        let host = request.target.to_string();
        assert_eq!(lines[1], format!("Host: {}", host.strip_suffix(":80").unwrap_or(&host)), "{context}");
        assert_eq!(lines[2], "Connection: close", "{context}");
        match request.body_bytes {
            0 => assert!(count("content-length") <= 1, "{context}"),
            length => assert!(lines.contains(&format!("Content-Length: {length}").as_str()), "{context}"),
        }
        // The server reads it as the same request.
        let mut headers = [httparse::EMPTY_HEADER; 128];
        let mut read = httparse::Request::new(&mut headers);
        assert!(read.parse(&request.head).unwrap().is_complete(), "{context}");
        assert!(read.path.unwrap().starts_with('/'), "{context}");
    }
    assert!(cases < 10_000 || accepted > cases / 50, "{accepted} of {cases} cases were accepted");
}
