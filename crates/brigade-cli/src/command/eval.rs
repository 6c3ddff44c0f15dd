//! `brigade eval`: runs a small corpus of delegation tasks with the user's model, and checks the results with programs.

mod attempt;
mod checks;
mod corpus;
mod report;

use std::sync::Arc;

use brigade::store::MemoryStore;
use brigade_core::{Limit, Price};
use clap::builder::PossibleValuesParser;
use serde_json::json;
use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};
use toml::Table;

use crate::args::{Flags, Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::follow::Signals;
use crate::model_hints;
use crate::output;
use crate::render::{layout, wrap_text};
use crate::settings::Settings;
use crate::setup;
use crate::summary::shell_quoted;
use crate::terminal;
use crate::units;

use attempt::Attempt;
use corpus::{EvalTask, task_names};
use report::{EvalReport, TaskReport};

const HELP: &str = "\
Examples:
  brigade eval --list                            the tasks, and what each one expects
  brigade eval quick-answer -m ollama/qwen3      one task with another model
  brigade eval --runs 3 --output-format json     every task three times, as JSON

The tasks run with your model and key, so they cost money; the maximum cost is printed
first. Each task has its own temporary directory and session store. Only the model, the
providers and the prices of your configuration are used. Results are checked by programs,
not by a model.

Exit code 0 if all tasks passed, 1 if one failed, 130 after Ctrl-C.";

/// Run a small set of delegation tasks with your model and check the results with programs
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct EvalArgs {
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

/// Runs the command.
pub(crate) fn run(global: &Global, eval: &EvalArgs) -> Result<Exit, CliError> {
    let tasks = corpus::select(&eval.tasks)?;
    if eval.list {
        return list(global, &tasks);
    }
    if global.store.is_some() {
        return Err(CliError::usage(
            "cannot use --store with eval: it stores its sessions in its own temporary directory. Use --keep to keep that directory.",
        ));
    }
    let flags = Flags { model: eval.model.clone(), ..Flags::default() };
    let settings = Settings::load_for_eval(global, &flags, Table::new(), std::path::PathBuf::new())?;
    let model = ChosenModel::resolve(&settings)?;
    if eval.budget_usd.is_some() && model.price.is_none() {
        let name = &model.name;
        return Err(CliError::usage(format!(
            "cannot enforce --budget-usd: the price of the model '{name}' is unknown. Set `input` and `output`, in dollars \
             per million tokens, under `[prices.\"{name}\"]` in your configuration, or use --budget-tokens."
        )));
    }
    let ran = setup::multi_thread_runtime()?.block_on(async {
        // From here on an interrupt leaves no folder behind.
        let interrupts = Interrupts::listen()?;
        let folder = create_folder()?;
        output::note(&model.announcement(eval, &tasks));
        let ran = run_tasks(global, eval, &model, &tasks, &folder, interrupts).await;
        clean_up(eval, folder)?;
        ran
    });
    let Ran { reports, was_interrupted } = ran?;
    let report = EvalReport::new(&model.name, reports);
    match global.output_format {
        OutputFormat::Text => {
            let colour = terminal::stdout_colour(&settings.environment);
            output::raw(&report.text(colour, terminal::stdout_columns()))?;
        }
        OutputFormat::Json | OutputFormat::StreamJson => output::json(&report)?,
    }
    Ok(match (was_interrupted, report.has_passed()) {
        (true, _) => Exit::Cancelled,
        (false, true) => Exit::Done,
        (false, false) => Exit::Failed,
    })
}

/// Runs that ended, and whether the user interrupted the rest.
struct Ran {
    reports: Vec<TaskReport>,
    was_interrupted: bool,
}

async fn run_tasks(
    global: &Global,
    eval: &EvalArgs,
    model: &ChosenModel,
    tasks: &[EvalTask],
    folder: &TempDir,
    mut interrupts: Interrupts,
) -> Result<Ran, CliError> {
    let mut reports = Vec::new();
    let count = tasks.len() * eval.runs as usize;
    for task in tasks {
        for run in 1..=eval.runs {
            let attempt = Attempt {
                task,
                run,
                model: &model.name,
                budget: model.budget(eval, task),
                folder: folder.path().join(format!("{}-{run}", task.name)),
            };
            let Some(report) = attempt.run(global, &mut interrupts).await? else {
                output::note(&format!("Interrupted: {} of {count} runs finished.", reports.len()));
                return Ok(Ran { reports, was_interrupted: true });
            };
            output::note(&format!("[{}/{count}] {}", reports.len() + 1, report.summary()));
            if global.output_format == OutputFormat::StreamJson {
                output::json(&report)?;
            }
            reports.push(report);
        }
    }
    Ok(Ran { reports, was_interrupted: false })
}

fn create_folder() -> Result<TempDir, CliError> {
    tempfile::Builder::new().prefix("brigade-eval-").tempdir().map_err(|error| {
        CliError::failed(format!(
            "cannot create a temporary directory: {error}. Set TMPDIR to a writable directory."
        ))
    })
}

/// Removes the folder, or says where it is.
fn clean_up(eval: &EvalArgs, folder: TempDir) -> Result<(), CliError> {
    let path = folder.path().to_path_buf();
    if !eval.keep {
        return folder.close().map_err(|error| {
            CliError::failed(format!("cannot remove {}: {error}. Remove it manually.", path.display()))
        });
    }
    let store = Attempt::store(&folder.keep().join("TASK-RUN"));
    output::note(&format!(
        "The projects and sessions are in {}\n\
         To inspect a run, replace TASK-RUN with its directory, such as fix-test-1: brigade sessions tree last --store {}",
        path.display(),
        shell_quoted(&store.display().to_string())
    ));
    Ok(())
}

/// Budget of one run. Dollars are in nano-dollars.
#[derive(Clone, Copy)]
pub(super) struct TaskBudget {
    tokens: u64,
    /// Absent if the price of the model is unknown.
    usd: Option<u64>,
}

/// Model that runs the tasks.
struct ChosenModel {
    name: String,
    /// Absent if it is unknown.
    price: Option<Price>,
}

impl ChosenModel {
    fn resolve(settings: &Settings) -> Result<ChosenModel, CliError> {
        let Some(name) = settings.model.clone() else {
            return Err(model_hints::no_model_for(settings, "brigade eval"));
        };
        let chosen = setup::models(settings)
            .choose(&name)
            .map_err(|error| model_hints::unusable_model(settings, &name, CliError::usage(error)))?;
        let price = chosen.provider.model_info(&chosen.name).price;
        Ok(ChosenModel { name, price })
    }

    fn budget(&self, eval: &EvalArgs, task: &EvalTask) -> TaskBudget {
        let limits = &task.limits;
        let tokens = eval.budget_tokens.filter(|_| !limits.has_fixed_tokens).unwrap_or(limits.tokens);
        let usd = match (self.price, eval.budget_usd, limits.usd) {
            (None, ..) | (Some(_), None, Limit::Unlimited) => None,
            (Some(_), Some(usd), _) | (Some(_), None, Limit::AtMost(usd)) => Some(usd),
        };
        TaskBudget { tokens, usd }
    }

    /// Line before the first run: it spends the user's money.
    fn announcement(&self, eval: &EvalArgs, tasks: &[EvalTask]) -> String {
        let budgets = || tasks.iter().map(|task| self.budget(eval, task));
        let sum = |amounts: &mut dyn Iterator<Item = u64>| {
            amounts.fold(0_u64, u64::saturating_add).saturating_mul(eval.runs.into())
        };
        let tasks = match tasks.len() {
            1 => "1 task".to_owned(),
            count => format!("{count} tasks"),
        };
        let runs = if eval.runs == 1 { String::new() } else { format!(", {} runs each,", eval.runs) };
        let tokens = units::format_compact(sum(&mut budgets().map(|budget| budget.tokens)));
        let name = &self.name;
        let Some(price) = self.price else {
            return format!(
                "{tasks}{runs} with {name}. Its price is unknown, so only tokens are limited: at most {tokens} in total."
            );
        };
        let cost = |budget: TaskBudget| {
            let all = price.worst_case(budget.tokens, 0).max(price.worst_case(0, budget.tokens));
            budget.usd.map_or(all, |usd| usd.min(all))
        };
        let most = units::format_dollars_brief(sum(&mut budgets().map(cost)));
        format!("{tasks}{runs} with {name}: at most {most} and {tokens} tokens in total.")
    }
}

/// Signals that end the eval.
pub(super) struct Interrupts {
    signals: Signals,
    hangup: Signal,
}

impl Interrupts {
    fn listen() -> Result<Interrupts, CliError> {
        let hangup = signal(SignalKind::hangup())
            .map_err(|error| CliError::failed(format!("cannot handle SIGHUP: {error}")))?;
        // The stores of the runs are used by this process only, so Ctrl-Z need not wait for them.
        Ok(Interrupts { signals: Signals::listen(Arc::new(MemoryStore::new()))?, hangup })
    }

    /// Waits for a signal that ends the eval.
    async fn next(&mut self) {
        tokio::select! {
            () = self.signals.next() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Prints the tasks.
fn list(global: &Global, tasks: &[EvalTask]) -> Result<Exit, CliError> {
    let dollars = |task: &EvalTask| match task.limits.usd {
        Limit::AtMost(usd) => Some(usd),
        Limit::Unlimited => None,
    };
    if global.output_format != OutputFormat::Text {
        let entry = |task: &EvalTask| {
            json!({
                "name": task.name,
                "description": task.definition.description,
                "prompt": task.definition.prompt,
                "expected": task.definition.delegation,
                "status": task.definition.status.as_str(),
                "budget_tokens": task.limits.tokens,
                "budget_usd": dollars(task).map(units::dollars_as_f64),
            })
        };
        output::json(&tasks.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(Exit::Done);
    }
    let mut rows = vec![["task", "delegates", "description", "budget", ""].map(str::to_owned)];
    rows.extend(tasks.iter().map(|task| {
        [
            task.name.to_owned(),
            task.definition.delegation.as_str().to_owned(),
            task.definition.description.clone(),
            units::format_compact(task.limits.tokens),
            dollars(task).map(units::format_dollars_brief).unwrap_or_default(),
        ]
    }));
    let columns = terminal::stdout_columns();
    output::text(&layout(&rows, terminal::Colour::Off, columns, 3, &[4, 3, 2]))?;
    output::note(&wrap_text("Run one with: brigade eval TASK", terminal::stderr_columns()));
    Ok(Exit::Done)
}
