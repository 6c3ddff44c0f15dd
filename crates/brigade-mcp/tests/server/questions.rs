//! What agents would ask.

use brigade::Settings;
use brigade::core::permission::Mode;
use serde_json::json;

use crate::support::{Client, Stage, delegate, session, words};

const WRITES: &str = "[[reply]]\nturn = 1\n[[reply.call]]\ntool = 'write_file'\n\
                      arguments = { path = 'a.txt', content = 'new' }\n[[reply]]\ntext = '{results}'\n";

fn asks(settings: &mut Settings) {
    settings.permissions.mode = Mode::Ask;
}

#[tokio::test]
async fn nobody_is_asked_where_the_client_has_no_forms() {
    let stage = Stage::with(WRITES, asks);
    let client = stage.client(Client::default()).await;
    let result = client.call_tool(delegate()).await.unwrap();
    assert!(words(&result).contains("--mode"), "{}", words(&result));
    assert!(!stage.folder.path().join("a.txt").exists());
}

#[tokio::test]
async fn the_person_behind_the_client_answers() {
    for (answer, is_written) in [("once", true), ("always", true), ("no", false)] {
        let stage = Stage::with(WRITES, asks);
        let person =
            Client { answers: Some(json!({ "answer": answer, "word": "not there" })), ..Client::default() };
        let client = stage.client(person.clone()).await;
        let result = client.call_tool(delegate()).await.unwrap();
        assert_eq!(stage.folder.path().join("a.txt").exists(), is_written, "{answer}: {}", words(&result));
        assert_eq!(words(&result).contains("not there"), !is_written, "{}", words(&result));
        let asked = person.asked.lock().unwrap().clone();
        assert!(asked.len() == 1 && asked[0].contains("a.txt"), "{asked:?}");
        // Whoever answers knows whom: the agent, and where to look at it.
        let who = format!("The agent 'Child' (session {}.1-0)", session(&result));
        assert!(asked[0].contains(&who), "{asked:?}");
    }
}
