//! Prompts: streaming, tool calls, stop reasons and cancellation.

use brigade_core::permission::Mode;
use brigade_testing::{Fault, Script, call, fault, reply};
use serde_json::{Value, json};

use crate::agent::support::TestEnv;

fn two_steps() -> Script {
    Script::new().turns([
        reply("I write it down.")
            .call("write_file", json!({ "path": "notes/a.txt", "content": "one" }))
            .chunks(4),
        reply("Done: {results}").turn(2).tokens(30, 12),
    ])
}

#[tokio::test]
async fn prompt_streams_its_reply_tool_calls_and_usage() {
    let env = TestEnv::new(two_steps());
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let end = client.prompt(&session, "Write a note").await.unwrap();
    assert_eq!(end["stopReason"], "end_turn");
    assert!(end["usage"]["totalTokens"].as_u64().unwrap() >= 42, "{end}");
    let text = client.agent_text(&session);
    assert!(text.starts_with("I write it down.") && text.contains("Done: "), "{text}");
    let pieces = client.updates(&session, "agent_message_chunk");
    assert!(pieces.len() >= 3, "{pieces:?}");
    assert_ne!(pieces[0]["messageId"], pieces[pieces.len() - 1]["messageId"]);
    let calls = client.updates(&session, "tool_call");
    let call = &calls[0];
    assert_eq!((&call["kind"], &call["title"]), (&json!("edit"), &json!("Write notes/a.txt")));
    assert_eq!(call["rawInput"], json!({"path": "notes/a.txt", "content": "one"}));
    let file = env.path().join("notes/a.txt");
    assert_eq!(call["locations"][0]["path"], json!(file));
    let changes = client.updates(&session, "tool_call_update");
    let statuses: Vec<&Value> = changes.iter().map(|change| &change["status"]).collect();
    assert_eq!(statuses, ["in_progress", "completed"]);
    assert!(changes.iter().all(|change| change["toolCallId"] == call["toolCallId"]));
    assert_eq!(changes[1]["content"][0], json!({"type": "diff", "path": file, "newText": "one"}));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "one");
    client.disconnect().await;
}

#[tokio::test]
async fn second_prompt_continues_the_session() {
    let script = Script::new().turns([reply("First."), reply("Second.").turn(2)]);
    let env = TestEnv::new(script);
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let first = client.prompt(&session, "one").await.unwrap();
    assert_eq!(client.agent_text(&session), "First.");
    let second = client.prompt(&session, "two").await.unwrap();
    assert_eq!(client.agent_text(&session), "First.Second.");
    // The protocol counts usage over the whole session, and so does the report to another Brigade.
    let used = |end: &Value| end["usage"]["outputTokens"].as_u64().unwrap();
    assert!(used(&second) > used(&first), "{first} {second}");
    assert_eq!(second["_meta"]["brigade/spent"]["turns"], 2);
    assert_eq!(second["_meta"]["brigade/spent"]["output_tokens"], second["usage"]["outputTokens"]);
}

#[tokio::test]
async fn cancel_ends_the_round_and_leaves_nothing_running() {
    let env = TestEnv::new(Script::new().reply(reply("x").fault(Fault::Hang)));
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let id = client.start_prompt(&session, "wait").await;
    client.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(client.response_to(id).await.unwrap()["stopReason"], "cancelled");
    // The same prompt, cancelled with `$/cancel_request`.
    let id = client.start_prompt(&session, "wait again").await;
    client.notify("$/cancel_request", json!({"requestId": id})).await;
    assert_eq!(client.response_to(id).await.unwrap()["stopReason"], "cancelled");
    client.disconnect().await;
}

#[tokio::test]
async fn end_of_input_cancels_the_running_round() {
    use brigade::Store;
    let env = TestEnv::new(Script::new().reply(fault(Fault::Hang)));
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    client.start_prompt(&session, "wait").await;
    while env.store.read(&session.parse().unwrap(), 0).await.unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    client.disconnect().await;
    let records = env.store.read(&session.parse().unwrap(), 0).await.unwrap();
    assert_eq!(records.last().unwrap().event.kind(), "ended");
    assert!(env.store.roots().await.unwrap()[0].runner.is_none());
}

