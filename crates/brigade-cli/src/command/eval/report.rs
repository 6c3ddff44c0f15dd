//! Report of an eval: a table for users, JSON for programs.

use brigade_core::Spent;
use serde::Serialize;

use super::checks::CheckResult;
use super::corpus::Expectation;
use crate::render::{layout, wrap_hanging};
use crate::sanitize;
use crate::terminal::Colour;
use crate::units;

/// Columns that are dropped first if space is limited: expected, turns, time, tokens.
const DROPPED_COLUMNS: [usize; 4] = [4, 5, 8, 6];
/// Number of columns that contain text.
const TEXT_COLUMNS: usize = 5;

/// Object that `--output-format json` prints, and the last line of `stream-json`.
#[derive(Debug, Serialize)]
pub(super) struct EvalReport {
    model: String,
    passed: usize,
    failed: usize,
    cost_usd: f64,
    /// Whether `cost_usd` is missing calls of models with unknown prices.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cost_unknown: bool,
    tasks: Vec<TaskReport>,
}

/// One run of one task. Turns, tokens and cost include its sub-agents.
#[derive(Debug, Serialize)]
pub(super) struct TaskReport {
    pub(super) name: &'static str,
    pub(super) run: u32,
    pub(super) passed: bool,
    pub(super) delegated: bool,
    pub(super) sub_agents: usize,
    pub(super) expected: Expectation,
    pub(super) turns: u64,
    pub(super) tokens: u64,
    pub(super) cost_usd: f64,
    pub(super) duration_ms: u64,
    pub(super) status: String,
    pub(super) checks: Vec<CheckResult>,
    #[serde(skip)]
    pub(super) spent: Spent,
}

impl TaskReport {
    /// Result, time and cost, for the line about a finished task.
    pub(super) fn summary(&self) -> String {
        let TaskReport { name, run, .. } = self;
        let run = if *run > 1 { format!(" (run {run})") } else { String::new() };
        let (time, cost) = (units::format_elapsed(self.duration_ms), units::format_cost(&self.spent));
        format!("{name}{run}: {}, {time}, {cost}", self.result())
    }

    fn result(&self) -> &'static str {
        if self.passed { "passed" } else { "failed" }
    }

    fn delegated(&self) -> String {
        if self.delegated { format!("yes {}", self.sub_agents) } else { "no".to_owned() }
    }

    fn failures(&self) -> impl Iterator<Item = String> {
        let failed = self.checks.iter().filter(|check| !check.passed);
        failed.map(|check| sanitize::line(&format!("{}: {}", check.name, check.detail)))
    }
}

impl EvalReport {
    /// Report of the runs that have ended.
    pub(super) fn new(model: &str, tasks: Vec<TaskReport>) -> EvalReport {
        let passed = tasks.iter().filter(|task| task.passed).count();
        let spent = total(&tasks);
        EvalReport {
            model: model.to_owned(),
            passed,
            failed: tasks.len() - passed,
            cost_usd: units::dollars_as_f64(spent.usd),
            cost_unknown: spent.unpriced > 0,
            tasks,
        }
    }

    /// Whether every run passed.
    pub(super) fn has_passed(&self) -> bool {
        self.failed == 0
    }

    /// Table with the failed checks of each task, totals and the model.
    pub(super) fn text(&self, colour: Colour, columns: usize) -> String {
        let mut rows = vec![
            ["task", "run", "result", "delegated", "expected", "turns", "tokens", "cost", "time"]
                .map(str::to_owned),
        ];
        rows.extend(self.tasks.iter().map(|task| self.cells(task)));
        rows.push(self.totals());
        let table = layout(&rows, colour, columns, TEXT_COLUMNS, &DROPPED_COLUMNS);
        let mut text = String::new();
        for (row, task) in
            table.lines().zip(std::iter::once(None).chain(self.tasks.iter().map(Some)).chain([None]))
        {
            text.push_str(&format!("{row}\n"));
            for failure in task.into_iter().flat_map(TaskReport::failures) {
                let lines = wrap_hanging(&format!("  {failure}"), columns, 4);
                text.extend(lines.iter().map(|line| format!("{}\n", colour.paint("31", line))));
            }
        }
        text.push_str(&format!("\nModel: {}\n", sanitize::line(&self.model)));
        text
    }

    fn cells(&self, task: &TaskReport) -> [String; 9] {
        // The column is dropped if it is empty.
        let is_repeated = self.tasks.iter().any(|task| task.run > 1);
        [
            task.name.to_owned(),
            if is_repeated { task.run.to_string() } else { String::new() },
            task.result().to_owned(),
            task.delegated(),
            task.expected.as_str().to_owned(),
            task.turns.to_string(),
            units::format_compact(task.tokens),
            units::format_cost(&task.spent),
            units::format_elapsed(task.duration_ms),
        ]
    }

    fn totals(&self) -> [String; 9] {
        let (spent, count) = (total(&self.tasks), self.tasks.len());
        let delegated = self.tasks.iter().filter(|task| task.delegated).count();
        let sum = |value: fn(&TaskReport) -> u64| self.tasks.iter().map(value).sum::<u64>();
        [
            "total".to_owned(),
            String::new(),
            format!("{} of {count}", self.passed),
            format!("{delegated} of {count}"),
            String::new(),
            sum(|task| task.turns).to_string(),
            units::format_compact(sum(|task| task.tokens)),
            units::format_cost(&spent),
            units::format_elapsed(sum(|task| task.duration_ms)),
        ]
    }
}

fn total(tasks: &[TaskReport]) -> Spent {
    tasks.iter().fold(Spent::default(), |sum, task| sum.plus(task.spent))
}
