//! New and recorded sessions.

use brigade_core::permission::Mode;
use brigade_testing::{Script, reply};
use serde_json::json;

use crate::agent::support::TestEnv;

fn talk() -> Script {
    Script::new().turns([
        reply("I look.").call("echo", json!({ "text": "seen" })),
        reply("First answer."),
        reply("Second answer."),
    ])
}

#[tokio::test]
async fn session_load_replays_the_transcript_to_another_connection() {
    let env = TestEnv::new(talk());
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    client.prompt(&session, "First words").await.unwrap();
    client.disconnect().await;

    let mut client = env.client().await;
    let load = json!({"sessionId": session, "cwd": env.path(), "mcpServers": []});
    let loaded = client.call("session/load", load).await.unwrap();
    assert_eq!(loaded["modes"]["currentModeId"], "edit");
    assert_eq!(client.agent_text(&session), "I look.First answer.");
    assert_eq!(client.updates(&session, "user_message_chunk")[0]["content"]["text"], "First words");
    assert_eq!(client.updates(&session, "tool_call").len(), 1);
    assert_eq!(client.updates(&session, "tool_call_update").last().unwrap()["status"], "completed");
    client.prompt(&session, "More words").await.unwrap();
    assert!(client.agent_text(&session).ends_with("Second answer."));
    client.disconnect().await;

    // Resumed without a replay. The last message is recorded, too.
    let mut client = env.client().await;
    let resume = json!({"sessionId": session, "cwd": env.path(), "mcpServers": []});
    client.call("session/resume", resume.clone()).await.unwrap();
    assert_eq!(client.agent_text(&session), "");
    client.call("session/load", resume).await.unwrap();
    assert_eq!(client.updates(&session, "user_message_chunk")[1]["content"]["text"], "More words");
}

#[tokio::test]
async fn loaded_session_keeps_the_stricter_of_old_and_current_mode() {
    let env = TestEnv::new(talk()).in_mode(Mode::Auto);
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    client.prompt(&session, "First words").await.unwrap();
    client.disconnect().await;

    let load = json!({"sessionId": session, "cwd": env.path(), "mcpServers": []});
    let env = env.in_mode(Mode::Plan);
    let mut client = env.client().await;
    let loaded = client.call("session/load", load.clone()).await.unwrap();
    assert_eq!(loaded["modes"]["currentModeId"], "plan");
    client.prompt(&session, "More words").await.unwrap();
    // The model that the user chooses in the editor applies.
    client.call("session/set_mode", json!({"sessionId": session, "modeId": "edit"})).await.unwrap();
    client.prompt(&session, "More words").await.unwrap();
    client.disconnect().await;

    let env = env.in_mode(Mode::Auto);
    let mut client = env.client().await;
    client.call("session/resume", load).await.unwrap();
    client.prompt(&session, "More words").await.unwrap();
    let rounds = env.rounds(&session).await;
    let modes: Vec<Mode> = rounds.iter().map(|(authority, _)| authority.permissions.mode).collect();
    assert_eq!(modes, [Mode::Auto, Mode::Plan, Mode::Edit, Mode::Edit]);
}

#[tokio::test]
async fn configured_model_replaces_the_recorded_one() {
    let env = TestEnv::new(talk());
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    client.prompt(&session, "First words").await.unwrap();
    client.disconnect().await;

    let env = env.with_model("named");
    let mut client = env.client().await;
    let resume = json!({"sessionId": session, "cwd": env.path(), "mcpServers": []});
    client.call("session/resume", resume).await.unwrap();
    client.prompt(&session, "More words").await.unwrap();
    assert_eq!(client.agent_text(&session), "I am another.");
}

#[tokio::test]
async fn sessions_are_listed_closed_and_deleted() {
    let env = TestEnv::new(talk());
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    client.prompt(&session, "First words").await.unwrap();
    let listed = client.call("session/list", json!({"cwd": env.path()})).await.unwrap();
    let only = &listed["sessions"][0];
    assert_eq!((&only["sessionId"], &only["title"]), (&json!(session), &json!("First words")));
    assert_eq!(only["cwd"], json!(env.path()));
    assert!(only["updatedAt"].as_str().unwrap().ends_with('Z'));
    let elsewhere = client.call("session/list", json!({"cwd": "/"})).await.unwrap();
    assert_eq!(elsewhere["sessions"], json!([]));
    client.call("session/close", json!({"sessionId": session})).await.unwrap();
    assert_eq!(client.prompt(&session, "x").await.unwrap_err()["code"], -32002);
    client.call("session/delete", json!({"sessionId": session})).await.unwrap();
    assert_eq!(client.call("session/list", json!({})).await.unwrap()["sessions"], json!([]));
}

#[tokio::test]
async fn invalid_folder_and_unknown_session_are_refused() {
    let env = TestEnv::new(talk());
    let mut client = env.client().await;
    let file = env.path().join("file");
    std::fs::write(&file, "").unwrap();
    for folder in [json!("relative"), json!("/no/such/folder"), json!(file)] {
        let new = client.call("session/new", json!({"cwd": folder, "mcpServers": []})).await;
        assert_eq!(new.unwrap_err()["code"], -32602, "{folder}");
    }
    let more = json!({"cwd": env.path(), "mcpServers": [], "additionalDirectories": ["/"]});
    assert_eq!(client.call("session/new", more).await.unwrap_err()["code"], -32602);
    let sse = json!([{"type": "sse", "name": "old one", "url": "http://127.0.0.1:1/", "headers": []}]);
    let new = client.call("session/new", json!({"cwd": env.path(), "mcpServers": sse})).await;
    let refused = new.unwrap_err()["message"].as_str().unwrap().to_owned();
    assert!(
        refused.starts_with("cannot use MCP server 'old one'") && refused.contains("streamable HTTP"),
        "{refused}"
    );
    for id in ["nonsense", "aaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        let load = json!({"sessionId": id, "cwd": env.path(), "mcpServers": []});
        assert_eq!(client.call("session/load", load).await.unwrap_err()["code"], -32002);
        assert_eq!(client.prompt(id, "x").await.unwrap_err()["code"], -32002);
    }
}

#[tokio::test]
async fn available_commands_are_sent_after_the_session_opens() {
    let env = TestEnv::new(talk());
    let mut client = env.client().await;
    let session = client.open(&env.path()).await;
    let update = client
        .read_until(|message| message["params"]["update"]["sessionUpdate"] == "available_commands_update")
        .await;
    assert_eq!(update["params"]["sessionId"], json!(session));
    let names = update["params"]["update"]["availableCommands"].as_array().unwrap();
    assert!(
        names.iter().any(|command| command["name"] == "tell" && command["input"]["hint"] == "AGENT TEXT")
    );
}
