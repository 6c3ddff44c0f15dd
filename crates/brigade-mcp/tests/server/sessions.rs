//! The tools that look after sessions.

use brigade::core::{Event, Status};
use brigade::model::script::Script;
use brigade::{Models, Runtime, Settings, Task, Workspace};
use brigade_mcp::Server;
use rmcp::model::CallToolResult;
use serde_json::{Value, json};

use crate::support::{Client, FOUR, HANGS, Stage, call, delegate, session, words};
use brigade::Store;

type Connected = rmcp::service::RunningService<rmcp::RoleClient, Client>;

async fn ask(client: &Connected, tool: &'static str, arguments: Value) -> CallToolResult {
    client.call_tool(call(tool, arguments)).await.unwrap()
}

#[tokio::test]
async fn a_tree_can_be_looked_at_spoken_to_and_stopped_while_it_works() {
    let stage = Stage::new(HANGS);
    let client = stage.client(Client::default()).await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool_once(delegate()).await });
    let (root, child) = stage.working().await;
    let status = ask(&client, "session_status", json!({ "session_id": root.as_str() })).await;
    assert!(words(&status).contains(&format!("{root} running")), "{}", words(&status));
    assert!(words(&status).contains(&format!("Child [{child}]: thinking")), "{}", words(&status));
    let all = ask(&client, "session_status", json!({})).await;
    assert_eq!(all.structured_content.unwrap()["sessions"][0]["state"], "running");
    let early = ask(&client, "read_result", json!({ "session_id": root.as_str() })).await;
    assert_eq!(early.is_error, Some(true));
    // What stands at the top only passes the call on: its agent hears the words.
    let told = ask(&client, "tell", json!({ "session_id": root.as_str(), "text": "Hurry." })).await;
    assert_eq!(told.is_error, Some(false), "{}", words(&told));
    let heard = stage.store.read(&child, 0).await.unwrap();
    let is_heard = |event: &Event| matches!(event, Event::Heard { text, .. } if text.as_str() == "Hurry.");
    assert!(heard.iter().any(|record| is_heard(&record.event)));
    ask(&client, "stop", json!({ "session_id": root.as_str() })).await;
    assert!(matches!(stage.end_of(&root).await, Status::Cancelled { .. }));
    calling.await.unwrap().unwrap();
    let late = ask(&client, "tell", json!({ "session_id": child.as_str(), "text": "Still there?" })).await;
    assert!(words(&late).contains("has ended"), "{}", words(&late));
}

#[tokio::test]
async fn a_result_can_be_read_in_parts_and_after_the_server_is_gone() {
    let text = "0123456789".repeat(5000);
    let stage = Stage::new(&format!("[[reply]]\ntext = '{text}'\n"));
    let client = stage.client(Client::default()).await;
    let result = client.call_tool(delegate()).await.unwrap();
    let root = session(&result);
    assert!(
        words(&result).contains(&format!("`read_result` with handle {root}.1-0")),
        "{}",
        words(&result).len()
    );
    let settings = Settings::new("script", Workspace::open(stage.folder.path()).unwrap());
    let models = Models::default().with("script", Script::parse(FOUR).unwrap());
    let other = Stage {
        server: Server::new(stage.store.clone(), settings, models, None).unwrap(),
        store: stage.store.clone(),
        folder: tempfile::tempdir().unwrap(),
    };
    let client = other.client(Client::default()).await;
    let part =
        ask(&client, "read_result", json!({ "handle": format!("{root}.1-0"), "offset": 49_990 })).await;
    assert_eq!(words(&part), "0123456789\n(end of 50000 bytes)");
    let status = ask(&client, "session_status", json!({ "session_id": root.as_str() })).await;
    assert!(words(&status).contains("done; 1 agents"), "{}", words(&status));
}

#[tokio::test]
async fn sessions_of_others_are_unknown() {
    let stage = Stage::new(FOUR);
    let settings = Settings::new("script", Workspace::open(stage.folder.path()).unwrap());
    let models = Models::default().with("script", Script::parse(FOUR).unwrap());
    let runtime = Runtime::new(stage.store.clone(), settings, models);
    // One whose agent only has the same name is somebody else's too.
    let agent = brigade::core::Agent { id: "mcp".to_owned(), ..Settings::lead() };
    let ending = runtime.start(Task::new("x").agent(agent)).await.unwrap().ending().await.unwrap();
    let client = stage.client(Client::default()).await;
    let ids = [
        ending.session.to_string(),
        "nonsense".to_owned(),
        "a".repeat(26),
        format!("{}.1-0", ending.session),
    ];
    for id in ids {
        for tool in ["session_status", "tell", "stop", "read_result"] {
            let refused = ask(&client, tool, json!({ "session_id": id, "text": "x" })).await;
            assert_eq!(refused.is_error, Some(true));
            assert!(words(&refused).contains("unknown session"), "{}", words(&refused));
        }
    }
    let all = ask(&client, "session_status", json!({})).await;
    assert_eq!(words(&all), "No session was started here yet.");
}

#[tokio::test]
async fn arguments_that_are_missing_or_odd_are_named() {
    let stage = Stage::new(FOUR);
    let client = stage.client(Client::default()).await;
    for (tool, arguments, said) in [
        ("tell", json!({ "session_id": "x" }), "Missing 'text'"),
        ("stop", json!({}), "Missing 'session_id'"),
        ("read_result", json!({}), "Missing 'session_id'"),
        ("read_result", json!({ "session_id": "x", "offset": -1 }), "Invalid 'offset'"),
        ("session_status", json!({ "session_id": 7 }), "Invalid 'session_id'"),
    ] {
        let refused = ask(&client, tool, arguments).await;
        assert_eq!(refused.is_error, Some(true));
        assert!(words(&refused).contains(said), "{}", words(&refused));
    }
}