#[tokio::test]
async fn two_sessions_run_in_parallel_and_a_busy_one_refuses_a_prompt() {
    let script = Script::new().reply(fault(Fault::Hang).task("slow")).reply("Quick.");
    let env = TestEnv::new(script);
    let mut client = env.client().await;
    let (slow, quick) = (client.open(&env.path()).await, client.open(&env.path()).await);
    assert_ne!(slow, quick);
    let waiting = client.start_prompt(&slow, "slow").await;
    assert_eq!(client.prompt(&quick, "quick").await.unwrap()["stopReason"], "end_turn");
    let refused = client.prompt(&slow, "more").await.unwrap_err();
    assert_eq!(refused["code"], -32600);
    assert!(refused["message"].as_str().unwrap().contains("is running"), "{refused}");
    // Commands are handled by the session itself, so they work during a round.
    client.prompt(&slow, "/tree").await.unwrap();
    assert!(client.agent_text(&slow).contains("**lead**"), "{}", client.agent_text(&slow));
    client.prompt(&slow, "/stop").await.unwrap();
    assert_eq!(client.response_to(waiting).await.unwrap()["stopReason"], "cancelled");
}

#[tokio::test]
async fn limits_and_failures_are_reported() {
    let script = Script::new().reply(call("echo", json!({ "text": "{turn}" })));
    let env = TestEnv::new(script);
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let end = client.prompt(&session, "for ever").await.unwrap();
    assert_eq!(
        (&end["stopReason"], &end["_meta"]["brigade/limit"]),
        (&json!("max_turn_requests"), &json!("turns"))
    );
    assert!(client.agent_text(&session).contains("(incomplete: turns)"));

    let env = TestEnv::new(Script::new().reply(fault(Fault::Refused)));
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let failed = client.prompt(&session, "x").await.unwrap_err();
    assert_eq!(failed["code"], -32603);
    assert!(!failed["message"].as_str().unwrap().is_empty());
    // It can be resumed, here with the same result.
    assert_eq!(client.prompt(&session, "/resume").await.unwrap_err()["code"], -32603);
}

#[tokio::test]
async fn cut_off_reply_is_distinguished_from_the_next_attempt() {
    let script = Script::new()
        .reply(reply("half a reply that is cut off somewhere here").fault(Fault::Cut).attempt(1).chunks(4))
        .reply("Whole.");
    let env = TestEnv::new(script);
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    client.prompt(&session, "x").await.unwrap();
    let text = client.agent_text(&session);
    assert!(text.ends_with("Whole."), "{text}");
    assert!(!text.starts_with("half") || text.contains("Retrying."), "{text}");
}

#[tokio::test]
async fn mode_and_model_changes_apply_from_the_next_prompt() {
    let env = TestEnv::new(two_steps()).in_mode(Mode::Ask);
    let mut client = env.client().await;
    let opened = client.call("session/new", json!({"cwd": env.path(), "mcpServers": []})).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(opened["modes"]["currentModeId"], "ask");
    let modes = opened["modes"]["availableModes"].as_array().unwrap();
    assert_eq!(
        modes.iter().map(|mode| mode["id"].as_str().unwrap()).collect::<Vec<_>>(),
        ["plan", "ask", "edit", "auto"]
    );
    assert_eq!(opened["configOptions"][1]["currentValue"], "script");
    client.call("session/set_mode", json!({"sessionId": session, "modeId": "auto"})).await.unwrap();
    let set = json!({"sessionId": session, "configId": "model", "value": "other"});
    let options = client.call("session/set_config_option", set).await.unwrap();
    assert_eq!(options["configOptions"][0]["currentValue"], "auto");
    assert_eq!(options["configOptions"][1]["currentValue"], "other");
    client.prompt(&session, "Write").await.unwrap();
    assert!(env.path().join("notes/a.txt").exists());
    // A stricter mode applies from the next round on.
    let set = json!({"sessionId": session, "configId": "mode", "value": "plan"});
    client.call("session/set_config_option", set).await.unwrap();
    client.prompt(&session, "/mode").await.unwrap();
    assert!(client.agent_text(&session).ends_with("The mode is plan."));
    assert_eq!(client.updates(&session, "current_mode_update").last().unwrap()["currentModeId"], "plan");
    for (method, params) in [
        ("session/set_mode", json!({"sessionId": session, "modeId": "wild"})),
        (
            "session/set_config_option",
            json!({"sessionId": session, "configId": "model", "value": "none/such"}),
        ),
        ("session/set_config_option", json!({"sessionId": session, "configId": "colour", "value": "red"})),
        (
            "session/set_config_option",
            json!({"sessionId": session, "configId": "mode", "type": "boolean", "value": true}),
        ),
    ] {
        assert_eq!(client.call(method, params.clone()).await.unwrap_err()["code"], -32602, "{params}");
    }
}
