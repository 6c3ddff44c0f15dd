//! Arguments of `eval`.

use clap::builder::PossibleValuesParser;

use crate::command::eval::task_names;
use crate::units;

/// Examples of `eval`.
pub(super) const HELP: &str = "\
Examples:
  brigade eval --list                            the tasks, and what each one expects
  brigade eval quick-answer -m ollama/qwen3      one task with another model
  brigade eval --runs 3 --output-format json     every task three times, as JSON

The tasks run with your model and key, so they cost money; the maximum cost is printed
first. Each task has its own temporary directory and session store. Only the model, the
providers and the prices of your configuration are used. Results are checked by programs,
not by a model.

Exit code 0 if all tasks passed, 1 if one failed, 130 after Ctrl-C.";

/// Arguments of `eval`.
#[derive(Debug, clap::Args)]
pub(crate) struct Eval {
    /// Tasks to run (default: all)
    #[arg(value_name = "TASK", value_parser = PossibleValuesParser::new(task_names()), hide_possible_values = true)]
    pub(crate) tasks: Vec<String>,
    /// List the tasks without running them
    #[arg(long, conflicts_with_all = ["model", "budget_usd", "budget_tokens", "runs", "keep"])]
    pub(crate) list: bool,
    /// Model: PROVIDER/MODEL, or script:FILE for a scripted one
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Maximum cost of each task, in USD: 2, 0.50 or $2 (default: set by the task)
    #[arg(long, allow_negative_numbers = true, value_name = "X", value_parser = units::parse_dollars)]
    pub(crate) budget_usd: Option<u64>,
    /// Maximum tokens of each task, input plus output: 500000, 500k or 2M (default: set by the task)
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = units::parse_count)]
    pub(crate) budget_tokens: Option<u64>,
    /// Number of runs of each task
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Keep the temporary directory with the projects and the sessions
    #[arg(long)]
    pub(crate) keep: bool,
}
