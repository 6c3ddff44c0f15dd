//! Questions of agents, from any depth.

use std::time::Duration;

use brigade_core::event::Answer;
use brigade_core::permission::Mode;
use serde_json::json;

use crate::support::World;

/// The lead hands the work on, and so does the one below; the last one writes.
const DEEP: &str = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Middle", task = "see to it" }
[[reply]]
agent = "Middle"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Deep", task = "write it" }
[[reply]]
agent = "Deep"
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "deep.txt", content = "here" }
[[reply]]
text = "{results}"
"#;

fn world() -> World {
    World::new(DEEP).in_mode(Mode::Ask)
}

#[tokio::test]
async fn a_question_from_depth_two_is_asked_and_the_answer_counts() {
    let world = world();
    let mut client = world.client().await;
    let session = client.open(&world.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let question = client.question().await;
    let params = &question["params"];
    assert_eq!(params["sessionId"], json!(session));
    assert_eq!(params["toolCall"]["title"], "[Deep] Write deep.txt");
    let kinds: Vec<_> = params["options"].as_array().unwrap().iter().map(|option| &option["kind"]).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once"]);
    // The call that is asked about was told of before.
    let calls = client.updates(&session, "tool_call");
    assert!(calls.iter().any(|call| call["toolCallId"] == params["toolCall"]["toolCallId"]));
    client.choose(&question, "once").await;
    assert_eq!(client.answered(id).await.unwrap()["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(world.path().join("deep.txt")).unwrap(), "here");
}

#[tokio::test]
async fn a_no_is_a_no() {
    let world = world();
    let mut client = world.client().await;
    let session = client.open(&world.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let question = client.question().await;
    client.choose(&question, "reject").await;
    client.answered(id).await.unwrap();
    assert!(!world.path().join("deep.txt").exists());
}

#[tokio::test]
async fn what_is_answered_elsewhere_is_withdrawn_and_the_late_answer_ignored() {
    let world = world();
    let mut client = world.client().await;
    let session = client.open(&world.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let question = client.question().await;
    let name = question["params"]["toolCall"]["toolCallId"].as_str().unwrap();
    let (deep, call) = name.rsplit_once(':').unwrap();
    let runtime = world.runtime();
    runtime.answer(&deep.parse().unwrap(), call.parse().unwrap(), Answer::Once, "another").await.unwrap();
    let withdrawn = client.until(|message| message["method"] == "$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    client.choose(&question, "reject").await;
    client.answered(id).await.unwrap();
    assert!(world.path().join("deep.txt").exists());
}

#[tokio::test]
async fn a_question_that_runs_out_is_withdrawn_and_means_no() {
    let world = world().waiting_for_answers(Duration::from_millis(300));
    let mut client = world.client().await;
    let session = client.open(&world.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let question = client.question().await;
    let withdrawn = client.until(|message| message["method"] == "$/cancel_request").await;
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(client.answered(id).await.unwrap()["stopReason"], "end_turn");
    assert!(!world.path().join("deep.txt").exists());
    client.leave().await;
}

#[tokio::test]
async fn a_cancel_takes_open_questions_back() {
    let world = world();
    let mut client = world.client().await;
    let session = client.open(&world.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let question = client.question().await;
    client.notify("session/cancel", json!({"sessionId": session})).await;
    client.answer(&question["id"], json!({"outcome": {"outcome": "cancelled"}})).await;
    assert_eq!(client.answered(id).await.unwrap()["stopReason"], "cancelled");
    assert!(!world.path().join("deep.txt").exists());
    client.leave().await;
}

#[tokio::test]
async fn several_questions_are_open_at_once_and_answered_in_any_order() {
    let script = r#"
[[reply]]
turn = 1
[[reply.call]]
tool = "write_file"
arguments = { path = "a", content = "a" }
[[reply.call]]
tool = "write_file"
arguments = { path = "b", content = "b" }
[[reply]]
text = "end"
"#;
    let world = World::new(script).in_mode(Mode::Ask);
    let mut client = world.client().await;
    let session = client.open(&world.path()).await;
    let id = client.start_prompt(&session, "go").await;
    let (first, second) = (client.question().await, client.question().await);
    client.choose(&second, "once").await;
    client.choose(&first, "reject").await;
    client.answered(id).await.unwrap();
    let written = |name: &str| world.path().join(name).exists();
    let second_is_b = second["params"]["toolCall"]["title"] == "Write b";
    assert_eq!((written("a"), written("b")), (!second_is_b, second_is_b));
}
