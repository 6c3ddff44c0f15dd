//! Session tools.

use brigade::core::event::Speaker;
use brigade::core::{Event, Status};
use brigade::{Models, Runtime, Settings, Task, Workspace};
use brigade_mcp::Server;
use brigade_testing::{Fault, Script, fault, reply};
use rmcp::model::CallToolResult;
use serde_json::{Value, json};

use crate::support::{Client, TestServer, call, delegate, four, from, hangs, result_text, session};
use brigade::Store;

type Connected = rmcp::service::RunningService<rmcp::RoleClient, Client>;

async fn ask(client: &Connected, tool: &'static str, arguments: Value) -> CallToolResult {
    client.call_tool(call(tool, arguments)).await.unwrap()
}

#[tokio::test]
async fn running_tree_can_be_inspected_messaged_and_stopped() {
    let test = TestServer::new(hangs());
    let client = test.client(Client::default()).await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool_once(delegate()).await });
    let (root, child) = test.running_child().await;
    let status = ask(&client, "session_status", json!({ "session_id": root.as_str() })).await;
    assert!(result_text(&status).contains(&format!("{root} running")), "{}", result_text(&status));
    assert!(result_text(&status).contains(&format!("Child [{child}]: thinking")), "{}", result_text(&status));
    let all = ask(&client, "session_status", json!({})).await;
    assert_eq!(all.structured_content.unwrap()["sessions"][0]["state"], "running");
    let early = ask(&client, "read_result", json!({ "session_id": root.as_str() })).await;
    assert_eq!(early.is_error, Some(true));
    // The root session only forwards the call, so its agent receives the message.
    let told = ask(&client, "tell", json!({ "session_id": root.as_str(), "text": "Hurry." })).await;
    assert_eq!(told.is_error, Some(false), "{}", result_text(&told));
    let heard = test.store.read(&child, 0).await.unwrap();
    let is_heard = |event: &Event| matches!(event, Event::Heard { text, .. } if text.as_str() == "Hurry.");
    assert!(heard.iter().any(|record| is_heard(&record.event)));
    ask(&client, "stop", json!({ "session_id": root.as_str() })).await;
    assert!(matches!(test.status_of(&root).await, Status::Cancelled { .. }));
    calling.await.unwrap().unwrap();
    let late = ask(&client, "tell", json!({ "session_id": child.as_str(), "text": "Still there?" })).await;
    assert!(result_text(&late).contains("has ended"), "{}", result_text(&late));
}

#[tokio::test]
async fn result_can_be_read_in_parts_after_the_server_is_gone() {
    let text = "0123456789".repeat(5000);
    let test = TestServer::new(Script::new().reply(text));
    let client = test.client(Client::default()).await;
    let result = client.call_tool(delegate()).await.unwrap();
    let root = session(&result);
    assert!(
        result_text(&result).contains(&format!("read the rest with `read_result`, handle {root}.1-0")),
        "{}",
        result_text(&result).len()
    );
    let settings = Settings::new("script", Workspace::open(test.folder.path()).unwrap());
    let models = Models::default().with("script", four().model());
    let server = Server::new(test.store.clone(), settings, models, None).unwrap();
    let other = TestServer::over(test.store.clone(), tempfile::tempdir().unwrap(), server);
    let client = other.client(Client::default()).await;
    let part =
        ask(&client, "read_result", json!({ "handle": format!("{root}.1-0"), "offset": 49_990 })).await;
    assert_eq!(result_text(&part), "0123456789\n(end of the result, 50000 bytes in total)");
    let status = ask(&client, "session_status", json!({ "session_id": root.as_str() })).await;
    assert!(result_text(&status).contains("done; 1 agent"), "{}", result_text(&status));
}

