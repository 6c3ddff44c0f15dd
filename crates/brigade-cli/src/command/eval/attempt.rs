//! One run of a task, in a folder and a store of its own.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use brigade::mcp::Servers;
use brigade::{RunError, RunResult};
use brigade_core::permission::Mode;
use brigade_core::{Outcome, Status};

use super::checks::Evidence;
use super::corpus::EvalTask;
use super::report::TaskReport;
use super::{Interrupts, TaskBudget};
use crate::args::{Flags, Global};
use crate::command::run::{TaskInput, start_session};
use crate::error::CliError;
use crate::follow::RunView;
use crate::settings::Settings;
use crate::setup;
use crate::units;

/// Time that agents have to stop after an interrupt. Then the store is removed anyway.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Run of a task that is about to start.
pub(super) struct Attempt<'a> {
    pub(super) task: &'a EvalTask,
    pub(super) run: u32,
    pub(super) model: &'a str,
    pub(super) budget: TaskBudget,
    pub(super) folder: PathBuf,
}

/// End of a run that was followed.
struct Ending {
    result: Result<RunResult, RunError>,
    view: RunView,
    duration: Duration,
}

impl Attempt<'_> {
    /// Session store of the run.
    pub(super) fn store(folder: &Path) -> PathBuf {
        folder.join("sessions.db")
    }

    /// Runs the task and checks its result. None if the user interrupted it.
    pub(super) async fn run(
        &self,
        global: &Global,
        interrupts: &mut Interrupts,
    ) -> Result<Option<TaskReport>, CliError> {
        let project = self.folder.join("project");
        self.task.write_project(&project).map_err(|error| {
            let folder = project.display();
            CliError::failed(format!(
                "cannot write the project of {} to {folder}: {error}. Free some space, or set TMPDIR to another directory.",
                self.task.name
            ))
        })?;
        let flags = self.flags(project);
        let config = self.task.definition.config.clone();
        let settings = Settings::load_for_eval(global, &flags, config, Attempt::store(&self.folder))?;
        let Some(ending) = self.follow(&settings, &flags, interrupts).await? else { return Ok(None) };
        tokio::select! {
            biased;
            () = interrupts.next() => Ok(None),
            report = self.report(&settings, &ending) => report.map(Some),
        }
    }

    fn flags(&self, project: PathBuf) -> Flags {
        let TaskBudget { tokens, usd } = self.budget;
        Flags {
            model: Some(self.model.to_owned()),
            cwd: Some(project),
            max_turns: Some(self.task.limits.turns),
            timeout: Some(self.task.limits.timeout),
            budget_tokens: Some(tokens),
            budget_usd: usd,
            mode: Some(Mode::Edit),
            ..Flags::default()
        }
    }

    /// Runs the task to its end. None if the user interrupted it; then its agents are cancelled.
    async fn follow(
        &self,
        settings: &Settings,
        flags: &Flags,
        interrupts: &mut Interrupts,
    ) -> Result<Option<Ending>, CliError> {
        let store = setup::open_store(settings)?;
        let runtime = setup::runtime(settings, store.clone(), &Servers::default()).await?;
        let input = TaskInput::new(&self.task.definition.prompt);
        let since = Instant::now();
        let run = start_session(&runtime, settings, flags, &input).await?;
        let root = run.session().clone();
        let mut result = pin!(run.result());
        let result = tokio::select! {
            biased;
            () = interrupts.next() => {
                // Nothing of this run is reported.
                if runtime.cancel(&root, "the user").await.is_ok() {
                    let _ = tokio::time::timeout(STOP_TIMEOUT, &mut result).await;
                }
                return Ok(None);
            }
            result = &mut result => result,
        };
        let duration = since.elapsed();
        let (view, _) = RunView::load(&*store, &root).await?;
        Ok(Some(Ending { result, view, duration }))
    }

    async fn report(&self, settings: &Settings, ending: &Ending) -> Result<TaskReport, CliError> {
        let Ending { result, view, duration } = ending;
        let (status, reason, answer) = match result {
            Ok(RunResult { outcome, .. }) => {
                (outcome.status.as_str(), reason(outcome), outcome.text.as_str())
            }
            Err(error) => ("failed", error.to_string(), ""),
        };
        let evidence = Evidence { task: self.task, settings, view, status, reason, answer };
        let checks = evidence.check_all().await?;
        let spent = view.tree.spent(&view.root);
        let nodes = view.tree.walk(&view.root);
        let sub_agents = nodes.len().saturating_sub(1);
        Ok(TaskReport {
            name: self.task.name,
            run: self.run,
            passed: checks.iter().all(|check| check.passed),
            delegated: sub_agents > 0,
            sub_agents,
            expected: self.task.definition.delegation,
            turns: nodes.iter().map(|node| node.turns).sum(),
            tokens: spent.usage.total(),
            cost_usd: units::dollars_as_f64(spent.usd),
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            status: status.to_owned(),
            checks,
            spent,
        })
    }
}

/// Limit or cause of an end that is not a success.
fn reason(outcome: &Outcome) -> String {
    match &outcome.status {
        Status::Done | Status::Detached => String::new(),
        Status::Incomplete { limit } => limit.to_string(),
        Status::Failed { cause } | Status::Lost { cause } => cause.clone(),
        Status::Cancelled { by } => format!("by {by}"),
    }
}
