//! The program in `notify`, which is started when an approval is requested or a run ends.
//!
//! It runs like a command of `shell`: under a guard, with the same environment and a time limit. Details are passed in
//! variables, never in the command line, so that the shell does not interpret text of a model.

use std::time::Duration;

use brigade::tool::ShellSettings;
use brigade_sandbox::{Confinement, ExitReason, Job};
use tokio::task::JoinSet;

use crate::render::fit;
use crate::sanitize;

/// Tag of its guard.
pub(crate) const NOTIFY_TAG: &str = "notify";
/// Time limit of the program.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of its output that are kept for a warning.
const MAX_OUTPUT_BYTES: usize = 1024;
/// Maximum number of running programs. Further events are dropped.
const MAX_RUNNING: usize = 4;
/// Columns of one value.
const MAX_VALUE_COLUMNS: usize = 500;

/// Prefix of the variables. It is not `BRIGADE_`, which would turn them into settings of a `brigade` command that the
/// program runs.
const VARIABLE_PREFIX: &str = "NOTIFY_";

/// Starts the notification program.
pub(crate) struct Notifier {
    command: String,
    shell: ShellSettings,
    running: JoinSet<Option<String>>,
    problem: Option<String>,
}

impl Notifier {
    /// Creates a notifier for a command line.
    pub(crate) fn new(command: &str, shell: &ShellSettings) -> Notifier {
        Notifier { command: command.to_owned(), shell: shell.clone(), running: JoinSet::new(), problem: None }
    }

    /// Starts the program with these variables, whose names lack the prefix. Does not wait for it.
    pub(crate) fn start(&mut self, variables: &[(&str, String)]) {
        self.collect();
        if self.running.len() >= MAX_RUNNING {
            return;
        }
        let value = |value: &str| fit(&sanitize::line(value), MAX_VALUE_COLUMNS);
        let mut environment = self.shell.environment.clone();
        environment
            .extend(variables.iter().map(|(name, text)| (format!("{VARIABLE_PREFIX}{name}"), value(text))));
        let job = Job::new(&self.command, &self.shell.directory, NOTIFY_TAG, Confinement::None)
            .environment(environment)
            .time_limit(NOTIFY_TIMEOUT)
            .output_limit(MAX_OUTPUT_BYTES);
        let guard = self.shell.guard.clone();
        self.running.spawn(async move {
            match brigade_sandbox::run(&guard, job, std::future::pending()).await {
                Ok(finished) => problem(finished.end, &finished.output),
                Err(error) => Some(error.to_string()),
            }
        });
    }

    /// Waits for running programs, up to their time limit. Returns the first problem.
    pub(crate) async fn finish(&mut self) -> Option<String> {
        while let Some(ended) = self.running.join_next().await {
            self.record_problem(ended.ok().flatten());
        }
        self.problem.take()
    }

    fn collect(&mut self) {
        while let Some(ended) = self.running.try_join_next() {
            self.record_problem(ended.ok().flatten());
        }
    }

    fn record_problem(&mut self, problem: Option<String>) {
        self.problem = self.problem.take().or(problem);
    }
}

/// Problem of a program that has ended, if any.
fn problem(end: ExitReason, output: &[u8]) -> Option<String> {
    let last_line = String::from_utf8_lossy(output);
    let last_line =
        last_line.lines().last().map(|line| format!(": {}", sanitize::line(line))).unwrap_or_default();
    match end {
        ExitReason::Exited(0) | ExitReason::Cancelled => None,
        ExitReason::Exited(code) => Some(format!("it exited with code {code}{last_line}")),
        ExitReason::Signalled(signal) => Some(format!("it was killed by signal {signal}{last_line}")),
        ExitReason::OverLimit(limit) => Some(format!("it was killed: {limit}")),
        ExitReason::TimedOut => Some(format!("it was stopped after {} seconds", NOTIFY_TIMEOUT.as_secs())),
    }
}
