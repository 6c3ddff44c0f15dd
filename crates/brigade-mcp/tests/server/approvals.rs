//! Approval requests of agents.

use brigade::Settings;
use brigade::core::permission::Mode;
use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::support::{Client, TestServer, delegate, result_text, session};

fn writes() -> Script {
    Script::new()
        .turns([call("write_file", json!({ "path": "a.txt", "content": "new" })), reply("{results}")])
}

fn asks(settings: &mut Settings) {
    settings.permissions.mode = Mode::Ask;
}

#[tokio::test]
async fn approval_without_elicitation_support_is_denied() {
    let test = TestServer::with(writes(), asks);
    let client = test.client(Client::default()).await;
    let result = client.call_tool(delegate()).await.unwrap();
    assert!(result_text(&result).contains("--mode"), "{}", result_text(&result));
    assert!(!test.folder.path().join("a.txt").exists());
}

#[tokio::test]
async fn elicitation_answer_decides_the_approval() {
    for (answer, is_written) in [("once", true), ("always", true), ("no", false)] {
        let test = TestServer::with(writes(), asks);
        let person =
            Client { answers: Some(json!({ "answer": answer, "word": "not there" })), ..Client::default() };
        let client = test.client(person.clone()).await;
        let result = client.call_tool(delegate()).await.unwrap();
        assert_eq!(
            test.folder.path().join("a.txt").exists(),
            is_written,
            "{answer}: {}",
            result_text(&result)
        );
        assert_eq!(result_text(&result).contains("not there"), !is_written, "{}", result_text(&result));
        let asked = person.asked.lock().unwrap().clone();
        assert!(asked.len() == 1 && asked[0].contains("a.txt"), "{asked:?}");
        // The form names the agent and its session.
        let who = format!("The agent 'Child' (session {}.1-0)", session(&result));
        assert!(asked[0].contains(&who), "{asked:?}");
    }
}
