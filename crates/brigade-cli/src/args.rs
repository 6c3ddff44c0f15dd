//! Command-line arguments. Parsing has no side effects; [`crate::settings`] resolves the values.

mod eval;
mod mcp;
mod onboarding;
mod tools;

use std::path::PathBuf;
use std::time::Duration;

use brigade_core::delegation_styles::EnabledStyles;
use brigade_core::permission::Mode;
use clap::{Parser, Subcommand, ValueEnum};

use crate::units;

pub(crate) use eval::Eval;
pub(crate) use mcp::Mcp;
pub(crate) use onboarding::{Completions, Demo, Doctor, Init, Man};
pub(crate) use tools::{Tools, ToolsAdd, ToolsCommand};

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

const RUN_HELP: &str = "\
Examples:
  brigade run \"Fix the tests\"                     quotes protect special characters
  brigade run -m ollama/qwen3 --mode plan < task.txt
  git diff | brigade run \"Review this change\"     standard input is appended to the task
  brigade run -c \"Now update the changelog\"       continue the last session with another task
  brigade run -r ID                               continue any session, like brigade resume
  brigade run --json-schema report.json \"Count the TODO comments\" | jq .count

Without a terminal, the command waits for the first byte of standard input, at most 3
seconds if there is a task. Add < /dev/null to skip the wait. With --json-schema, standard
output is JSON that matches the schema, or empty. If a result does not match, the model
is asked to correct it before the run fails.";

const MODELS_HELP: &str = "\
Examples:
  brigade models           providers, their status and their models
  brigade models openai    all models of one provider, with known prices
  brigade models ollama    the models installed on this machine

Prices are in USD per million tokens, from a built-in table. If an entry is wrong or
missing, set the price in your configuration:

  [prices.\"work/large\"]
  input = 3.00
  output = 15.00";

const CHAT_HELP: &str = "\
Examples:
  brigade chat                              chat with the lead agent
  brigade chat -a reviewer                  chat with one of your agents
  brigade chat -c                           continue the last session of this directory
  brigade chat -r ID                        continue any session, including those started by agents
  brigade chat --mode plan --budget-usd 1   set the mode, and the budget of each task
  printf 'one\\ntwo\\n' | brigade chat       messages from standard input, one per line

Messages that you send while agents work are delivered at the next turn. Esc or Ctrl-C
stops the agents; a second Ctrl-C quits. /help lists keys and commands.";

const RESUME_HELP: &str = "\
Examples:
  brigade resume                            continue the last session of this directory
  brigade resume k3vq                       any session, by its id or a prefix of it
  brigade resume k3vq --max-turns 40        with a different limit

The session keeps its directory, agent, model and mode.";

const ANSWER_HELP: &str = "\
Examples:
  brigade answer ID                         show pending requests and answer each with one key
  brigade answer ID yes                     allow this call once
  brigade answer ID always                  always allow it for this agent, by the rule shown
  brigade answer ID always 'shell(git *)'   always allow it by your own rule
  brigade answer ID no use make instead     deny it, with a reason for the agent
  brigade answer ID yes all                 allow all pending requests

A request that is not answered within `limits.question_timeout` is denied. Without a
terminal, requests are denied at once. To let a run wait for answers from another
terminal, pass --set permissions.questions=wait.";

const ACP_HELP: &str = "\
Your editor starts this command; configure it once. In Zed, in the file that
`zed: open settings` opens:

  \"agent_servers\": {
    \"Brigade\": { \"type\": \"custom\", \"command\": \"brigade\", \"args\": [\"acp\"] }
  }

Other editors use the same command and argument. Flags go after it:

  brigade acp --mode edit --budget-usd 2     mode and budget of each prompt
  brigade acp -a reviewer                    an agent other than the lead

