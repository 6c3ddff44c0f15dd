//! Arguments of `init`, `doctor`, `completions` and `man`.

use std::path::PathBuf;

use brigade_core::permission::Mode;
use clap_complete::Shell;

/// Examples of `demo`.
pub(super) const DEMO_HELP: &str = "\
Examples:
  brigade demo               three sub-agents, a denied call, a budget, a killed process and a resume
  brigade demo --no-crash    the same without killing the process
  brigade demo --keep        keeps the project and the session for inspection

The model is a script and its prices are invented; everything else is real. The demo
works in a temporary directory, which it removes, and does not touch your sessions.";

/// Examples of `init`.
pub(super) const INIT_HELP: &str = "\
Examples:
  brigade init                                       asks two questions
  brigade init --yes                                 uses the first available model, asks nothing
  brigade init --model ollama/qwen3 --mode edit      sets both, asks nothing
  brigade init --project --model ollama/qwen3 --yes  settings of this directory, for all users

The file is $BRIGADE_HOME/config.toml, or brigade/config.toml in your XDG config
directory. With --project it is .brigade/config.toml of this directory.";

/// Examples of `doctor`.
pub(super) const DOCTOR_HELP: &str = "\
Examples:
  brigade doctor                         check everything
  brigade doctor --offline               query only servers on this machine
  brigade doctor --output-format json    the same as JSON

Each line starts with ok, note, warn or problem. Warnings and problems include a fix.
Exit code 1 if there is a problem. Keys are never shown.";

/// Examples of `completions`.
pub(super) const COMPLETIONS_HELP: &str = "\
Examples:
  brigade completions bash > ~/.local/share/bash-completion/completions/brigade
  brigade completions zsh > ~/.zfunc/_brigade      with fpath+=(~/.zfunc) before compinit
  brigade completions fish > ~/.config/fish/completions/brigade.fish";

/// Examples of `man`.
pub(super) const MAN_HELP: &str = "\
Examples:
  brigade man | man -l -                       read the main page
  brigade man --dir ~/.local/share/man/man1    one page per command; then: man brigade-run";

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Do not kill the process that runs the agents
    #[arg(long)]
    pub(crate) no_crash: bool,
    /// Keep the temporary directory with the project and the session
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// Model: PROVIDER/MODEL, or script:FILE for a scripted one
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Calls that run without approval: plan (reads; all others are denied), ask (reads), edit (reads and file edits), auto
    /// (all calls that no deny or ask rule matches)
    #[arg(long, value_name = "plan|ask|edit|auto", value_parser = |text: &str| text.parse::<Mode>())]
    pub(crate) mode: Option<Mode>,
    /// Write .brigade/config.toml of this directory instead of your own configuration
    #[arg(long)]
    pub(crate) project: bool,
    /// Replace an existing configuration; a backup is kept next to it
    #[arg(long)]
    pub(crate) force: bool,
    /// Ask nothing: use the first available model and mode edit
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Query only servers on this machine
    #[arg(long)]
    pub(crate) offline: bool,
}

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// Shell to print the script for
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Write one page per command to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
