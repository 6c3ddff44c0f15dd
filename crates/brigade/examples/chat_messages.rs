//! Messages of agents to the user (tool `message`), posted to the webhook of a chat program as they are sent.
//!
//! ```text
//! cargo run -p brigade --example chat_messages -- https://chat.example.com/hooks/…
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::io::Write;

use brigade::model::script::Script;
use brigade::{Brigade, Event, RunEvent, RunResult, SessionId};
use brigade_http_client::tls;
use serde_json::json;

const SCRIPT: &str = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "message"
arguments = { text = "I start with the tests." }
[[reply.call]]
tool = "delegate"
arguments = { role = "Tester", task = "Run the tests.", tools = ["message"] }
[[reply]]
agent = "Tester"
turn = 1
[[reply.call]]
tool = "message"
arguments = { text = "Two of 40 tests fail." }
[[reply]]
text = "Done."
"#;

/// Runs a task and posts each message of an agent, in order.
pub(crate) async fn run_with_chat(webhook: &str) -> Result<RunResult, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let brigade =
        Brigade::builder().custom_model("script", Script::parse(SCRIPT)?).workspace(folder.path()).build()?;
    // A client of your own needs a TLS provider: this one uses that of Brigade.
    let chat = tls::client_builder().build()?;
    let mut names: HashMap<SessionId, String> = HashMap::new();
    let mut run = brigade.run("Check the project.");
    while let Some(event) = run.next().await {
        let RunEvent::Record(record) = event else { continue };
        match &record.event {
            Event::Started { delegation, .. } => {
                let name = delegation.role.as_ref().or(delegation.agent.as_ref());
                names.insert(record.session.clone(), name.cloned().unwrap_or_default());
            }
            Event::Said { text, .. } => {
                let name = names.get(&record.session).map_or("", String::as_str);
                let body = json!({ "text": format!("[{name}] {text}") }).to_string();
                let post = chat.post(webhook).header("content-type", "application/json").body(body);
                // The run continues if the chat program is not available. The URL of a webhook is a secret.
                if let Err(error) = post.send().await.and_then(reqwest::Response::error_for_status) {
                    let _ = writeln!(std::io::stderr(), "cannot post a message: {}", error.without_url());
                }
            }
            _ => {}
        }
    }
    Ok(run.await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let webhook = std::env::args().nth(1).ok_or("Pass the URL of the webhook as the argument.")?;
    let result = run_with_chat(&webhook).await?;
    writeln!(std::io::stdout(), "{}", result.text())?;
    Ok(())
}