The editor chooses the directory of a session. The configuration of that directory applies
only if you trust it: brigade trust DIR. Approval requests appear in the editor and can
also be answered from a terminal: brigade answer ID. Sessions are stored like all
others: brigade sessions list. Standard output contains only the protocol; warnings go
to standard error, which editors show in their logs.";

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
    /// Run one task with the lead agent and print its result
    #[command(alias = "exec", after_help = RUN_HELP)]
    Run(Run),
    /// Chat with an agent while its sub-agents work
    #[command(after_help = CHAT_HELP)]
    Chat(Chat),
    /// Continue a session after Ctrl-C, a crash, a limit or a failure; print the result if it is done
    #[command(after_help = RESUME_HELP)]
    Resume(Resume),
    /// Send a message to a session, while it runs or after it ends
    Tell(Tell),
    /// Stop a session and its sub-agents, even in another process
    Cancel(Cancel),
    /// Answer approval requests of agents, even in another process
    #[command(after_help = ANSWER_HELP)]
    Answer(Answer),
    /// List, show, export, import and remove sessions
    Sessions(Sessions),
    /// List and show agents, check their files, create new ones
    Agents(Agents),
    /// List the tools of agents; add and remove MCP servers
    #[command(after_help = tools::HELP)]
    Tools(Tools),
    /// List available models and their prices
    #[command(after_help = MODELS_HELP)]
    Models(Models),
    /// Serve sessions to an editor or another client over the Agent Client Protocol (ACP)
    #[command(after_help = ACP_HELP)]
    Acp(Acp),
    /// Show the configuration
    Config(Config),
    /// Serve the delegation tools over MCP
    #[command(after_help = mcp::HELP)]
    Mcp(Mcp),
    /// Trust a project's configuration, agents, skills and instructions
    Trust(Trust),
    /// Watch agents fix a small project, with a denied call, a crash and a resume; needs no key or network, and takes a few seconds
    #[command(after_help = onboarding::DEMO_HELP)]
    Demo(Demo),
    /// Run a small set of delegation tasks with your model and check the results with programs
    #[command(after_help = eval::HELP)]
    Eval(Eval),
    /// Create a configuration file
    #[command(after_help = onboarding::INIT_HELP)]
    Init(Init),
    /// Check your setup and suggest fixes
    #[command(after_help = onboarding::DOCTOR_HELP)]
    Doctor(Doctor),
    /// Print a shell completion script for commands, flags, session ids, agents and models
    #[command(after_help = onboarding::COMPLETIONS_HELP)]
    Completions(Completions),
    /// Print the manual page, or write one page per command
    #[command(after_help = onboarding::MAN_HELP)]
    Man(Man),
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Task; standard input is appended to it, or is the task if the argument is absent or `-`
    #[arg(value_name = "TASK")]
    pub(crate) task: Vec<String>,
    /// Continue the last session of this directory
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["resume", "agent"])]
    pub(crate) last: bool,
    /// Continue this session
    #[arg(short, long, value_name = "ID", conflicts_with = "agent")]
    pub(crate) resume: Option<String>,
    /// JSON Schema that the result must match: a file, or inline JSON that begins with {
    #[arg(long, value_name = "FILE|JSON", conflicts_with_all = ["last", "resume"])]
    pub(crate) json_schema: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Arguments of `chat`.
#[derive(Debug, clap::Args)]
pub(crate) struct Chat {
    /// Continue the last session of this directory
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["resume", "agent"])]
    pub(crate) last: bool,
    /// Continue this session
    #[arg(short, long, value_name = "ID", conflicts_with = "agent")]
    pub(crate) resume: Option<String>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Arguments of `resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// Session to continue (default: the last one of this directory)
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Arguments of `tell`.
#[derive(Debug, clap::Args)]
pub(crate) struct Tell {
    /// Session id
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Message
    #[arg(value_name = "TEXT", required = true)]
    pub(crate) text: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Arguments of `answer`.
#[derive(Debug, clap::Args)]
pub(crate) struct Answer {
    /// Session, to answer its pending requests and those of its sub-agents, or SESSION:CALL for one request (default:
    /// list the pending requests of all sessions)
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// yes, always, always RULE, no or no REASON (default: prompt at a terminal, otherwise list the pending requests)
    #[arg(value_name = "ANSWER", trailing_var_arg = true)]
    pub(crate) words: Vec<String>,
}

/// Arguments of `cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    /// Session id
    #[arg(value_name = "ID")]
    pub(crate) id: String,
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
    /// Calls that run without approval: plan (reads; all others are denied), ask (reads), edit (reads and file edits), auto
    /// (all calls that no deny or ask rule matches). Default: ask at a terminal; otherwise edit, and calls that need
    /// approval are denied
    #[arg(long, value_name = "plan|ask|edit|auto", value_parser = |text: &str| text.parse::<Mode>())]
    pub(crate) mode: Option<Mode>,
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

