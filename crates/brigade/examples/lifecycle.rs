//! Two nested sub-agents, and a subscriber that prints their lifecycle events through the six callbacks.

use std::error::Error;
use std::io::Write;

use brigade::core::delegation_styles::spawn::SpawnConfig;
use brigade::lifecycle::Observer;
use brigade::model::script::Script;
use brigade::{Models, Runtime, Settings, SubagentCallbacks, Task, Workspace};

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
    let mut settings = Settings::new("script", Workspace::open(folder.path())?);
    settings.delegation_styles.spawn = Some(SpawnConfig::default());
    let runtime = Runtime::in_memory(settings, Models::default().with("script", Script::parse(SCRIPT)?));
    let mut callbacks = SubagentCallbacks {
        on_start: Some(Box::new(|info| say(format!("{} starts as {}", info.id, info.description)))),
        on_stream_delta: Some(Box::new(|id, text| say(format!("{id} says {text}")))),
        on_tool_call_start: Some(Box::new(|id, call| say(format!("{id} calls {}", call.name)))),
        on_tool_call_end: Some(Box::new(|id, result| say(format!("{id} gets {}", result.text)))),
        on_complete: Some(Box::new(|id, result| say(format!("{id} is done after {} turns", result.turns)))),
        on_error: Some(Box::new(|id, error| say(format!("{id} failed: {error}")))),
    };
    let mut run = runtime.start(Task::new("Send a scout.")).await?;
    let (mut watch, mut observer) = (run.take_events(), Observer::new());
    while let Some(live) = watch.next().await {
        observer.observe(&live).iter().for_each(|event| callbacks.call(event));
    }
    run.result().await?;
    Ok(())
}
