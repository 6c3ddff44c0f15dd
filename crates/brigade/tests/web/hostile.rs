//! Hostile servers and pages. Every call ends soon and reports the cause.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use brigade::tool::WebSettings;
use brigade_testing::{AfterResponse, HttpResponse};

use super::server::{Server, fetch, fetch_error, reply, settings};

/// Server that sends the first bytes and then the others again and again.
fn endless(first: &[u8], others: &[u8], pause: Duration) -> Server {
    let others = AfterResponse::Repeat { bytes: others.to_vec(), pause };
    Server::always(HttpResponse::raw(first).then(others))
}

#[test]
fn nested_pages_are_flattened() {
    let deep = format!("{}deep", "<div>".repeat((1 << 20) / 5));
    assert_eq!(fetch(&Server::page("text/html", deep).url("/")), "deep\n");
    let text = fetch(&Server::page("text/html", "<p><a href=/x><b>y".repeat(8000)).url("/"));
    assert!(text.starts_with("[**y**](http://127.0.0.1"), "{}", &text[..60]);
    let text = fetch(&Server::page("text/html", "<p><a><b>".repeat(8000) + "end").url("/"));
    assert_eq!(text, "**end**\n");
    let text = fetch(&Server::page("text/html", "<b>x".repeat(400_000)).url("/"));
    assert!(text.contains("too many elements"), "{}", text.len());
}

#[test]
fn gzip_bomb_is_bounded() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..200 {
        encoder.write_all(&vec![b'x'; 1 << 20]).unwrap();
    }
    let body = encoder.finish().unwrap();
    let whole = reply("200 OK", "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", &body);
    let text = fetch(&Server::always(whole).url("/"));
    assert!(
        text.contains("(the page is longer than 2097152 bytes; the rest was not read)"),
        "{}",
        text.len()
    );
}

#[test]
fn endless_body_is_truncated() {
    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    let server = endless(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
        &chunk,
        Duration::ZERO,
    );
    let text = fetch(&server.url("/"));
    assert!(
        text.contains("(the page is longer than 2097152 bytes; the rest was not read)"),
        "{}",
        text.len()
    );
}

/// This stream decompresses to nothing, however long it is.
#[test]
fn endless_empty_gzip_blocks_are_cut() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n";
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    // An empty stored block, repeated.
    let empty = [0, 0, 0, 0xff, 0xff].repeat(10_000);
    let server = endless(&[head.as_slice(), &gzip].concat(), &empty, Duration::ZERO);
    let text = fetch(&server.url("/"));
    assert!(text.contains("the rest was not read"), "{text}");
}

fn short_timeout() -> WebSettings {
    WebSettings { timeout: Duration::from_millis(700), ..settings() }
}

#[test]
fn silent_server_times_out() {
    let server = Server::always(HttpResponse::nothing().then(AfterResponse::Stall));
    let text = fetch_error(&short_timeout(), &server.url("/"));
    assert!(text.contains("cannot fetch 127.0.0.1: no complete response within 700 ms"), "{text}");
}

#[test]
fn dripping_server_times_out() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";
    let server = endless(head, b"x", Duration::from_millis(20));
    assert!(fetch_error(&short_timeout(), &server.url("/")).contains("within 700 ms"));
    let headers = endless(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n", Duration::from_millis(50));
    assert!(fetch_error(&short_timeout(), &headers.url("/")).contains("within 700 ms"));
}

#[test]
fn huge_headers_are_refused() {
    let server = endless(b"HTTP/1.1 200 OK\r\nA: ", &[b'x'; 1 << 16], Duration::ZERO);
    let text = fetch_error(&settings(), &server.url("/"));
    assert!(text.contains("incomplete or invalid"), "{text}");
    let many = endless(b"HTTP/1.1 200 OK\r\n", &b"A: b\r\n".repeat(10_000), Duration::ZERO);
    let text = fetch_error(&settings(), &many.url("/"));
    assert!(text.contains("incomplete or invalid"), "{text}");
}

/// Address of a server that answers TLS handshakes in plain text.
fn plain_text_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(reply("200 OK", "Content-Type: text/plain\r\n", "x").bytes());
        }
    });
    address
}

#[test]
fn broken_connections_are_reported() {
    let half = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf";
    let reset = Server::always(HttpResponse::raw(half));
    let text = fetch_error(&settings(), &reset.url("/"));
    assert!(text.contains("the response was incomplete or invalid"), "{text}");
    let text = fetch_error(&settings(), &Server::always(HttpResponse::nothing()).url("/"));
    assert!(text.contains("incomplete or invalid"), "{text}");
    let text = fetch_error(&settings(), &Server::always(HttpResponse::raw("SSH-2.0-x\r\n\r\n")).url("/"));
    assert!(text.contains("incomplete or invalid"), "{text}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let text = fetch_error(&settings(), &format!("http://127.0.0.1:{port}/"));
    assert!(text.contains("the connection failed"), "{text}");
    let text = fetch_error(&settings(), &format!("https://{}/", plain_text_server()));
    assert!(text.contains("the connection failed"), "{text}");
}
