//! An embedded run that delegates to two specialists in parallel, within a budget, in a store file. A later round
//! continues the session.

use std::error::Error;
use std::sync::Arc;

use brigade::model::script::Script;
use brigade::store::SqliteStore;
use brigade::{Brigade, Budget, Status};

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
turn = 2
text = "Put together:\n{results}"
[[reply]]
agent = "lead"
text = "You asked: {heard}"
[[reply]]
text = "My answer to: {task}"
"#;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let brigade = Brigade::builder()
        .custom_model("script", Script::parse(SCRIPT)?)
        .workspace(folder.path())
        .budget(Budget::usd(1.00).tokens(100_000).agents(5))
        .store(Arc::new(SqliteStore::open(&folder.path().join("sessions.db"))?))
        .build()?;

    let result = brigade.run("Tell me about tea.").await?;
    assert_eq!(result.outcome.status, Status::Done);
    assert!(result.text().contains("[Critic]: My answer to: Say what is often wrong about tea."));
    assert_eq!(result.spent.agents, 2);

    brigade.runtime().tell(&result.session, "And coffee?").await?;
    let next = brigade.resume(&result.session).await?;
    assert_eq!(next.text(), "You asked: And coffee?");
    Ok(())
}