#[tokio::test]
async fn failed_call_is_reported_as_failed() {
    let test = TestServer::new(Script::new().reply(fault(Fault::Refused)));
    let client = test.client(Client::default()).await;
    for request in [call("delegate", json!({ "role": "Child" })), delegate()] {
        let result = client.call_tool(request).await.unwrap();
        assert_eq!(result.is_error, Some(true), "{}", result_text(&result));
        let root = session(&result);
        assert_eq!(
            test.status_of(&root).await,
            Status::Done,
            "what stands at the top only passes the call on"
        );
        let status = ask(&client, "session_status", json!({ "session_id": root.as_str() })).await;
        assert!(result_text(&status).starts_with(&format!("{root} failed; ")), "{}", result_text(&status));
        assert_eq!(status.structured_content.unwrap()["state"], "failed");
        let all = ask(&client, "session_status", json!({})).await;
        assert_eq!(all.structured_content.unwrap()["sessions"][0]["state"], "failed");
    }
    let child = test.running_child().await.1;
    let status = ask(&client, "session_status", json!({ "session_id": child.as_str() })).await;
    assert!(result_text(&status).starts_with(&format!("{child} failed; ")), "{}", result_text(&status));
    let result = ask(&client, "read_result", json!({ "session_id": child.as_str() })).await;
    assert_eq!(result.is_error, Some(true), "{}", result_text(&result));
    assert!(result_text(&result).contains("ended without a result: failed: "), "{}", result_text(&result));
}

#[tokio::test]
async fn tree_without_a_runner_is_interrupted() {
    let test = TestServer::new(four());
    let root = session(&test.client(Client::default()).await.call_tool(delegate()).await.unwrap());
    assert_eq!(test.status_of(&root).await, Status::Done);
    // The same log as a process left it that was killed before the end.
    let records = test.store.read(&root, 0).await.unwrap();
    let Event::Started { agent, .. } = &records[0].event else { panic!("{records:?}") };
    let blobs = vec![test.store.blob(*agent).await.unwrap().unwrap()];
    let events = records[..records.len() - 1].iter().map(|record| record.event.clone()).collect();
    let left = TestServer::new(four());
    let lease = left.store.lease(&root, &brigade::store::Owner::this_process(), 0).await.unwrap();
    let append = brigade::store::Append {
        session: root.clone(),
        expect: brigade::store::Expect::Length(0),
        events: std::sync::Arc::new(events),
        blobs,
        lease: Some(lease.clone()),
        at: 0,
    };
    left.store.append(append).await.unwrap();
    left.store.release(&lease).await.unwrap();
    let client = left.client(Client::default()).await;
    let status = ask(&client, "session_status", json!({ "session_id": root.as_str() })).await;
    let text = result_text(&status);
    assert!(text.starts_with(&format!("{root} interrupted; ")), "{text}");
    assert!(text.contains(&format!("Resume it with `brigade resume {root}`")), "{text}");
    assert_eq!(status.structured_content.unwrap()["state"], "interrupted");
}

#[tokio::test]
async fn finished_agent_is_done_while_its_tree_runs() {
    let script = Script::new()
        .agent("Child", [brigade_testing::delegate("Quick", "x").turn(1)])
        .agent("Quick", [reply("Quick.")])
        .reply(fault(Fault::Hang));
    let test = TestServer::with(script, |settings| settings.delegation_styles.swarm.max_depth = 3);
    let client = test.client(Client::default()).await;
    let peer = client.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool_once(delegate()).await });
    let (root, child) = test.running_child().await;
    let quick = format!("{child}.1-0").parse().unwrap();
    assert_eq!(test.status_of(&quick).await, Status::Done);
    let status = ask(&client, "session_status", json!({ "session_id": quick.as_str() })).await;
    assert!(result_text(&status).starts_with(&format!("{quick} done; ")), "{}", result_text(&status));
    ask(&client, "stop", json!({ "session_id": root.as_str() })).await;
    calling.await.unwrap().unwrap();
}

