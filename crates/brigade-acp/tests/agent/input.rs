//! Invalid messages of a client.

use brigade_testing::Script;
use serde_json::{Value, json};

use crate::agent::support::TestEnv;

#[tokio::test]
async fn invalid_input_gets_an_error_code_and_the_connection_continues() {
    let env = TestEnv::new(Script::new().reply("x"));
    let mut client = env.client().await;
    for (line, code) in [
        ("{\"jsonrpc\": \"2.0\"", -32700),
        ("\u{0}\u{1}", -32700),
        ("[]", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"x\"}", -32600),
    ] {
        client.send_line(line).await;
        let message = client.next().await;
        assert_eq!((&message["error"]["code"], &message["id"]), (&json!(code), &Value::Null), "{line}");
    }
    client.send_line("").await;
    for (method, params, code) in [
        ("session/dance", json!({}), -32601),
        ("session/new", json!({}), -32602),
        ("session/new", json!([1]), -32602),
        ("session/prompt", json!({"sessionId": "x"}), -32602),
        ("session/prompt", json!({"sessionId": "x", "prompt": [{"type": "smell"}]}), -32602),
        ("session/list", json!({"cursor": "nowhere"}), -32602),
        ("session/load", json!(null), -32602),
    ] {
        let refused = client.call(method, params.clone()).await.unwrap_err();
        assert_eq!(refused["code"], code, "{method} {params}: {refused}");
    }
    client.notify("session/cancel", json!({"sessionId": "nonsense"})).await;
    client.notify("no/such/notice", json!({})).await;
    client.answer(&json!(77), json!("to nothing")).await;
    let session = client.open(&env.path()).await;
    assert_eq!(client.prompt(&session, "x").await.unwrap()["stopReason"], "end_turn");
}

#[tokio::test]
async fn line_over_the_limit_is_dropped_while_it_is_read() {
    let env = TestEnv::new(Script::new().reply("x"));
    let mut client = env.client().await;
    client.send_line(&"x".repeat(11 * 1024 * 1024)).await;
    let message = client.next().await;
    assert_eq!(message["error"]["code"], -32600);
    assert!(message["error"]["message"].as_str().unwrap().contains("8388608"));
    client.open(&env.path()).await;
}

#[tokio::test]
async fn request_before_initialize_is_refused() {
    let env = TestEnv::new(Script::new().reply("x"));
    let mut client = env.uninitialized_client();
    let refused = client.call("session/list", json!({})).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("initialize"));
    // The response contains our protocol version, whatever version the client requests.
    let response = client.call("initialize", json!({"protocolVersion": 9})).await.unwrap();
    assert_eq!(
        (&response["protocolVersion"], &response["agentInfo"]["name"]),
        (&json!(1), &json!("brigade"))
    );
    let capabilities = &response["agentCapabilities"];
    assert_eq!(
        (&capabilities["loadSession"], &capabilities["promptCapabilities"]["embeddedContext"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(client.call("authenticate", json!({"methodId": "x"})).await.unwrap(), json!({}));
    client.disconnect().await;
}
