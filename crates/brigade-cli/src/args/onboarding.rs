//! Arguments of the commands of the first minutes.

use std::path::PathBuf;

use brigade_core::permission::Mode;
use clap_complete::Shell;

/// Examples of `demo`.
pub(super) const DEMO_HELP: &str = "\
Examples:
  brigade demo               three sub-agents, one refusal, a budget, a kill and a resume
  brigade demo --no-crash    the same without the kill
  brigade demo --keep        keeps the project and the session, to look at them afterwards

The model is a script and its prices are invented; everything else is real. The demo
works in a temporary folder, which it removes, and does not touch your sessions.";

/// Examples of `init`.
pub(super) const INIT_HELP: &str = "\
Examples:
  brigade init                                       asks two questions
  brigade init --yes                                 takes what is found here, asks nothing
  brigade init --model ollama/qwen3 --mode edit      says both, asks nothing
  brigade init --project --model ollama/qwen3 --yes  settings of this folder, for all who work in it

The file goes to $BRIGADE_HOME/config.toml, or to brigade/config.toml in your XDG
config folder. With --project it goes to .brigade/config.toml of this folder.";

/// Examples of `doctor`.
pub(super) const DOCTOR_HELP: &str = "\
Examples:
  brigade doctor                         looks at everything
  brigade doctor --offline               asks only servers on this machine
  brigade doctor --output-format json    the same for programs

Every line says ok, note, warn or problem, and what to do. Exit code 1 if there is
a problem. Keys are never shown.";

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
  brigade man --dir ~/.local/share/man/man1    one page for each command; then: man brigade-run";

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Do not kill the process that runs the agents
    #[arg(long)]
    pub(crate) no_crash: bool,
    /// Keep the temporary folder with the project and the session
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Init {
    /// The model: PROVIDER/MODEL, or script:FILE for a scripted one
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// What agents may do without asking: plan (only read), ask (what rules allow), edit (also edit files), auto (all
    /// that no rule forbids)
    #[arg(long, value_name = "plan|ask|edit|auto", value_parser = |text: &str| text.parse::<Mode>())]
    pub(crate) mode: Option<Mode>,
    /// Write .brigade/config.toml of this folder and not your own configuration
    #[arg(long)]
    pub(crate) project: bool,
    /// Replace a configuration that is there; the old one is kept beside it
    #[arg(long)]
    pub(crate) force: bool,
    /// Ask nothing: take the first model that can be used here, and the mode edit
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Ask no server beyond this machine
    #[arg(long)]
    pub(crate) offline: bool,
}

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Write a page for each command into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