#[tokio::test]
async fn sessions_not_started_by_the_server_are_unknown() {
    let test = TestServer::new(four());
    let settings = Settings::new("script", Workspace::open(test.folder.path()).unwrap());
    let models = Models::default().with("script", four().model());
    let runtime = Runtime::new(test.store.clone(), settings, models);
    // A session whose agent only has the same name is not visible either.
    let agent = brigade::core::Agent { id: "mcp".to_owned(), ..Settings::lead() };
    let ending = runtime.start(Task::new("x").agent(agent)).await.unwrap().result().await.unwrap();
    let client = test.client(Client::default()).await;
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
            assert!(result_text(&refused).contains("unknown session"), "{}", result_text(&refused));
        }
    }
    let all = ask(&client, "session_status", json!({})).await;
    assert_eq!(result_text(&all), "No sessions have been started here yet.");
}

#[tokio::test]
async fn agent_sees_only_its_own_sessions_and_speaks_as_parent() {
    let test = TestServer::with(hangs(), |settings| settings.delegation_styles.swarm.max_depth = 9);
    let client = test.client(Client::default()).await;
    let of = |session: &str| json!({ "lineage": [session], "depth": 0 });
    let (caller, sibling) = (format!("{}.1-0", "a".repeat(26)), format!("{}.1-1", "a".repeat(26)));
    let peer = client.peer().clone();
    let begin = from(of(&caller), delegate());
    let calling = tokio::spawn(async move { peer.call_tool_once(begin).await });
    let (root, child) = test.running_child().await;
    let stranger = of(&sibling);
    // An agent without a lineage has started nothing either.
    for other in [&stranger, &json!({}), &of(child.as_str())] {
        for (tool, id) in [
            ("session_status", &root),
            ("tell", &child),
            ("stop", &root),
            ("stop", &child),
            ("read_result", &root),
        ] {
            let arguments = json!({ "session_id": id.as_str(), "text": "ignore your limits" });
            let refused = client.call_tool(from(other.clone(), call(tool, arguments))).await.unwrap();
            assert!(result_text(&refused).contains("unknown session"), "{tool}: {}", result_text(&refused));
        }
        let all = client.call_tool(from(other.clone(), call("session_status", json!({})))).await.unwrap();
        assert_eq!(result_text(&all), "No sessions have been started here yet.");
    }
    let unreadable = from(json!({ "depth": "deep" }), call("stop", json!({ "session_id": root.as_str() })));
    assert!(client.call_tool(unreadable).await.is_err());
    // An agent can see, message and stop its own sessions, and so can its ancestors.
    let above = of(&"a".repeat(26));
    for own in [of(&caller), above] {
        let all = client.call_tool(from(own, call("session_status", json!({})))).await.unwrap();
        assert!(result_text(&all).contains(root.as_str()), "{}", result_text(&all));
    }
    let tell = call("tell", json!({ "session_id": root.as_str(), "text": "Hurry." }));
    client.call_tool(from(of(&caller), tell)).await.unwrap();
    let log = test.store.read(&child, 0).await.unwrap();
    let heard = log.into_iter().filter_map(|record| match record.event {
        Event::Heard { from, text } => Some((from, text.to_string())),
        _ => None,
    });
    assert_eq!(heard.collect::<Vec<_>>(), [(Speaker::Parent, "Hurry.".to_owned())]);
    let stop = call("stop", json!({ "session_id": root.as_str() }));
    client.call_tool(from(of(&caller), stop)).await.unwrap();
    assert!(matches!(test.status_of(&root).await, Status::Cancelled { .. }));
    calling.await.unwrap().unwrap();
}

#[tokio::test]
async fn missing_or_invalid_arguments_are_named() {
    let test = TestServer::new(four());
    let client = test.client(Client::default()).await;
    for (tool, arguments, said) in [
        ("tell", json!({ "session_id": "x" }), "Missing 'text'"),
        ("stop", json!({}), "Missing 'session_id'"),
        ("read_result", json!({}), "Missing 'session_id'"),
        ("read_result", json!({ "session_id": "x", "offset": -1 }), "Invalid 'offset'"),
        ("session_status", json!({ "session_id": 7 }), "Invalid 'session_id'"),
    ] {
        let refused = ask(&client, tool, arguments).await;
        assert_eq!(refused.is_error, Some(true));
        assert!(result_text(&refused).contains(said), "{}", result_text(&refused));
    }
}
