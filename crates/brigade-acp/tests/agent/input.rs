//! What a client should not send.

use serde_json::{Value, json};

use crate::support::World;

#[tokio::test]
async fn every_mistake_has_its_code_and_the_connection_goes_on() {
    let world = World::new("[[reply]]\ntext = 'x'\n");
    let mut client = world.client().await;
    for (line, code) in [
        ("{\"jsonrpc\": \"2.0\"", -32700),
        ("\u{0}\u{1}", -32700),
        ("[]", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"x\"}", -32600),
    ] {
        client.line(line).await;
        let message = client.next().await;
        assert_eq!((&message["error"]["code"], &message["id"]), (&json!(code), &Value::Null), "{line}");
    }
    client.line("").await;
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
    let session = client.open(&world.path()).await;
    assert_eq!(client.prompt(&session, "x").await.unwrap()["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_line_without_end_is_dropped_as_it_comes() {
    let world = World::new("[[reply]]\ntext = 'x'\n");
    let mut client = world.client().await;
    client.line(&"x".repeat(11 * 1024 * 1024)).await;
    let message = client.next().await;
    assert_eq!(message["error"]["code"], -32600);
    assert!(message["error"]["message"].as_str().unwrap().contains("8388608"));
    client.open(&world.path()).await;
}

#[tokio::test]
async fn who_says_nothing_of_itself_gets_nothing() {
    let world = World::new("[[reply]]\ntext = 'x'\n");
    let mut client = world.stranger();
    let refused = client.call("session/list", json!({})).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().contains("initialize"));
    // Whatever version the client speaks, we say the one that we do.
    let hello = client.call("initialize", json!({"protocolVersion": 9})).await.unwrap();
    assert_eq!((&hello["protocolVersion"], &hello["agentInfo"]["name"]), (&json!(1), &json!("brigade")));
    let can = &hello["agentCapabilities"];
    assert_eq!(
        (&can["loadSession"], &can["promptCapabilities"]["embeddedContext"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(client.call("authenticate", json!({"methodId": "x"})).await.unwrap(), json!({}));
    client.leave().await;
}
