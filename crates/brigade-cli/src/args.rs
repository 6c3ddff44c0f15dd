//! What can be typed. Parsing does nothing else; [`crate::settings`] makes sense of it.

mod mcp;
mod onboarding;
mod tools;

use std::path::PathBuf;
use std::time::Duration;

use brigade_core::delegation_styles::EnabledStyles;
use brigade_core::permission::Mode;
use clap::{Parser, Subcommand, ValueEnum};

use crate::units;

pub(crate) use mcp::Mcp;
pub(crate) use onboarding::{Completions, Demo, Doctor, Init, Man};
pub(crate) use tools::{Tools, ToolsAdd, ToolsCommand};

const EXAMPLES: &str = "\
Examples:
  brigade demo                               see a brigade work: no key, no network
  brigade init                               choose a model, and what agents may do
  brigade doctor                             what is amiss on this machine, and what to do
  brigade run \"Fix the tests\"                one task for the lead agent
  brigade run --mode plan < task.txt         the task from standard input, nothing is changed
  brigade run --budget-usd 0.50 --timeout 10m --max-turns 20 \"Fix the tests\"
  brigade chat                               talk with the lead agent; -c goes on where you left it
  brigade answer last                        answer what agents ask, from any terminal
  brigade tell ID \"Also the changelog\"       say more, while it runs or after it; cancel ID stops it
  brigade resume                             continue the last run: after Ctrl-C, a limit or a crash
  brigade sessions list \"flaky test\"         find a session; show, tree and export look into it
  brigade agents new reviewer                an agent of yours, for: brigade run -a reviewer ...
  brigade mcp                                Brigade's agents as tools of any MCP client
  brigade models                             which models can be used here, and what they cost

Exit codes:
  0    done                       3    incomplete: a limit was reached; prints what there is
  1    failed                     130  cancelled
  2    usage or configuration

Standard output carries the result only; progress and messages go to standard error.";

const RUN_HELP: &str = "\
Examples:
  brigade run \"Fix the tests\"                     quotes are needed only for characters that your shell reads
  brigade run -m ollama/qwen3 --mode plan < task.txt
  git diff | brigade run \"Review this change\"     standard input is appended to the task
  brigade run -c \"Now update the changelog\"       the last session of this folder, with another task
  brigade run -r ID                                continue any session, as brigade resume does
  brigade run --json-schema report.json \"Count the TODO comments\" | jq .count

Without a terminal the first byte of standard input is waited for, 3 seconds at most if
there is a task; < /dev/null skips it. With --json-schema standard output is JSON that fits
the schema, or empty; a result that does not fit is asked for again, and then fails.";

const MODELS_HELP: &str = "\
Examples:
  brigade models           providers, whether they can be used, and their models
  brigade models openai    all models of one provider, with prices where known
  brigade models ollama    what is installed on this machine

Prices are dollars for a million tokens, from a table with a date. Where it is
wrong or has no entry, say in your configuration what you pay:

  [prices.\"work/large\"]
  input = 3.00
  output = 15.00";

const CHAT_HELP: &str = "\
Examples:
  brigade chat                              talk with the lead agent
  brigade chat -a reviewer                  talk with an agent of yours
  brigade chat -c                           go on with the last session of this folder
  brigade chat -r ID                        go on with any session, also with one that an agent started
  brigade chat --mode plan --budget-usd 1   with the limits of run, which each round gets anew
  printf 'one\\ntwo\\n' | brigade chat       messages from standard input, one a line

While the agents work, what you type is heard at the next step. Esc or Ctrl-C
stops the round, a second Ctrl-C leaves. /help lists keys and commands.";

const RESUME_HELP: &str = "\
Examples:
  brigade resume                            continue the last session of this folder
  brigade resume k3vq                       any session, by its id or the beginning of its id
  brigade resume k3vq --max-turns 40        with another limit

The session keeps its folder, its agent, its model and its mode.";

const ANSWER_HELP: &str = "\
Examples:
  brigade answer ID                         see what is open, and answer it with one key
  brigade answer ID yes                     allow this call, this once
  brigade answer ID always                  always allow it to this agent, by the rule that is shown
  brigade answer ID always 'shell(git *)'   by a rule of your own
  brigade answer ID no use make instead     deny it, with a reason that the agent reads
  brigade answer ID yes all                 all that is open

A question that nobody answers within limits.question_timeout is answered with no.
Without a terminal nothing is asked, and what would be is refused at once; a run
that is to wait for answers from elsewhere needs --set permissions.questions=wait.";

const ACP_HELP: &str = "\
An editor starts this command by itself; you tell it once that it should. In Zed,
in the file that `zed: open settings` opens:

  \"agent_servers\": {
    \"Brigade\": { \"type\": \"custom\", \"command\": \"brigade\", \"args\": [\"acp\"] }
  }

