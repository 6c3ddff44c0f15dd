//! Two nested sub-agents, and the six lifecycle callbacks, which print their events.

use std::error::Error;
use std::io::Write;

use brigade::core::DelegationStyle;
use brigade::model::script::Script;
use brigade::{Brigade, SubagentCallbacks};

const SCRIPT: &str = r#"
[[reply]]
agent = "scout"
turn = 1
[[reply.call]]
tool = "subagent_spawn"
arguments = { task = "List the files.", description = "lister" }
[[reply]]
agent = "lister"
turn = 1
[[reply.call]]
tool = "list_dir"
arguments = { path = "." }
[[reply]]
turn = 1
[[reply.call]]
tool = "subagent_spawn"
arguments = { task = "Look around.", description = "scout" }
[[reply]]
text = "That was all."
"#;

fn say(line: String) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let callbacks = SubagentCallbacks {
        on_start: Some(Box::new(|info| say(format!("{} starts as {}", info.id, info.description)))),
        on_stream_delta: Some(Box::new(|id, text| say(format!("{id} says {text}")))),
        on_tool_call_start: Some(Box::new(|id, call| say(format!("{id} calls {}", call.name)))),
        on_tool_call_end: Some(Box::new(|id, result| say(format!("{id} gets {}", result.text)))),
        on_complete: Some(Box::new(|id, result| say(format!("{id} is done after {} turns", result.turns)))),
        on_error: Some(Box::new(|id, error| say(format!("{id} failed: {error}")))),
    };
    let brigade = Brigade::builder()
        .custom_model("script", Script::parse(SCRIPT)?)
        .workspace(folder.path())
        .delegation([DelegationStyle::Spawn])
        .callbacks(callbacks)
        .build()?;
    let result = brigade.run("Send a scout.").await?;
    assert_eq!(result.spent.agents, 2);
    Ok(())
}