/// Arguments of `acp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Acp {
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Arguments of `sessions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Sessions {
    #[command(subcommand)]
    pub(crate) command: SessionsCommand,
}

const LIST_HELP: &str = "\
Examples:
  brigade sessions list                            the 20 newest
  brigade sessions list \"flaky test\"               sessions that contain this text, ignoring case
  brigade sessions list --status failed,incomplete --since 2d
  brigade sessions list --agent reviewer --all
  brigade sessions list --output-format json       all sessions, as JSON

Agents, turns and cost are totals of the whole tree. On a terminal, ids are shortened
to unique prefixes; every command accepts them.";

const SHOW_HELP: &str = "\
Examples:
  brigade sessions show last           the newest session
  brigade sessions show k3vq           any session, by a unique prefix of its id
  brigade sessions show k3vq.1-0       the sub-agent started by call 1-0 of that session
  brigade sessions show last --full | less

Long outputs are cut to their first lines; edits are shown as diffs.";

const TREE_HELP: &str = "\
Examples:
  brigade sessions tree last           the agents of the newest session
  brigade sessions tree k3vq --full    every agent, even in a very wide tree

Tokens, cost and time of a row are the agent's own. Columns under \u{3a3} include all agents
below it, so the first row has the totals. Time is working time; pauses between an
interruption and a resume do not count.";

const EXPORT_HELP: &str = "\
Examples:
  brigade sessions export last -o tree.html      one self-contained page: no scripts, no network
  brigade sessions export last -o tree.md        the same as Markdown
  brigade sessions export last -o tree.jsonl     the complete session, for `brigade sessions import`
  brigade sessions export last --format md | less

An export contains all messages and tool outputs. Review it before you share it.";

/// Subcommands of `sessions`.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, newest first, optionally filtered by text, state, agent or age
    #[command(after_help = LIST_HELP)]
    List(SessionsList),
    /// Show one session as a transcript with diffs
    #[command(after_help = SHOW_HELP)]
    Show {
        /// Session: its id, a prefix of its id, or `last`
        id: String,
        /// Show long outputs in full
        #[arg(long)]
        full: bool,
    },
    /// Show the agents of a run with their status and cost
    #[command(after_help = TREE_HELP)]
    Tree {
        /// Session: its id, a prefix of its id, or `last`
        id: String,
        /// Show every agent of a very wide tree
        #[arg(long)]
        full: bool,
    },
    /// Export a session and its sub-agents, to move, read or share it
    #[command(after_help = EXPORT_HELP)]
    Export(SessionsExport),
    /// Import an exported session into this store
    Import {
        /// File to read; `-` for standard input
        file: PathBuf,
    },
    /// Remove a session and its sub-agents
    Rm {
        /// Session: its id, a prefix of its id, or `last`
        id: String,
    },
}

/// Arguments of `sessions list`.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsList {
    /// Text to search for in tasks, messages and tool outputs
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Only sessions in this state (comma-separated)
    #[arg(long, value_name = "STATE", value_enum, value_delimiter = ',')]
    pub(crate) status: Vec<SessionState>,
    /// Only sessions of this agent
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Only sessions started within a duration such as 12h or 2d, or since a date such as 2026-11-16
    #[arg(long, value_name = "TIME", value_parser = units::parse_since)]
    pub(crate) since: Option<units::Since>,
    /// Maximum number of sessions (default: 20; no limit for JSON)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    /// List all sessions
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// State of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SessionState {
    /// A process is running it
    Running,
    /// It finished
    Done,
    /// A limit stopped it
    Incomplete,
    /// It failed
    Failed,
    /// It was cancelled
    Cancelled,
    /// Its process exited before it finished
    Interrupted,
    /// Its outcome is unknown
    Lost,
    /// It runs in the background
    Detached,
    /// It cannot be read
    Damaged,
    /// A newer version of brigade wrote it
    Newer,
}

/// Arguments of `sessions export`.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsExport {
    /// Session: its id, a prefix of its id, or `last`
    pub(crate) id: String,
    /// Export format (default: from the file extension, otherwise jsonl)
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// File to write; standard output if absent or `-`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

/// Export formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// JSON lines: the complete session, for `sessions import`
    Jsonl,
    /// Markdown
    #[value(alias = "markdown")]
    Md,
    /// One self-contained HTML page
    Html,
}

/// Arguments of `agents`.
#[derive(Debug, clap::Args)]
pub(crate) struct Agents {
    #[command(subcommand)]
    pub(crate) command: AgentsCommand,
}

/// Subcommands of `agents`.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// List all agents, and problems in agent files
    List,
    /// Show one agent: prompt, tools, limits, and how each key of its file is used
    Show {
        /// Agent id
        id: String,
    },
    /// Check agent files: which keys are honoured, translated, ignored or refused. Exit code 1 if one is refused
    Lint {
        /// Agent files or directories (default: all directories that are searched for agents)
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Create an agent file
    New {
        /// Agent id: 1 to 64 characters from a-z, 0-9, `.`, `_` and `-`
        id: String,
        /// Create it in .brigade/agents of the working directory instead of your own agents directory
        #[arg(long)]
        project: bool,
    },
}

/// Arguments of `models`.
#[derive(Debug, clap::Args)]
pub(crate) struct Models {
    /// List all models of this provider (default: query only local servers)
    #[arg(value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
}

/// Arguments of `config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// Subcommands of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show all effective values and their origins
    Show,
    /// Print the JSON Schema of config.toml and config.json, for completion and checks in editors
    Schema,
}

/// Arguments of `trust`.
#[derive(Debug, clap::Args)]
pub(crate) struct Trust {
    /// Project directory, or a directory inside it (default: the current directory)
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Trust the project without confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Stop trusting the project
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// List all trusted projects
    #[arg(long, conflicts_with_all = ["yes", "revoke", "folder"])]
    pub(crate) list: bool,
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
