//! `brigade completions`: the script with which a shell completes what is typed.

use clap::CommandFactory;

use crate::args::{Args, Completions};
use crate::failure::{Exit, Failure};
use crate::output;

/// Runs it.
pub(crate) fn run(completions: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut Args::command(), "brigade", &mut script);
    output::raw(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
