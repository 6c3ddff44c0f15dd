//! Calls of delegation tools.

use std::time::Duration;

use brigade::Store;
use brigade::core::delegation_styles::ExtraParameter;
use brigade::core::{Event, Status};
use brigade_testing::{Fault, Script, fault, reply};
use rmcp::ServiceError;
use rmcp::model::ErrorCode;
use serde_json::{Value, json};

use crate::support::{Client, TestServer, call, delegate, four, from, hangs, result_text, session};

#[tokio::test]
async fn delegation_and_session_tools_are_listed() {
    let test = TestServer::new(four());
    let client = test.client(Client::default()).await;
    let tools = client.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["delegate", "session_status", "tell", "stop", "read_result"]);
    assert_eq!(tools[0].input_schema["required"], json!(["role", "task"]));
    let info = client.peer().peer_info().unwrap();
    assert_eq!(info.server_info.as_ref().unwrap().name, "brigade");
}

#[tokio::test]
async fn call_result_carries_session_and_usage() {
    let test = TestServer::new(four());
    let client = test.client(Client::default()).await;
    let result = client.call_tool(delegate()).await.unwrap();
    assert_eq!(result_text(&result), "[Child]: Four.");
    assert_eq!(result.is_error, Some(false));
    let spent = &result.meta.as_ref().unwrap()["brigade/spent"];
    assert_eq!((&spent["input_tokens"], &spent["output_tokens"]), (&json!(10), &json!(5)));
    assert_eq!(test.status_of(&session(&result)).await, Status::Done);
}

#[tokio::test]
async fn child_uses_the_configured_model() {
    let test = TestServer::new(Script::new().agent("mcp", [fault(Fault::Refused)]).reply("I was asked."));
    let client = test.client(Client::default()).await;
    let result = client.call_tool(delegate()).await.unwrap();
    assert_eq!(result_text(&result), "[Child]: I was asked.");
}

#[tokio::test]
async fn wrong_arguments_are_refused_by_the_tool() {
    let test = TestServer::new(four());
    let client = test.client(Client::default()).await;
    let result = client.call_tool(call("delegate", json!({ "role": "Child" }))).await.unwrap();
    assert_eq!(result.is_error, Some(true));
    assert!(result_text(&result).contains("task"), "{}", result_text(&result));
}

#[tokio::test]
async fn unknown_tool_is_a_protocol_error() {
    let test = TestServer::new(four());
    let client = test.client(Client::default()).await;
    for tool in ["shell", "subagent", "read_file", "message"] {
        let error = client.call_tool(call(tool, json!({}))).await.unwrap_err();
        assert!(
            matches!(&error, ServiceError::McpError(data) if data.code == ErrorCode::INVALID_PARAMS),
            "{error}"
        );
    }
}

#[tokio::test]
async fn progress_increases_and_names_the_agent() {
    let script = Script::new()
        .agent("Child", [brigade_testing::call("list_dir", json!({ "path": "." })).turn(1).delay_ms(400)])
        .reply(reply("done").delay_ms(400));
    let test = TestServer::new(script);
    let listener = Client::default();
    let client = test.client(listener.clone()).await;
    client.call_tool(delegate()).await.unwrap();
    let notes = listener.notes.lock().unwrap().clone();
    assert!(notes.windows(2).all(|pair| pair[0].progress < pair[1].progress), "{notes:?}");
    let messages: Vec<String> = notes.into_iter().filter_map(|note| note.message).collect();
    assert!(messages.iter().any(|message| message == "Child is thinking (turn 2)"), "{messages:?}");
    assert!(messages.len() >= 2, "{messages:?}");
}

#[tokio::test]
async fn cancelled_request_stops_its_tree() {
    let test = TestServer::new(hangs());
    let client = test.client(Client::default()).await;
    let (root, child) = tokio::select! {
        result = client.call_tool(delegate()) => panic!("{result:?}"),
        working = test.running_child() => working,
    };
    // Dropping the call cancelled it on the server.
    assert!(matches!(test.status_of(&child).await, Status::Cancelled { .. }));
    assert!(matches!(test.status_of(&root).await, Status::Cancelled { .. }));
}

