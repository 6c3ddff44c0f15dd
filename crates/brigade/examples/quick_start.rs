//! Quick start: a real model reviews the last change, with a sub-agent and within a budget.
//!
//! ```text
//! ANTHROPIC_API_KEY=… cargo run -p brigade --example quick_start
//! ```

use std::error::Error;
use std::io::Write;
use std::path::Path;

use brigade::provider::{Anthropic, Provider};
use brigade::{Agent, Brigade, Budget, RunResult};

pub(crate) async fn review(model: Provider, workspace: &Path) -> Result<RunResult, Box<dyn Error>> {
    let result = Brigade::builder()
        .model(model)
        .workspace(workspace)
        .agent(Agent::new("reviewer", "Reviews a file and lists its defects.").tools(["read_file", "grep"]))
        .budget(Budget::usd(2.50))
        .build()?
        .run("Review src/lib.rs")
        .await?;
    Ok(result)
}

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "the library reads no environment, so the program does")]
async fn main() -> Result<(), Box<dyn Error>> {
    let key = std::env::var("ANTHROPIC_API_KEY")?;
    let result = review(Anthropic::new(key).model("claude-sonnet-4-5"), Path::new(".")).await?;
    let (cost, tokens) = (result.cost_usd(), result.tokens());
    writeln!(std::io::stdout(), "{}\n\n${cost:.4}, {tokens} tokens", result.text())?;
    Ok(())
}
