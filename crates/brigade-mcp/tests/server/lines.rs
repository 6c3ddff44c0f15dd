//! Wrong lines over a pipe: each is answered, so that nobody waits for ever.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

use crate::support::{FOUR, LIMIT, Stage};

/// A client that writes what it likes.
struct Raw {
    input: BufReader<ReadHalf<DuplexStream>>,
    output: WriteHalf<DuplexStream>,
}

impl Raw {
    fn new(stage: &Stage) -> Raw {
        let (input, output) = tokio::io::split(stage.pipe());
        Raw { input: BufReader::new(input), output }
    }

    async fn greeted(stage: &Stage) -> Raw {
        let mut raw = Raw::new(stage);
        let about = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
        let line = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello }).to_string();
        assert_eq!(raw.ask(line).await["result"]["serverInfo"]["name"], "brigade");
        raw
    }

    /// Writes a line, and hears the next.
    async fn ask(&mut self, line: impl AsRef<[u8]>) -> Value {
        self.output.write_all(line.as_ref()).await.unwrap();
        self.output.write_all(b"\n").await.unwrap();
        let mut heard = String::new();
        tokio::time::timeout(LIMIT, self.input.read_line(&mut heard)).await.unwrap().unwrap();
        serde_json::from_str(&heard).unwrap()
    }
}

#[tokio::test]
async fn wrong_lines_are_answered_and_the_next_is_heard() {
    let mut raw = Raw::greeted(&Stage::new(FOUR)).await;
    for line in [&b"{bad json"[..], b"\xff\xfe"] {
        let answer = raw.ask(line).await;
        assert!(answer["error"]["code"] == -32700 && answer["id"].is_null(), "{answer}");
    }
    let answer = raw.ask("x".repeat((4 << 20) + 1)).await;
    assert!(answer["error"]["code"] == -32600 && answer["id"].is_null(), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("4 MB"), "{answer}");
    let answer = raw.ask(r#"{"jsonrpc":"2.0","id":31,"method":"tools/call","params":[]}"#).await;
    assert!(answer["error"]["code"] == -32600 && answer["id"] == 31, "{answer}");
    let answer = raw.ask(r#"{"jsonrpc":"2.0","id":32,"method":"ping"}"#).await;
    assert!(answer["result"].is_object() && answer["id"] == 32, "{answer}");
}

#[tokio::test]
async fn wrong_params_and_unknown_methods_are_told_apart() {
    let mut raw = Raw::greeted(&Stage::new(FOUR)).await;
    let mut refused = async |method: &str, params: Value| {
        let line = json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params }).to_string();
        let answer = raw.ask(line).await;
        assert_eq!(answer["id"], "a");
        (answer["error"]["code"].as_i64().unwrap(), answer["error"]["message"].as_str().unwrap().to_owned())
    };
    let (code, words) = refused("tools/call", json!({})).await;
    assert!(code == -32602 && words.contains("name"), "{words}");
    let (code, words) = refused("tools/call", json!({ "name": "delegate", "arguments": "x" })).await;
    assert!(code == -32602 && words.contains("arguments"), "{words}");
    for method in ["no/such/method", "prompts/get", "resources/read"] {
        let params = json!({ "name": "x", "uri": "x:y" });
        let (code, words) = refused(method, params).await;
        assert!(code == -32601 && words.starts_with(&format!("Unknown method: {method};")), "{words}");
    }
}

#[tokio::test]
async fn what_comes_before_the_greeting_ends_nothing() {
    let stage = Stage::new(FOUR);
    let mut raw = Raw::new(&stage);
    raw.output.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await.unwrap();
    let answer = raw.ask("hello").await;
    assert_eq!(answer["error"]["code"], -32700);
    let answer = raw.ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#).await;
    assert!(answer["error"]["code"] == -32602 && answer["id"] == 1, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("protocolVersion"), "{answer}");
    let answer = raw.ask(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
    assert!(answer["result"].is_object(), "{answer}");
}
