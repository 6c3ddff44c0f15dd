//! Calls of faces.

use std::time::Duration;

use brigade::Store;
use brigade::core::faces::Extra;
use brigade::core::{Event, Status};
use rmcp::ServiceError;
use rmcp::model::ErrorCode;
use serde_json::{Value, json};

use crate::support::{Client, FOUR, HANGS, Stage, call, delegate, from, session, words};

#[tokio::test]
async fn the_faces_and_four_tools_for_sessions_are_offered() {
    let stage = Stage::new(FOUR);
    let client = stage.client(Client::default()).await;
    let tools = client.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["delegate", "session_status", "tell", "stop", "read_result"]);
    assert_eq!(tools[0].input_schema["required"], json!(["role", "task"]));
    let info = client.peer().peer_info().unwrap();
    assert_eq!(info.server_info.as_ref().unwrap().name, "brigade");
}

#[tokio::test]
async fn a_call_is_answered_with_its_session_and_its_cost() {
    let stage = Stage::new(FOUR);
    let client = stage.client(Client::default()).await;
    let result = client.call_tool(delegate()).await.unwrap();
    assert_eq!(words(&result), "[Child]: Four.");
    assert_eq!(result.is_error, Some(false));
    let spent = &result.meta.as_ref().unwrap()["brigade/spent"];
    assert_eq!((&spent["input_tokens"], &spent["output_tokens"]), (&json!(10), &json!(5)));
    assert_eq!(stage.end_of(&session(&result)).await, Status::Done);
}

#[tokio::test]
async fn a_child_uses_the_model_behind_the_relay() {
    let stage = Stage::new("[[reply]]\nagent = 'mcp'\nfault = 'refused'\n[[reply]]\ntext = 'I was asked.'\n");
    let client = stage.client(Client::default()).await;
    let result = client.call_tool(delegate()).await.unwrap();
    assert_eq!(words(&result), "[Child]: I was asked.");
}

#[tokio::test]
async fn wrong_arguments_are_refused_in_the_words_of_the_face() {
    let stage = Stage::new(FOUR);
    let client = stage.client(Client::default()).await;
    let result = client.call_tool(call("delegate", json!({ "role": "Child" }))).await.unwrap();
    assert_eq!(result.is_error, Some(true));
    assert!(words(&result).contains("task"), "{}", words(&result));
}

#[tokio::test]
async fn an_unknown_tool_is_an_error_of_the_protocol() {
    let stage = Stage::new(FOUR);
    let client = stage.client(Client::default()).await;
    for tool in ["shell", "subagent", "read_file", "message"] {
        let error = client.call_tool(call(tool, json!({}))).await.unwrap_err();
        assert!(
            matches!(&error, ServiceError::McpError(data) if data.code == ErrorCode::INVALID_PARAMS),
            "{error}"
        );
    }
}

#[tokio::test]
async fn progress_grows_and_says_who_does_what() {
    let script = "[[reply]]\nagent = 'Child'\nturn = 1\ndelay_ms = 400\n[[reply.call]]\ntool = 'list_dir'\n\
                  arguments = { path = '.' }\n[[reply]]\ntext = 'done'\ndelay_ms = 400\n";
    let stage = Stage::new(script);
    let listener = Client::default();
    let client = stage.client(listener.clone()).await;
    client.call_tool(delegate()).await.unwrap();
    let notes = listener.notes.lock().unwrap().clone();
    assert!(notes.windows(2).all(|pair| pair[0].progress < pair[1].progress), "{notes:?}");
    let messages: Vec<String> = notes.into_iter().filter_map(|note| note.message).collect();
    assert!(messages.iter().any(|message| message == "Child thinks (turn 2)"), "{messages:?}");
    assert!(messages.len() >= 2, "{messages:?}");
}

#[tokio::test]
async fn a_request_that_is_cancelled_stops_its_tree() {
    let stage = Stage::new(HANGS);
    let client = stage.client(Client::default()).await;
    let (root, child) = tokio::select! {
        result = client.call_tool(delegate()) => panic!("{result:?}"),
        working = stage.working() => working,
    };
    // Dropping the call told the server so.
    assert!(matches!(stage.end_of(&child).await, Status::Cancelled { .. }));
    assert!(matches!(stage.end_of(&root).await, Status::Cancelled { .. }));
}

