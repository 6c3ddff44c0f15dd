//! Permission requests of agents at any depth.

use std::time::Duration;

use brigade_core::event::Answer;
use brigade_core::permission::Mode;
use brigade_core::{CallId, QuestionId};
use brigade_testing::{Script, call, delegate, reply};
use serde_json::json;

use crate::agent::support::TestEnv;

/// The lead delegates, its child delegates too, and the grandchild writes.
fn deep() -> Script {
    Script::new()
        .agent("lead", [delegate("Middle", "see to it").turn(1)])
        .agent("Middle", [delegate("Deep", "write it").turn(1)])
        .agent("Deep", [call("write_file", json!({ "path": "deep.txt", "content": "here" })).turn(1)])
        .reply("{results}")
}

fn test_env() -> TestEnv {
    TestEnv::new(deep()).in_mode(Mode::Ask)
}

#[tokio::test]
async fn permission_request_from_depth_two_reaches_the_client() {
    let env = test_env();
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let request = client.permission_request().await;
    let params = &request["params"];
    assert_eq!(params["sessionId"], json!(session));
    assert_eq!(params["toolCall"]["title"], "[Deep] Write deep.txt");
    let kinds: Vec<_> = params["options"].as_array().unwrap().iter().map(|option| &option["kind"]).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once"]);
    // The call in question was announced before.
    let calls = client.updates(&session, "tool_call");
    assert!(calls.iter().any(|call| call["toolCallId"] == params["toolCall"]["toolCallId"]));
    client.choose(&request, "once").await;
    assert_eq!(client.response_to(id).await.unwrap()["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(env.path().join("deep.txt")).unwrap(), "here");
}

#[tokio::test]
async fn rejected_permission_blocks_the_call() {
    let env = test_env();
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let request = client.permission_request().await;
    client.choose(&request, "reject").await;
    client.response_to(id).await.unwrap();
    assert!(!env.path().join("deep.txt").exists());
}

#[tokio::test]
async fn request_answered_elsewhere_is_cancelled_and_a_late_answer_ignored() {
    let env = test_env();
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let request = client.permission_request().await;
    let name = request["params"]["toolCall"]["toolCallId"].as_str().unwrap();
    let (deep, call) = name.rsplit_once(':').unwrap();
    let runtime = env.runtime();
    let call: CallId = call.parse().unwrap();
    runtime.answer(&deep.parse().unwrap(), call, Answer::Once, "another").await.unwrap();
    let withdrawn = client.read_until(|message| message["method"] == "$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], request["id"]);
    client.choose(&request, "reject").await;
    client.response_to(id).await.unwrap();
    assert!(env.path().join("deep.txt").exists());
}

#[tokio::test]
async fn expired_permission_request_is_cancelled_and_denied() {
    let env = test_env().with_question_timeout(Duration::from_millis(300));
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let request = client.permission_request().await;
    let withdrawn = client.read_until(|message| message["method"] == "$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], request["id"]);
    assert_eq!(client.response_to(id).await.unwrap()["stopReason"], "end_turn");
    assert!(!env.path().join("deep.txt").exists());
    client.disconnect().await;
}

#[tokio::test]
async fn session_cancel_ends_open_permission_requests() {
    let env = test_env();
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let request = client.permission_request().await;
    client.notify("session/cancel", json!({"sessionId": session})).await;
    client.answer(&request["id"], json!({"outcome": {"outcome": "cancelled"}})).await;
    assert_eq!(client.response_to(id).await.unwrap()["stopReason"], "cancelled");
    assert!(!env.path().join("deep.txt").exists());
    client.disconnect().await;
}

#[tokio::test]
async fn several_permission_requests_are_answered_in_any_order() {
    let script = Script::new().turns([
        call("write_file", json!({ "path": "a", "content": "a" }))
            .call("write_file", json!({ "path": "b", "content": "b" })),
        reply("end"),
    ]);
    let env = TestEnv::new(script).in_mode(Mode::Ask);
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let (first, second) = (client.permission_request().await, client.permission_request().await);
    client.choose(&second, "once").await;
    client.choose(&first, "reject").await;
    client.response_to(id).await.unwrap();
    let written = |name: &str| env.path().join(name).exists();
    let second_is_b = second["params"]["toolCall"]["title"] == "Write b";
    assert_eq!((written("a"), written("b")), (!second_is_b, second_is_b));
}

#[tokio::test]
async fn host_of_a_running_call_is_a_permission_request() {
    let turns = [call("connect", json!({ "host": "registry.example" })), reply("{results}")];
    for (choice, expected) in [("once", "connected"), ("always", "connected"), ("reject", "not connected")] {
        let env = TestEnv::new(Script::new().turns(turns.clone())).in_mode(Mode::Auto).with_connections();
        let mut client = env.client().await;
        let session = client.open(&env.path()).await;
        let id = client.start_prompt(&session, "go").await;
        let request = client.permission_request().await;
        let (params, shown) = (&request["params"], request["params"].to_string());
        let names: Vec<_> =
            params["options"].as_array().unwrap().iter().map(|option| &option["name"]).collect();
        assert_eq!(
            names,
            [
                "Allow registry.example:443 for this call",
                "Always allow registry.example:443 for lead",
                "Reject"
            ]
        );
        let why = "lead wants to connect to registry.example:443: the sandbox does not allow this host.";
        assert!(shown.contains(why), "{shown}");
        // The request is about the call that runs, which keeps its title.
        let calls = client.updates(&session, "tool_call");
        let running =
            calls.iter().find(|call| call["toolCallId"] == params["toolCall"]["toolCallId"]).unwrap();
        assert_eq!(running["title"], params["toolCall"]["title"]);
        client.choose(&request, choice).await;
        assert_eq!(client.response_to(id).await.unwrap()["stopReason"], "end_turn");
        let text = client
            .updates(&session, "agent_message_chunk")
            .iter()
            .map(ToString::to_string)
            .collect::<String>();
        assert!(text.contains(&format!("\"{expected}")), "{choice}: {text}");
        // A client that shows a rejected call as ended learns that it runs.
        let updates = client.updates(&session, "tool_call_update");
        let running = updates.iter().filter(|update| update["status"] == "in_progress").count();
        assert_eq!(running, 2, "{choice}: {updates:?}");
        client.disconnect().await;
    }
}

#[tokio::test]
async fn request_about_a_host_is_withdrawn_when_another_process_answers() {
    let turns = [call("connect", json!({ "host": "registry.example" })), reply("{results}")];
    let env = TestEnv::new(Script::new().turns(turns)).in_mode(Mode::Auto).with_connections();
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let request = client.permission_request().await;
    let question: QuestionId = "1-0:registry.example:443".parse().unwrap();
    env.runtime().answer(&session.parse().unwrap(), question, Answer::Once, "another").await.unwrap();
    let withdrawn = client.read_until(|message| message["method"] == "$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], request["id"]);
    client.choose(&request, "reject").await;
    client.response_to(id).await.unwrap();
    client.disconnect().await;
}
