//! The helpers, used as another crate would.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use brigade::core::{Message, Purpose, SessionId, Usage};
use brigade::model::anthropic::Anthropic;
use brigade::model::gemini::Gemini;
use brigade::model::openai::OpenAi;
use brigade::model::responses::Responses;
use brigade::model::{Chunk, Endpoint, Ingest, Model, Request};
use brigade_testing::{
    AfterResponse, Fault, HttpResponse, HttpServer, ModelReply, Script, ToolTest, WireFormat, call, fault,
    reply,
};
use futures::StreamExt;
use serde_json::json;

fn request(agent: &str, turn: u32) -> Request {
    Request {
        session: SessionId::root(1),
        agent: agent.to_owned(),
        role: None,
        turn,
        attempt: 1,
        purpose: Purpose::Turn,
        model: "small".to_owned(),
        system: "You help.".into(),
        tools: [].into(),
        messages: vec![Message::User("the task".into())],
        max_tokens: 100,
        temperature: None,
        remote_context: None,
    }
}

async fn text(script: &Script, request: Request) -> String {
    let chunks: Vec<_> = script.model().stream(request).collect().await;
    chunks
        .into_iter()
        .filter_map(|chunk| match chunk {
            Ok(Chunk::Text(text)) => Some(text),
            Ok(Chunk::Call { name, .. }) => Some(format!("[{name}]")),
            Ok(_) => None,
            Err(error) => Some(format!("error: {error}")),
        })
        .collect()
}

#[tokio::test]
async fn script_of_an_agent_has_one_reply_for_each_turn() {
    let script = Script::new()
        .agent("lead", [call("a", json!({})), call("b", json!({})).repeat(2), reply("{task}")])
        .reply(fault(Fault::Refused));
    for (turn, expected) in [(1, "[a]"), (2, "[b][b]"), (3, "the task"), (4, "the task")] {
        assert_eq!(text(&script, request("lead", turn)).await, expected);
    }
    assert!(text(&script, request("other", 1)).await.starts_with("error: "));
}

#[test]
fn script_with_every_key_is_a_script_file() {
    let script =
        Script::new().window(8_000).price(3.0, 15.0).journal(std::path::Path::new("/tmp/journal")).reply(
            reply("a")
                .agent("lead")
                .turn(1)
                .attempt(2)
                .purpose(Purpose::Grace)
                .task("part")
                .raw_call("read_file", "{")
                .delay_ms(5)
                .chunks(3)
                .chunk_delay_ms(7)
                .tokens(10, 20)
                .fault(Fault::Cut),
        );
    let file: serde_json::Value = serde_json::from_str(&script.to_string()).unwrap();
    assert_eq!(
        file,
        json!({
            "window": 8000, "price": { "input": 3.0, "output": 15.0 }, "journal": "/tmp/journal",
            "reply": [{
                "agent": "lead", "turn": 1, "attempt": 2, "purpose": "grace", "task": "part", "text": "a",
                "call": [{ "tool": "read_file", "raw": "{" }], "delay_ms": 5, "chunks": 3, "chunk_delay_ms": 7,
                "usage": { "input": 10, "output": 20 }, "fault": "cut"
            }]
        })
    );
    script.model();
}

fn model(server: &HttpServer, format: WireFormat) -> Box<dyn Model> {
    let endpoint = |path: &str| Endpoint::new("mock", &server.url(path), None).unwrap();
    match format {
        WireFormat::ChatCompletions => Box::new(OpenAi::compatible(endpoint("/v1"))),
        WireFormat::Responses => Box::new(Responses::compatible(endpoint("/v1"))),
        WireFormat::Messages => Box::new(Anthropic::new(endpoint(""))),
        WireFormat::Gemini => Box::new(Gemini::new(endpoint("/v1beta"))),
    }
}

