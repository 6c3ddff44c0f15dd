//! Command-line arguments. Parsing has no side effects; [`crate::settings`] resolves the values.

use std::path::PathBuf;
use std::time::Duration;

use brigade_core::delegation_styles::EnabledStyles;
use brigade_core::permission::Mode;
use clap::{Parser, Subcommand, ValueEnum};

use crate::command;
use crate::units;

const EXAMPLES: &str = "\
Examples:
  brigade demo                               watch agents fix a project: no key, no network
  brigade init                               choose a model and what agents may do
  brigade doctor                             check your setup and suggest fixes
  brigade run \"Fix the tests\"                give the lead agent one task
  brigade run --mode plan < task.txt         read the task from standard input; change nothing
  brigade run --budget-usd 0.50 --timeout 10m --max-turns 20 \"Fix the tests\"
  brigade chat                               chat with the lead agent; -c continues the last session
  brigade answer last                        answer approval requests from any terminal
  brigade tell ID \"Also the changelog\"       send a message, during a run or after it
  brigade resume                             continue the last run after Ctrl-C, a limit or a crash
  brigade sessions list \"flaky test\"         find a session; show, tree and export print it
  brigade agents new reviewer                create an agent for: brigade run -a reviewer ...
  brigade mcp                                serve Brigade's agents as tools over MCP
  brigade models                             list available models and their prices
  brigade eval --list                        tasks that show whether a model delegates well

Exit codes:
  0    done                       3    incomplete: a limit was reached; prints the partial result
  1    failed                     130  cancelled
  2    usage or configuration error

Standard output contains only the result; progress and messages go to standard error.";

/// Multi-agent runs: a lead agent splits the task, specialists do the parts, and every step is recorded
#[derive(Debug, Parser)]
#[command(name = "brigade", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Global {
    /// Format of standard output: text, one JSON object, or one JSON object per line as events happen
    #[arg(long, global = true, help_heading = "Global options", value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    pub(crate) output_format: OutputFormat,
    /// Set a configuration key, such as swarm.max_depth=2 (repeatable)
    #[arg(long, global = true, help_heading = "Global options", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Session store file
    #[arg(long, global = true, help_heading = "Global options", value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
    /// Do not escape control characters in results written to a pipe or file
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) raw: bool,
    /// Show more on standard error, including every tool call
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub(crate) verbose: bool,
}

/// Format of standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Plain text
    #[default]
    Text,
    /// One JSON object at the end
    Json,
    /// One JSON object per line as events happen
    StreamJson,
}

/// Subcommands of `brigade`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(alias = "exec")]
    Run(command::run::RunArgs),
    Chat(command::chat::ChatArgs),
    Resume(command::resume::ResumeArgs),
    Tell(command::tell::TellArgs),
    Cancel(command::cancel::CancelArgs),
    Answer(command::answer::AnswerArgs),
    Sessions(command::sessions::SessionsArgs),
    Agents(command::agents::AgentsArgs),
    Tools(command::tools::ToolsArgs),
    Models(command::models::ModelsArgs),
    Acp(command::acp::AcpArgs),
    Config(command::config::ConfigArgs),
    Mcp(command::mcp::McpArgs),
    Trust(command::trust::TrustArgs),
    Demo(command::demo::DemoArgs),
    Eval(command::eval::EvalArgs),
    Init(command::init::InitArgs),
    Doctor(command::doctor::DoctorArgs),
    Completions(command::completions::CompletionsArgs),
    Man(command::man::ManArgs),
}

/// Options of commands that run agents.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Flags {
    /// Agent that receives the task
    #[arg(short, long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Model: PROVIDER/MODEL, or script:FILE for a scripted one
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Working directory
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Maximum number of turns (model calls) of the lead agent
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = turn_count)]
    pub(crate) max_turns: Option<u32>,
    /// Maximum duration of the whole run: 30s, 10m or 2h; a number without a unit means seconds
    #[arg(long, allow_negative_numbers = true, value_name = "TIME", value_parser = units::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Maximum tokens of the whole run, input plus output: 500000, 500k or 2M
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = units::parse_count)]
    pub(crate) budget_tokens: Option<u64>,
    /// Maximum cost of the whole run, in USD: 2, 0.50 or $2
    #[arg(long, allow_negative_numbers = true, value_name = "X", value_parser = units::parse_dollars)]
    pub(crate) budget_usd: Option<u64>,
    /// Maximum number of sub-agents
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = agent_count)]
    pub(crate) max_agents: Option<u64>,
    /// Delegation styles: auto, or a comma-separated list of delegate, subagent, dispatch, spawn
    #[arg(long = "faces", value_name = "STYLES", value_parser = styles)]
    pub(crate) delegation_styles: Option<String>,
    /// Calls that run without approval: plan (reads, and commands whose changes are discarded; all others are denied), ask
    /// (reads), edit (reads, file edits, and commands in a sandbox), auto (all calls that no deny or ask rule matches).
    /// Default: ask at a terminal; otherwise edit, and calls that need approval are denied
    #[arg(long, value_name = "plan|ask|edit|auto", value_parser = |text: &str| text.parse::<Mode>())]
    pub(crate) mode: Option<Mode>,
    /// Run commands of agents without the sandbox, with all your permissions. A resumed round that was started in a sandbox
    /// keeps it
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}

impl Flags {
    /// Whether a flag sets a limit. Such limits apply to rounds that have not begun.
    pub(crate) fn has_limit(&self) -> bool {
        self.max_turns.is_some()
            || self.timeout.is_some()
            || self.budget_tokens.is_some()
            || self.budget_usd.is_some()
            || self.max_agents.is_some()
    }
}

/// Parses a number of turns.
fn turn_count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("'{text}' is not a number of turns. Use a whole number of at least 1"))
}

/// Parses a number of sub-agents, which may be 0.
fn agent_count(text: &str) -> Result<u64, String> {
    units::parse_count(text).map_err(|_| {
        format!("'{text}' is not a number of sub-agents. Use a whole number such as 20, or 0 for none")
    })
}

/// Parses delegation styles as the configuration does, so that errors name the flag.
fn styles(text: &str) -> Result<String, String> {
    serde_json::from_value::<EnabledStyles>(text.into())
        .map(|_| text.to_owned())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn args_definition_passes_clap_checks() {
        Args::command().debug_assert();
    }
}
