//! Events of a run as they arrive, and a program that decides about the calls that require approval.

use std::error::Error;
use std::io::Write;

use brigade::core::event::Answer;
use brigade::model::script::Script;
use brigade::schemars::JsonSchema;
use brigade::{ApprovalPolicy, Brigade, Event, RunEvent, Tool, ToolContext, ToolOutput};
use serde::Deserialize;

struct Deploy;

/// Deploy the project to a server.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "brigade::schemars")]
struct DeployInput {
    /// Name of the server
    server: String,
}

impl Tool for Deploy {
    const NAME: &'static str = "deploy";
    type Input = DeployInput;

    async fn run(&self, input: DeployInput, _context: &ToolContext) -> ToolOutput {
        ToolOutput::ok(format!("deployed to {}", input.server))
    }
}

const SCRIPT: &str = r#"
[[reply]]
turn = 1
[[reply.call]]
tool = "deploy"
arguments = { server = "staging" }
[[reply.call]]
tool = "deploy"
arguments = { server = "production" }
[[reply]]
text = "{results}"
"#;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let brigade = Brigade::builder()
        .custom_model("script", Script::parse(SCRIPT)?)
        .workspace(folder.path())
        .tool(Deploy)
        .approvals(ApprovalPolicy::AskUser)
        .build()?;

    let mut run = brigade.run("Deploy the project.");
    while let Some(event) = run.next().await {
        match event {
            RunEvent::Delta { text, .. } => write!(std::io::stdout(), "{text}")?,
            RunEvent::Waiting { .. } | RunEvent::Discarded { .. } => {}
            RunEvent::Record(record) => match &record.event {
                Event::Asked { call, what, .. } => {
                    let answer = match what.as_str().contains("staging") {
                        true => Answer::Once,
                        false => Answer::Deny { word: Some("Only staging today.".to_owned()) },
                    };
                    run.started().await?.answer(&record.session, *call, answer, "the program").await?;
                }
                Event::ToolEnded { output, .. } => writeln!(std::io::stdout(), "result: {}", output.text)?,
                _ => {}
            },
        }
    }
    let result = run.await?;
    assert!(result.text().contains("deployed to staging"));
    assert!(result.text().contains("Only staging today."));
    Ok(())
}