Other editors take the same command and argument. Flags go behind it:

  brigade acp --mode edit --budget-usd 2     what each prompt may do and cost
  brigade acp -a reviewer                    another agent than the lead

The editor says which folder a session works in; the configuration of that folder
counts once you trust it: brigade trust DIR. What agents ask appears in the editor,
and can be answered from a terminal as well: brigade answer ID. Sessions are kept
like all others: brigade sessions list. Standard output carries the protocol and
nothing else; warnings go to standard error, which editors show in their logs.";

/// Agents that delegate: a lead splits the task, specialists do the parts, every step is on record.
#[derive(Debug, Parser)]
#[command(name = "brigade", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Global {
    /// What standard output carries: text, one JSON object, or one JSON object a line as things happen
    #[arg(long, global = true, help_heading = "Everywhere", value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    pub(crate) output_format: OutputFormat,
    /// Set a key of the configuration, such as swarm.max_depth=2 (repeatable)
    #[arg(long, global = true, help_heading = "Everywhere", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// The file that sessions are kept in
    #[arg(long, global = true, help_heading = "Everywhere", value_name = "PATH")]
    pub(crate) store: Option<PathBuf>,
    /// Do not escape control characters in results that are written to a pipe or a file
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) raw: bool,
    /// Say more on standard error: also every tool call
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) verbose: bool,
}

/// What standard output carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object at the end.
    Json,
    /// One JSON object a line, as things happen.
    StreamJson,
}

/// The commands that there are.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one task with the lead agent and print its result
    #[command(alias = "exec", after_help = RUN_HELP)]
    Run(Run),
    /// Talk with an agent, watch its agents work, and say more while they do
    #[command(after_help = CHAT_HELP)]
    Chat(Chat),
    /// Continue a session after Ctrl-C, a crash, a limit or a failure; prints the result again if it is done
    #[command(after_help = RESUME_HELP)]
    Resume(Resume),
    /// Say something to a session, while it runs or after its end
    Tell(Tell),
    /// Stop a session and all agents below it, whoever runs it
    Cancel(Cancel),
    /// Answer what agents ask, whoever runs them
    #[command(after_help = ANSWER_HELP)]
    Answer(Answer),
    /// Look at sessions, move them, remove them
    Sessions(Sessions),
    /// Look at the agents that can be named, check their files, write new ones
    Agents(Agents),
    /// Look at the tools that agents have; add and remove MCP servers
    #[command(after_help = tools::HELP)]
    Tools(Tools),
    /// See which models can be used here, and what they cost
    #[command(after_help = MODELS_HELP)]
    Models(Models),
    /// Serve sessions to an editor, or any other client of the Agent Client Protocol
    #[command(after_help = ACP_HELP)]
    Acp(Acp),
    /// Look at the configuration
    Config(Config),
    /// Serve the faces as tools to other programs, by the Model Context Protocol
    #[command(after_help = mcp::HELP)]
    Mcp(Mcp),
    /// Let the files of a project count: its configuration, agents, skills and changed instructions
    Trust(Trust),
    /// Watch agents repair a small project, be refused, crash and resume: no key, no network, a few seconds
    #[command(after_help = onboarding::DEMO_HELP)]
    Demo(Demo),
    /// Write a configuration to begin with: two questions, or none with flags
    #[command(after_help = onboarding::INIT_HELP)]
    Init(Init),
    /// Look at everything that brigade needs, and say what to do where something is amiss
    #[command(after_help = onboarding::DOCTOR_HELP)]
    Doctor(Doctor),
    /// Print a script with which your shell completes commands, flags, session ids, agents and models
    #[command(after_help = onboarding::COMPLETIONS_HELP)]
    Completions(Completions),
    /// Print the manual page, or write one for each command
    #[command(after_help = onboarding::MAN_HELP)]
    Man(Man),
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The task; standard input is appended to it, and is the task if this is absent or `-`
    #[arg(value_name = "TASK")]
    pub(crate) task: Vec<String>,
    /// Continue the last session of this folder
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["resume", "agent"])]
    pub(crate) last: bool,
    /// Continue this session
    #[arg(short, long, value_name = "ID", conflicts_with = "agent")]
    pub(crate) resume: Option<String>,
    /// JSON Schema that the result has to fit: a file, or the schema itself, which begins with {
    #[arg(long, value_name = "FILE|JSON", conflicts_with_all = ["last", "resume"])]
    pub(crate) json_schema: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Arguments of `chat`.
