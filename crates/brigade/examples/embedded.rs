//! An embedded run that delegates to two specialists in parallel, within a budget, in a store file that can be
//! resumed.

use std::error::Error;
use std::sync::Arc;

use brigade::core::{Budget, Limit, Status};
use brigade::model::script::Script;
use brigade::store::sqlite::SqliteStore;
use brigade::{Models, Runtime, Settings, Task, Workspace};

const SCRIPT: &str = r#"
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Researcher", task = "Find three facts about tea." }
[[reply.call]]
tool = "delegate"
arguments = { role = "Critic", task = "Say what is often wrong about tea.", tools = [] }
[[reply]]
agent = "lead"
text = "Put together:\n{results}"
[[reply]]
text = "My answer to: {task}"
"#;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(&folder.path().join("sessions.db"))?);
    let settings = Settings::new("script", Workspace::open(folder.path())?);
    let runtime = Runtime::new(store, settings, Models::default().with("script", Script::parse(SCRIPT)?));

    let budget = Budget {
        tokens: Limit::AtMost(100_000),
        usd: Limit::AtMost(1_000_000_000),
        agents: Limit::AtMost(5),
    };
    let result = runtime.start(Task::new("Tell me about tea.").budget(budget)).await?.await?;

    assert_eq!(result.outcome.status, Status::Done);
    assert!(
        result.outcome.text.as_str().contains("[Critic]: My answer to: Say what is often wrong about tea.")
    );
    assert_eq!(result.spent.agents, 2);
    Ok(())
}
