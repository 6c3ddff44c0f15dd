//! Runs the examples. `quick_start.rs` runs in the tests of the models, because it needs a server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

#[path = "../../examples/approvals.rs"]
mod approvals;
#[expect(dead_code, reason = "the test passes the webhook itself")]
#[path = "../../examples/chat_messages.rs"]
mod chat_messages;
#[path = "../../examples/custom_tool.rs"]
mod custom_tool;
#[path = "../../examples/embedded.rs"]
mod embedded;
#[path = "../../examples/lifecycle.rs"]
mod lifecycle;

#[test]
fn examples_run() {
    approvals::main().unwrap();
    custom_tool::main().unwrap();
    embedded::main().unwrap();
    lifecycle::main().unwrap();
}

/// Starts a chat program: a webhook that answers every post with this status. Returns its URL and the bodies.
fn webhook(status: &'static str) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hooks/1", listener.local_addr().unwrap());
    let (sender, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
            if sender.send(String::from_utf8(body).unwrap()).is_err() {
                return;
            }
        }
    });
    (url, bodies)
}

#[tokio::test]
async fn chat_example_posts_the_messages_of_all_agents_in_order() {
    for status in ["200 OK", "503 Service Unavailable"] {
        let (url, bodies) = webhook(status);
        let result = chat_messages::run_with_chat(&url).await.unwrap();
        assert_eq!(result.text(), "Done.");
        let posted: Vec<String> = bodies.try_iter().collect();
        assert_eq!(
            posted,
            [r#"{"text":"[lead] I start with the tests."}"#, r#"{"text":"[Tester] Two of 40 tests fail."}"#],
            "{status}"
        );
    }
}