#[derive(Debug, clap::Args)]
pub(crate) struct Chat {
    /// Go on with the last session of this folder
    #[arg(short = 'c', long = "continue", conflicts_with_all = ["resume", "agent"])]
    pub(crate) last: bool,
    /// Go on with this session
    #[arg(short, long, value_name = "ID", conflicts_with = "agent")]
    pub(crate) resume: Option<String>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Arguments of `resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// The session; the last one of this folder when absent
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Arguments of `tell`.
#[derive(Debug, clap::Args)]
pub(crate) struct Tell {
    /// The session
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// What to say
    #[arg(value_name = "TEXT", required = true)]
    pub(crate) text: Vec<String>,
    #[command(flatten)]
    pub(crate) flags: Flags,
}

/// Arguments of `answer`.
#[derive(Debug, clap::Args)]
pub(crate) struct Answer {
    /// A session, for what it and the agents below it ask; or one question, as SESSION:CALL. Without it, the open questions
    /// of all sessions are listed
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// yes, always, always RULE, no, or no with words for the agent; without it you are asked, or see what is open
    #[arg(value_name = "ANSWER", trailing_var_arg = true)]
    pub(crate) words: Vec<String>,
}

/// Arguments of `cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    /// The session
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// How a tree of agents is run.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Flags {
    /// The agent that takes the task
    #[arg(short, long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// The model: PROVIDER/MODEL, or script:FILE for a scripted one
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The folder to work in
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Model calls of the lead
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// How long the whole tree may take: 30s, 10m, 2h
    #[arg(long, allow_negative_numbers = true, value_name = "TIME", value_parser = units::parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// Tokens of the whole tree, input and output together: 500000, 500k or 2M
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = units::parse_count)]
    pub(crate) budget_tokens: Option<u64>,
    /// Dollars of the whole tree: 2, 0.50 or $2
    #[arg(long, allow_negative_numbers = true, value_name = "X", value_parser = units::parse_dollars)]
    pub(crate) budget_usd: Option<u64>,
    /// Agents that may be started below the lead
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = units::parse_count)]
    pub(crate) max_agents: Option<u64>,
    /// How agents may delegate: some of delegate, subagent, dispatch, spawn, separated by commas, or auto
    #[arg(long, value_name = "FACES", value_parser = faces)]
    pub(crate) faces: Option<String>,
    /// What is done without asking: plan (only read, and nothing else at all), ask (only read), edit (also edit files), auto
    /// (all that no rule forbids or asks about). At a terminal ask, else edit, where what would ask is refused
    #[arg(long, value_name = "plan|ask|edit|auto", value_parser = |text: &str| text.parse::<Mode>())]
    pub(crate) mode: Option<Mode>,
}

impl Flags {
    /// Whether a limit is named: such limits count for rounds that are yet to begin.
    pub(crate) fn has_limit(&self) -> bool {
        self.max_turns.is_some()
            || self.timeout.is_some()
            || self.budget_tokens.is_some()
            || self.budget_usd.is_some()
            || self.max_agents.is_some()
    }
}

/// Faces as the configuration reads them: what is wrong is said of the flag.
fn faces(text: &str) -> Result<String, String> {
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
  brigade sessions list                            the newest 20
  brigade sessions list \"flaky test\"               all in which these words were spoken, in any case
  brigade sessions list --status failed,incomplete --since 2d
  brigade sessions list --agent reviewer --all
  brigade sessions list --output-format json       all of them, for programs

Agents, turns and cost are those of the whole tree. At a terminal ids are cut to
what is needed to tell them apart; every command takes them like that.";

const SHOW_HELP: &str = "\
Examples:
  brigade sessions show last           the newest session
  brigade sessions show k3vq           any beginning of an id that fits one session only
  brigade sessions show k3vq.1-0       the agent that call 1-0 of that session started
  brigade sessions show last --full | less

Outputs are folded to their first lines; edits are shown as diffs.";

const TREE_HELP: &str = "\
Examples:
  brigade sessions tree last           who worked for whom in the newest session
  brigade sessions tree k3vq --full    every agent, however many there are

Tokens, cost and time of a row are the agent's own. Those under \u{3a3} are of the
agent and all below it: the first row has the total. Time is the time in which
somebody worked; the pauses of a tree that was left and resumed do not count.";

const EXPORT_HELP: &str = "\
Examples:
  brigade sessions export last -o tree.html      one page to read and to send: no script, no network
  brigade sessions export last -o tree.md        the same as Markdown
  brigade sessions export last -o tree.jsonl     all there is, for `brigade sessions import`
  brigade sessions export last --format md | less

An export holds all that was said and all that tools gave. Read it before you
send it to somebody.";

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// Sessions, newest first: all, or those with some words, state, agent or age
    #[command(after_help = LIST_HELP)]
    List(SessionsList),
    /// What was said and done in one session, as a transcript with diffs
    #[command(after_help = SHOW_HELP)]
    Show {
        /// The session: its id, the beginning of its id, or `last`
        id: String,
        /// Show long outputs whole
        #[arg(long)]
        full: bool,
    },
    /// Who worked for whom, how it ended, and what each branch cost
    #[command(after_help = TREE_HELP)]
    Tree {
        /// The session: its id, the beginning of its id, or `last`
        id: String,
        /// Show every agent of a very wide tree
        #[arg(long)]
        full: bool,
    },
    /// Write a session and all below it: to move it, to read it or to send it
    #[command(after_help = EXPORT_HELP)]
    Export(SessionsExport),
    /// Read an exported session into this store
    Import {
        /// The file; `-` is standard input
        file: PathBuf,
    },
    /// Remove a session and all below it
    Rm {
        /// The session: its id, the beginning of its id, or `last`
        id: String,
    },
}

