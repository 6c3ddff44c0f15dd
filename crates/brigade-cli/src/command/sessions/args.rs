//! Arguments of `brigade sessions`.

use std::path::PathBuf;

use crate::units;

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

/// List, show, export, import and remove sessions
#[derive(Debug, clap::Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(crate) command: SessionsCommand,
}

/// Subcommands of `sessions`.
#[derive(Debug, clap::Subcommand)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ExportFormat {
    /// JSON lines: the complete session, for `sessions import`
    Jsonl,
    /// Markdown
    #[value(alias = "markdown")]
    Md,
    /// One self-contained HTML page
    Html,
}
