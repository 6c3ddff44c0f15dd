//! Reuse of connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade::model::Endpoint;
use brigade::model::openai::OpenAi;

use super::recorded::OPENAI_TEXT;
use super::server::{ask, question};

/// Answers all requests of one connection, in chunks of which the last is late.
fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut length = 0;
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 && line != "\r\n" {
            if let Some(number) = line.to_lowercase().strip_prefix("content-length: ") {
                length = number.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        if length == 0 {
            return Ok(());
        }
        reader.read_exact(&mut vec![0; length])?;
        let size = OPENAI_TEXT.len();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}{size:x}\r\n{OPENAI_TEXT}\r\n").as_bytes())?;
        std::thread::sleep(Duration::from_millis(5));
        stream.write_all(b"0\r\n\r\n")?;
    }
}

#[tokio::test]
async fn connection_is_reused_for_later_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || serve(stream));
        }
    });
    let model = OpenAi::compatible(Endpoint::new("mock", &url, None).unwrap());
    for _ in 0..20 {
        ask(&model, question()).await.unwrap();
    }
    let connections = connections.load(Ordering::SeqCst);
    assert!(connections <= 3, "{connections} connections for 20 requests");
}