#[tokio::test]
async fn detached_agent_outlives_the_call_but_not_the_server() {
    let test = TestServer::with(hangs(), |settings| {
        settings.delegation_styles.delegation.extras = [ExtraParameter::Background].into();
    });
    let client = test.client(Client::default()).await;
    let arguments = json!({ "role": "Later", "task": "go", "background": "detach" });
    let result = client.call_tool(call("delegate", arguments)).await.unwrap();
    assert_eq!(result.is_error, Some(false), "{}", result_text(&result));
    let (_, child) = test.running_child().await;
    // A cancel would be recorded at once.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let log = test.store.read(&child, 0).await.unwrap();
    let is_stopped = |event: &Event| matches!(event, Event::CancelAsked { .. } | Event::Ended { .. });
    assert!(!log.iter().any(|record| is_stopped(&record.event)), "{log:?}");
    test.server.close().await;
    assert!(matches!(test.status_of(&child).await, Status::Cancelled { .. }));
}

#[tokio::test]
async fn disconnected_client_stops_its_trees() {
    let test = TestServer::new(hangs());
    let client = test.client(Client::default()).await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool_once(delegate()).await.is_ok() });
    let (root, child) = test.running_child().await;
    client.cancel().await.unwrap();
    assert!(matches!(test.status_of(&child).await, Status::Cancelled { .. }));
    assert!(matches!(test.status_of(&root).await, Status::Cancelled { .. }));
    assert!(!calling.await.unwrap());
}

#[tokio::test]
async fn closed_server_leaves_nothing_running_and_starts_nothing() {
    let test = TestServer::new(hangs());
    let client = test.client(Client::default()).await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool_once(delegate()).await });
    let (root, _) = test.running_child().await;
    test.server.close().await;
    assert!(matches!(test.status_of(&root).await, Status::Cancelled { .. }));
    calling.await.unwrap().unwrap();
    assert!(client.call_tool(delegate()).await.is_err());
}

fn with_remote_context(remote_context: Value) -> rmcp::model::CallToolRequestParams {
    from(remote_context, delegate())
}

#[tokio::test]
async fn remote_context_limits_depth_and_malformed_is_refused() {
    let test = TestServer::with(four(), |settings| settings.delegation_styles.swarm.max_depth = 9);
    let client = test.client(Client::default()).await;
    let fits = client
        .call_tool(with_remote_context(json!({ "depth": 1, "deepest": 3, "lineage": ["far"] })))
        .await
        .unwrap();
    assert_eq!(result_text(&fits), "[Child]: Four.");
    for deep in [json!({ "depth": 3, "deepest": 3 }), json!({ "depth": 4, "deepest": 3 })] {
        let refused = client.call_tool(with_remote_context(deep)).await.unwrap();
        assert_eq!(refused.is_error, Some(true));
        let text = result_text(&refused);
        assert!(text.contains("depth") || text.contains("recursion limit"), "{text}");
    }
    let error = client.call_tool(with_remote_context(json!({ "depth": "deep" }))).await.unwrap_err();
    assert!(
        matches!(&error, ServiceError::McpError(data) if data.code == ErrorCode::INVALID_PARAMS),
        "{error}"
    );
}

#[tokio::test]
async fn clients_call_in_parallel() {
    let test = TestServer::new(Script::new().reply(reply("{task}").delay_ms(50)));
    let (one, two) = (test.client(Client::default()).await, test.client(Client::default()).await);
    let calls = (0..16).map(|number| {
        let client = if number % 2 == 0 { one.peer() } else { two.peer() };
        let arguments = json!({ "role": format!("Nr{number}"), "task": "x" });
        async move { client.call_tool_once(call("delegate", arguments)).await.unwrap() }
    });
    let results = futures::future::join_all(calls).await;
    for (number, result) in results.into_iter().enumerate() {
        let rmcp::model::CallToolResponse::Complete(result) = result else { panic!("{result:?}") };
        assert!(result_text(&result).starts_with(&format!("[Nr{number}]")), "{}", result_text(&result));
    }
}
