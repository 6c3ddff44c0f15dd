//! Invalid lines over a pipe. Each is answered, so that no client waits forever.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

use crate::support::{TEST_TIMEOUT, TestServer, four};

/// A client that writes arbitrary lines.
struct RawClient {
    input: BufReader<ReadHalf<DuplexStream>>,
    output: WriteHalf<DuplexStream>,
}

impl RawClient {
    fn new(test: &TestServer) -> RawClient {
        let (input, output) = tokio::io::split(test.pipe());
        RawClient { input: BufReader::new(input), output }
    }

    async fn initialized(test: &TestServer) -> RawClient {
        let mut raw = RawClient::new(test);
        let about = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
        let line = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello }).to_string();
        assert_eq!(raw.ask(line).await["result"]["serverInfo"]["name"], "brigade");
        raw
    }

    /// Writes a line and reads the next one.
    async fn ask(&mut self, line: impl AsRef<[u8]>) -> Value {
        self.output.write_all(line.as_ref()).await.unwrap();
        self.output.write_all(b"\n").await.unwrap();
        let mut received = String::new();
        tokio::time::timeout(TEST_TIMEOUT, self.input.read_line(&mut received)).await.unwrap().unwrap();
        serde_json::from_str(&received).unwrap()
    }
}

#[tokio::test]
async fn invalid_lines_get_errors_and_the_next_is_read() {
    let mut raw = RawClient::initialized(&TestServer::new(four())).await;
    for line in [&b"{bad json"[..], b"\xff\xfe"] {
        let answer = raw.ask(line).await;
        assert!(answer["error"]["code"] == -32700 && answer["id"].is_null(), "{answer}");
    }
    let answer = raw.ask("x".repeat((4 << 20) + 1)).await;
    assert!(answer["error"]["code"] == -32600 && answer["id"].is_null(), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("4 MiB"), "{answer}");
    let answer = raw.ask(r#"{"jsonrpc":"2.0","id":31,"method":"tools/call","params":[]}"#).await;
    assert!(answer["error"]["code"] == -32600 && answer["id"] == 31, "{answer}");
    let answer = raw.ask(r#"{"jsonrpc":"2.0","id":32,"method":"ping"}"#).await;
    assert!(answer["result"].is_object() && answer["id"] == 32, "{answer}");
}

#[tokio::test]
async fn invalid_params_and_unknown_methods_have_distinct_codes() {
    let mut raw = RawClient::initialized(&TestServer::new(four())).await;
    let mut refused = async |method: &str, params: Value| {
        let line = json!({ "jsonrpc": "2.0", "id": "a", "method": method, "params": params }).to_string();
        let answer = raw.ask(line).await;
        assert_eq!(answer["id"], "a");
        (answer["error"]["code"].as_i64().unwrap(), answer["error"]["message"].as_str().unwrap().to_owned())
    };
    let (code, text) = refused("tools/call", json!({})).await;
    assert!(code == -32602 && text.contains("name"), "{text}");
    let (code, text) = refused("tools/call", json!({ "name": "delegate", "arguments": "x" })).await;
    assert!(code == -32602 && text.contains("arguments"), "{text}");
    for method in ["no/such/method", "prompts/get", "resources/read"] {
        let params = json!({ "name": "x", "uri": "x:y" });
        let (code, text) = refused(method, params).await;
        assert!(code == -32601 && text.starts_with(&format!("Unknown method: {method};")), "{text}");
    }
}

#[tokio::test]
async fn messages_before_initialize_do_not_end_the_server() {
    let test = TestServer::new(four());
    let mut raw = RawClient::new(&test);
    raw.output.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await.unwrap();
    let answer = raw.ask("hello").await;
    assert_eq!(answer["error"]["code"], -32700);
    let answer = raw.ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#).await;
    assert!(answer["error"]["code"] == -32602 && answer["id"] == 1, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("protocolVersion"), "{answer}");
    let answer = raw.ask(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
    assert!(answer["result"].is_object(), "{answer}");
}