#[tokio::test]
async fn an_agent_that_is_left_to_itself_outlives_the_call_but_not_the_server() {
    let stage = Stage::with(HANGS, |settings| {
        settings.faces.delegation.extras = [Extra::Background].into();
    });
    let client = stage.client(Client::default()).await;
    let arguments = json!({ "role": "Later", "task": "go", "background": "detach" });
    let result = client.call_tool(call("delegate", arguments)).await.unwrap();
    assert_eq!(result.is_error, Some(false), "{}", words(&result));
    let (_, child) = stage.working().await;
    // Whoever is stopped hears it at once.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let log = stage.store.read(&child, 0).await.unwrap();
    let is_stopped = |event: &Event| matches!(event, Event::CancelAsked { .. } | Event::Ended { .. });
    assert!(!log.iter().any(|record| is_stopped(&record.event)), "{log:?}");
    stage.server.close().await;
    assert!(matches!(stage.end_of(&child).await, Status::Cancelled { .. }));
}

#[tokio::test]
async fn a_client_that_goes_away_stops_its_trees() {
    let stage = Stage::new(HANGS);
    let client = stage.client(Client::default()).await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool_once(delegate()).await.is_ok() });
    let (root, child) = stage.working().await;
    client.cancel().await.unwrap();
    assert!(matches!(stage.end_of(&child).await, Status::Cancelled { .. }));
    assert!(matches!(stage.end_of(&root).await, Status::Cancelled { .. }));
    assert!(!calling.await.unwrap());
}

#[tokio::test]
async fn a_server_that_closes_leaves_nothing_running_and_begins_nothing() {
    let stage = Stage::new(HANGS);
    let client = stage.client(Client::default()).await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool_once(delegate()).await });
    let (root, _) = stage.working().await;
    stage.server.close().await;
    assert!(matches!(stage.end_of(&root).await, Status::Cancelled { .. }));
    calling.await.unwrap().unwrap();
    assert!(client.call_tool(delegate()).await.is_err());
}

fn with_hop(hop: Value) -> rmcp::model::CallToolRequestParams {
    from(hop, delegate())
}

#[tokio::test]
async fn a_hop_binds_depth_and_one_that_cannot_be_read_is_refused() {
    let stage = Stage::with(FOUR, |settings| settings.faces.swarm.max_depth = 9);
    let client = stage.client(Client::default()).await;
    let fits =
        client.call_tool(with_hop(json!({ "depth": 1, "deepest": 3, "lineage": ["far"] }))).await.unwrap();
    assert_eq!(words(&fits), "[Child]: Four.");
    for deep in [json!({ "depth": 3, "deepest": 3 }), json!({ "depth": 4, "deepest": 3 })] {
        let refused = client.call_tool(with_hop(deep)).await.unwrap();
        assert_eq!(refused.is_error, Some(true));
        let words = words(&refused);
        assert!(words.contains("depth") || words.contains("recursion limit"), "{words}");
    }
    let error = client.call_tool(with_hop(json!({ "depth": "deep" }))).await.unwrap_err();
    assert!(
        matches!(&error, ServiceError::McpError(data) if data.code == ErrorCode::INVALID_PARAMS),
        "{error}"
    );
}

#[tokio::test]
async fn clients_work_side_by_side() {
    let stage = Stage::new("[[reply]]\ntext = '{task}'\ndelay_ms = 50\n");
    let (one, two) = (stage.client(Client::default()).await, stage.client(Client::default()).await);
    let calls = (0..16).map(|number| {
        let client = if number % 2 == 0 { one.peer() } else { two.peer() };
        let arguments = json!({ "role": format!("Nr{number}"), "task": "x" });
        async move { client.call_tool_once(call("delegate", arguments)).await.unwrap() }
    });
    let results = futures::future::join_all(calls).await;
    for (number, result) in results.into_iter().enumerate() {
        let rmcp::model::CallToolResponse::Complete(result) = result else { panic!("{result:?}") };
        assert!(words(&result).starts_with(&format!("[Nr{number}]")), "{}", words(&result));
    }
}
