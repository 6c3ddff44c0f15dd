//! Hostile servers and pages. Every call ends soon and reports the cause.

use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use brigade::tool::WebSettings;

use super::server::{Server, fetch, fetch_error, reply, send, settings};

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
    let text = fetch(&Server::start(move |_, stream| send(stream, &whole)).url("/"));
    assert!(
        text.contains("(the page is longer than 2097152 bytes; the rest was not read)"),
        "{}",
        text.len()
    );
}

#[test]
fn endless_body_is_truncated() {
    let server = Server::start(|_, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
        while stream.write_all(&chunk).is_ok() {}
    });
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
    let server = Server::start(|_, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n");
        send(stream, &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
        // An empty stored block, repeated.
        let empty = [0, 0, 0, 0xff, 0xff].repeat(10_000);
        while stream.write_all(&empty).is_ok() {}
    });
    let text = fetch(&server.url("/"));
    assert!(text.contains("the rest was not read"), "{text}");
}

fn short_timeout() -> WebSettings {
    WebSettings { timeout: Duration::from_millis(700), ..settings() }
}

#[test]
fn silent_server_times_out() {
    let server = Server::start(|_, _| std::thread::sleep(Duration::from_secs(10)));
    let text = fetch_error(&short_timeout(), &server.url("/"));
    assert!(text.contains("cannot fetch 127.0.0.1: no complete response within 700 ms"), "{text}");
}

#[test]
fn dripping_server_times_out() {
    let server = Server::start(|_, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(fetch_error(&short_timeout(), &server.url("/")).contains("within 700 ms"));
    let headers = Server::start(|_, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"A: b\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(fetch_error(&short_timeout(), &headers.url("/")).contains("within 700 ms"));
}

#[test]
fn huge_headers_are_refused() {
    let server = Server::start(|_, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\nA: ");
        for _ in 0..1000 {
            if stream.write_all(&[b'x'; 1 << 16]).is_err() {
                break;
            }
        }
    });
    let text = fetch_error(&settings(), &server.url("/"));
    assert!(text.contains("incomplete or invalid"), "{text}");
    let many = Server::start(|_, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"A: b\r\n").is_ok() {}
    });
    let text = fetch_error(&settings(), &many.url("/"));
    assert!(text.contains("incomplete or invalid"), "{text}");
}

#[test]
fn broken_connections_are_reported() {
    let reset = Server::start(|_, stream| {
        send(stream, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf");
    });
    let text = fetch_error(&settings(), &reset.url("/"));
    assert!(text.contains("the response was incomplete or invalid"), "{text}");
    let text = fetch_error(&settings(), &Server::start(|_, _| {}).url("/"));
    assert!(text.contains("incomplete or invalid"), "{text}");
    let text =
        fetch_error(&settings(), &Server::start(|_, stream| send(stream, b"SSH-2.0-x\r\n\r\n")).url("/"));
    assert!(text.contains("incomplete or invalid"), "{text}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let text = fetch_error(&settings(), &format!("http://127.0.0.1:{port}/"));
    assert!(text.contains("the connection failed"), "{text}");
    let text = fetch_error(&settings(), &Server::page("text/plain", "x").url("/").replace("http:", "https:"));
    assert!(text.contains("the connection failed"), "{text}");
}