/// Arguments of `sessions list`.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsList {
    /// Words that were spoken in the session: in its task, by an agent, or by a tool
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Only those in this state; several with commas between them
    #[arg(long, value_name = "STATE", value_enum, value_delimiter = ',')]
    pub(crate) status: Vec<SessionState>,
    /// Only those of this agent
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// Only those that began within this time, such as 12h or 2d, or since a day such as 2026-11-16
    #[arg(long, value_name = "TIME", value_parser = units::parse_since)]
    pub(crate) since: Option<units::Since>,
    /// How many at most; 20 when absent, and all of them as JSON
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: Option<u32>,
    /// All of them
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// What has become of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SessionState {
    /// Somebody runs it now
    Running,
    /// It finished
    Done,
    /// A limit stopped it
    Incomplete,
    /// It could not go on
    Failed,
    /// Somebody stopped it
    Cancelled,
    /// Its runner went away in the middle
    Interrupted,
    /// Nobody can say what became of it
    Lost,
    /// It goes on by itself
    Detached,
    /// It cannot be read
    Damaged,
    /// A newer version wrote it
    Newer,
}

/// Arguments of `sessions export`.
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsExport {
    /// The session: its id, the beginning of its id, or `last`
    pub(crate) id: String,
    /// How it is written; when absent, what the end of the file's name says, and otherwise jsonl
    #[arg(long, value_enum)]
    pub(crate) format: Option<ExportFormat>,
    /// The file to write; standard output when absent or `-`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace the file if there is one
    #[arg(long)]
    pub(crate) force: bool,
}

/// How a session is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Lines of JSON: all there is, and what `sessions import` reads
    Jsonl,
    /// Markdown to read
    #[value(alias = "markdown")]
    Md,
    /// One page that needs nothing else
    Html,
}

/// Arguments of `agents`.
#[derive(Debug, clap::Args)]
pub(crate) struct Agents {
    #[command(subcommand)]
    pub(crate) command: AgentsCommand,
}

/// What can be done with agents.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// All agents that can be named, and what is wrong with the files that are none
    List,
    /// One agent as it is used: prompt, tools, limits, and what became of each key of its file
    Show {
        /// The agent
        id: String,
    },
    /// What becomes of each key of agent files: honoured, translated, ignored or refused. Exit code 1 if one is refused
    Lint {
        /// Files, or folders of files; all places where agents are looked for when absent
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Write a new agent file to start from
    New {
        /// The id: 1 to 64 of a-z, 0-9, `.`, `_`, `-`
        id: String,
        /// Write it to .brigade/agents of this folder and not to your own agents
        #[arg(long)]
        project: bool,
    },
}

/// Arguments of `models`.
#[derive(Debug, clap::Args)]
pub(crate) struct Models {
    /// Ask this provider for all its models; without it only servers on this machine are asked
    #[arg(value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
}

/// Arguments of `config`.
#[derive(Debug, clap::Args)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// What can be done with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Every value that is in force, and where it comes from
    Show,
    /// The JSON Schema of config.toml and config.json, with which editors complete and check them
    Schema,
}

/// Arguments of `trust`.
#[derive(Debug, clap::Args)]
pub(crate) struct Trust {
    /// The project, or a folder in it; the current folder when absent
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Trust it without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Trust it no longer
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// All projects that are trusted
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
