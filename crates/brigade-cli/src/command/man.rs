//! `brigade man`: manual pages, generated from the same definition as `--help`.

use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::args::Args;
use crate::error::{CliError, Exit};
use crate::output;

const HELP: &str = "\
Examples:
  brigade man | man -l -                       read the main page
  brigade man --dir ~/.local/share/man/man1    one page per command; then: man brigade-run";

/// Print the manual page, or write one page per command
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ManArgs {
    /// Write one page per command to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(man: &ManArgs) -> Result<Exit, CliError> {
    match &man.dir {
        Some(folder) => write(folder)?,
        None => output::raw(&main_page()?)?,
    }
    Ok(Exit::Done)
}

fn main_page() -> Result<String, CliError> {
    let mut page = Vec::new();
    let unwritable = |error| CliError::failed(format!("cannot generate the manual page: {error}"));
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    clap_mangen::Man::new(command).render(&mut page).map_err(unwritable)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn write(folder: &Path) -> Result<(), CliError> {
    let place = folder.display();
    std::fs::create_dir_all(folder).map_err(|error| {
        CliError::failed(format!("cannot create {place}: {error}. Choose another directory."))
    })?;
    clap_mangen::generate_to(Args::command(), folder).map_err(|error| {
        CliError::failed(format!("cannot write to {place}: {error}. Choose another directory."))
    })?;
    output::note(&format!("Wrote the manual pages to {place}. The main page is brigade.1"));
    Ok(())
}