#[tokio::test]
async fn reply_is_the_same_in_every_wire_format() {
    let usage = Usage { input: 40, output: 7, cache_read: 30, ..Usage::default() };
    let server = HttpServer::model(move |request| match request.number % 2 {
        0 => ModelReply::text("Grüße").call("a", json!({ "x": "ä" })).call("b", json!({})).usage(usage),
        _ => ModelReply::text("done").usage(usage),
    });
    for format in WireFormat::ALL {
        let model = model(&server, format);
        for (text, calls) in [("Grüße", vec![("a", r#"{"x":"ä"}"#), ("b", "{}")]), ("done", vec![])] {
            let mut stream = model.stream(request("lead", 1));
            let mut ingest = Ingest::default();
            while let Some(chunk) = stream.next().await {
                ingest.take(chunk.unwrap()).unwrap();
            }
            let (reply, reported) = ingest.finish().unwrap();
            let made: Vec<_> =
                reply.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
            assert_eq!((reply.text.as_str(), made, reported), (text, calls, usage), "{format:?}");
        }
    }
    assert_eq!(server.request_count(), 8);
    assert_eq!(server.requests()[0].json()["model"], "small");
}

#[test]
fn server_records_requests_and_keeps_or_closes_connections() {
    use std::io::{Read, Write};
    let server = HttpServer::start(|request| match request.path() {
        "/keep" => HttpResponse::new("200 OK", "kept"),
        "/drip" => HttpResponse::nothing()
            .then(AfterResponse::Repeat { bytes: b"x".to_vec(), pause: Duration::from_millis(5) }),
        _ => HttpResponse::with_headers("404 Not Found", "X: y\r\n", "no").truncated(20),
    });
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let mut read = |request: &str, length: usize| {
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let kept = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkept";
    assert_eq!(read("GET /keep HTTP/1.1\r\nA: 1\r\na: 2\r\n\r\n", kept.len()), kept);
    assert_eq!(read("POST /keep HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc", kept.len()), kept);
    assert_eq!(read("GET /other HTTP/1.1\r\n\r\n", 20), "HTTP/1.1 404 Not Fou");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"", "the connection is closed");
    let requests = server.requests();
    assert_eq!(requests[0].header("a"), ["1", "2"]);
    assert_eq!((requests[1].number, requests[1].body.as_slice()), (1, b"abc".as_slice()));
    assert_eq!((server.request_count(), server.connections()), (3, 1));
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(b"GET /drip HTTP/1.1\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 3]).unwrap();
    assert_eq!(server.max_open_connections(), 1);
}

#[tokio::test]
async fn agent_of_a_tool_test_knows_the_results_of_earlier_calls() {
    let test = ToolTest::new();
    test.put("a/b.txt", "one\n");
    let edit = json!({ "path": "a/b.txt", "content": "two {task}\n" });
    assert!(test.call("write_file", edit.clone()).await.is_error(), "the file was not read");
    let outputs = test.calls([("read_file", json!({ "path": "a/b.txt" })), ("write_file", edit)]).await;
    assert!(outputs.iter().all(|output| !output.is_error()), "{outputs:?}");
    // Arguments are not templates, as those of scripts are.
    assert_eq!(test.get("a/b.txt"), "two {task}\n");
    let unknown = test.call("no_such_tool", json!({})).await;
    assert!(unknown.is_error());
}

mod guard {
    use super::*;
    use brigade::tool::ShellSettings;

    brigade_testing::guard_entry!();

    #[tokio::test]
    async fn shell_runs_under_a_guard_that_is_this_binary() {
        let test = ToolTest::new();
        let directory = test.path("");
        let test = test.settings(|settings| {
            settings.shell = Some(ShellSettings {
                guard: guard(),
                directory,
                environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
                time_limit: Duration::from_secs(20),
                output_limit: 1_000,
            });
        });
        let start = Instant::now();
        let output = test.call("shell", json!({ "command": "echo $((6 * 7)); exit 3" })).await;
        assert_eq!(output.text.as_str(), "42\n(exit code 3)");
        assert!(output.is_error() && start.elapsed() < Duration::from_secs(20));
    }
}
