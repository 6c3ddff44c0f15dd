//! Sub-agent sessions: as sub-agents if the client supports them, otherwise as tool calls.

use brigade_testing::{Fault, Reply, Script, delegate, fault, reply};
use serde_json::{Value, json};

use crate::agent::support::TestEnv;

fn team(writer: Reply) -> Script {
    let writes = writer.call("write_file", json!({ "path": "w.txt", "content": "w" }));
    Script::new()
        .agent("lead", [delegate("Reader", "read it all").delegate("Writer", "write it all").turn(1)])
        .agent("Writer", [writes.turn(1)])
        .agent("lead", [reply("All is done.")])
        .reply("My part is done.")
}

fn titles(updates: &[Value]) -> Vec<String> {
    updates.iter().filter_map(|update| update["title"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn client_without_subagent_support_sees_children_as_tool_calls() {
    let env = TestEnv::new(team(reply("I begin to write.")));
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    client.prompt(&session, "go").await.unwrap();
    let titles = titles(&client.updates(&session, "tool_call"));
    assert!(titles.contains(&"[Writer] Write w.txt".to_owned()), "{titles:?}");
    let changes = client.updates(&session, "tool_call_update");
    let named: Vec<_> = changes.iter().filter_map(|change| change["title"].as_str()).collect();
    assert!(named.contains(&"Writer: write it all") && named.contains(&"Reader: read it all"), "{named:?}");
    let has_line = |expected: &str| {
        changes.iter().any(|change| {
            change["content"][0]["content"]["text"].as_str().is_some_and(|text| text.contains(expected))
        })
    };
    assert!(has_line("Writer: I begin to write.") && has_line("Writer: done"), "{changes:?}");
    let plan = client.updates(&session, "plan");
    let last = plan.last().unwrap()["entries"].as_array().unwrap();
    assert_eq!(last.len(), 2);
    assert!(last.iter().all(|entry| entry["status"] == "completed"), "{last:?}");
    // Messages of children are not shown as the lead's own.
    assert_eq!(client.agent_text(&session), "All is done.");
    let elsewhere = client.received.iter().filter(|message| message["method"] == "session/update");
    assert!(elsewhere.into_iter().all(|message| message["params"]["sessionId"] == json!(session)));
}

#[tokio::test]
async fn client_with_subagent_support_sees_children_as_sessions() {
    let env = TestEnv::new(team(reply("I begin to write.")));
    let mut client = env.client_with(json!({"subagents": {}})).await;
    let session = client.open(&env.path()).await;
    client.prompt(&session, "go").await.unwrap();
    let updates = client.updates(&session, "subagent_update");
    let writer = updates.iter().find(|update| update["title"] == "Writer").unwrap();
    let child = writer["sessionId"].as_str().unwrap();
    assert!(child.starts_with(&session) && writer["capabilities"]["cancel"].is_object());
    assert_eq!(
        (&writer["state"]["state"], &writer["description"]),
        (&json!("running"), &json!("write it all"))
    );
    let end = updates.iter().rfind(|update| update["sessionId"] == child).unwrap();
    assert_eq!((&end["state"]["state"], &end["state"]["stopReason"]), (&json!("idle"), &json!("end_turn")));
    assert!(client.agent_text(child).contains("My part is done."));
    assert_eq!(titles(&client.updates(child, "tool_call")), ["Write w.txt"]);
    assert_eq!(client.updates(child, "session_message")[0]["recipientSessionId"], child);
    // A child is announced before any of its updates.
    let first = |find: &dyn Fn(&Value) -> bool| client.received.iter().position(find).unwrap();
    let announced = first(&|message| message["params"]["update"]["sessionId"] == child);
    assert!(announced < first(&|message| message["params"]["sessionId"] == child));
    assert!(client.updates(&session, "plan").is_empty());
}

#[tokio::test]
async fn one_child_can_be_cancelled_while_the_others_continue() {
    let env = TestEnv::new(team(fault(Fault::Hang)));
    let mut client = env.client_with(json!({"subagents": {}})).await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let message = client.read_until(|message| message["params"]["update"]["title"] == "Writer").await;
    let child = message["params"]["update"]["sessionId"].as_str().unwrap().to_owned();
    client.read_until(|message| message["params"]["sessionId"] == json!(child)).await;
    client.notify("session/cancel", json!({"sessionId": child})).await;
    assert_eq!(client.response_to(id).await.unwrap()["stopReason"], "end_turn");
    let updates = client.updates(&session, "subagent_update");
    let end = updates.iter().rfind(|update| update["sessionId"] == json!(child)).unwrap();
    assert_eq!(end["state"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn tell_command_reaches_a_running_agent() {
    let env = TestEnv::new(team(fault(Fault::Hang)));
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "go").await;
    client.read_until(|message| message.to_string().contains("Writer: started")).await;
    client.prompt(&session, "/tell nobody hurry").await.unwrap();
    assert!(client.agent_text(&session).contains("Running agents: "), "{}", client.agent_text(&session));
    client.prompt(&session, "/tell writer hurry").await.unwrap();
    assert!(client.agent_text(&session).contains("Sent to Writer."), "{}", client.agent_text(&session));
    client.prompt(&session, "/stop Writer").await.unwrap();
    assert_eq!(client.response_to(id).await.unwrap()["stopReason"], "end_turn");
    client.prompt(&session, "/cost").await.unwrap();
    assert!(client.agent_text(&session).contains("Total: "));
}
