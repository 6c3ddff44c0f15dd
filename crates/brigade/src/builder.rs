//! Runtimes in a few lines: models, tools, agents and limits, checked when they are built.

mod build_error;
mod checks;
mod options;
mod task_run;

use std::sync::{Arc, Mutex};

use brigade_core::SessionId;

use crate::agents::AgentProblem;
use crate::{ResumeOptions, Runtime, SubagentCallbacks, Task};

pub use build_error::BuildError;
pub use checks::{known_tools, unmatched_rule};
pub use options::BrigadeBuilder;
pub use task_run::TaskRun;

/// A runtime with its models, tools and agents. Clones share everything.
///
/// ```no_run
/// use brigade::provider::Anthropic;
/// use brigade::{Agent, Brigade, Budget};
///
/// # async fn example(key: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let result = Brigade::builder()
///     .model(Anthropic::new(key).model("claude-sonnet-4-5"))
///     .workspace(".")
///     .agent(Agent::new("reviewer", "Reviews a file and lists its defects.").tools(["read_file", "grep"]))
///     .budget(Budget::usd(2.50))
///     .build()?
///     .run("Review src/lib.rs")
///     .await?;
/// assert!(result.cost_usd() <= 2.50);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Brigade {
    runtime: Runtime,
    callbacks: Option<Arc<Mutex<SubagentCallbacks>>>,
    agent_problems: Arc<[AgentProblem]>,
}

impl Brigade {
    /// Starts a builder. A model and a workspace are required.
    pub fn builder() -> BrigadeBuilder {
        BrigadeBuilder::default()
    }

    /// Runs a task in a new session. It starts when the returned value is awaited or its events are read.
    pub fn run(&self, task: impl Into<Task>) -> TaskRun {
        let (runtime, task) = (self.runtime.clone(), task.into());
        self.task_run(async move { runtime.start(task).await })
    }

    /// Resumes a session with the limits of the builder. An open round is finished. An ended session starts its next
    /// round if there is work to do, such as a message of [`Runtime::tell`].
    pub fn resume(&self, session: &SessionId) -> TaskRun {
        self.resume_with(session, ResumeOptions::default())
    }

    /// Resumes a session with other limits.
    pub fn resume_with(&self, session: &SessionId, options: ResumeOptions) -> TaskRun {
        let (runtime, session) = (self.runtime.clone(), session.clone());
        self.task_run(async move { runtime.resume(&session, options).await })
    }

    /// Returns the runtime, for everything else: messages, approvals, cancellation, the store. Runs
    /// started through it do not invoke the callbacks of the builder.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the problems of the agent files that were skipped.
    pub fn agent_problems(&self) -> &[AgentProblem] {
        &self.agent_problems
    }

    fn task_run(
        &self,
        start: impl Future<Output = Result<crate::Run, crate::RunError>> + Send + 'static,
    ) -> TaskRun {
        TaskRun::new(Box::pin(start), self.callbacks.clone())
    }
}
