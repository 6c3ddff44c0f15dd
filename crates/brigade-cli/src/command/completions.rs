//! `brigade completions`: prints a shell completion script.
//!
//! A script is printed once and kept in a file, so it must work with later versions of the program. It gets values
//! that change, such as session ids, from `brigade __complete KIND` when the user presses Tab. The dynamic engine of
//! `clap_complete` could do the same, but its scripts only work with the version that wrote them.

mod values;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::error::{CliError, Exit};
use crate::output;
use values::CompletionKind;

pub(crate) use values::print;

const HELP: &str = "\
Examples:
  brigade completions bash > ~/.local/share/bash-completion/completions/brigade
  brigade completions zsh > ~/.zfunc/_brigade      with fpath+=(~/.zfunc) before compinit
  brigade completions fish > ~/.config/fish/completions/brigade.fish";

/// Print a shell completion script for commands, flags, session ids, agents and models
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Runs the command.
pub(crate) fn run(completions: &CompletionsArgs) -> Result<Exit, CliError> {
    output::raw(&script(completions.shell))?;
    Ok(Exit::Done)
}

fn script(shell: Shell) -> String {
    let mut command = Args::command();
    match shell {
        Shell::Bash => {
            let values = |values: CompletionKind| format!("$({} | cut -f 1)", values.command());
            fill_markers(
                &generate_script(shell, &mut with_markers(command, &[])),
                |marker| marker.to_owned(),
                values,
            )
        }
        Shell::Zsh => {
            let values = |values: CompletionKind| values.function();
            let script = fill_markers(
                &generate_script(shell, &mut with_markers(command, &[])),
                |marker| format!("({marker})"),
                values,
            );
            script.replacen(ZSH_HEAD, &format!("{ZSH_HEAD}{ZSH_FUNCTIONS}"), 1)
        }
        Shell::Fish => {
            let values = |values: CompletionKind| format!("({})", values.command());
            let positionals: String = positionals(&command, &[]).into_iter().map(fish_line).collect();
            let script = generate_script(shell, &mut with_markers(command, &[]));
            fill_markers(&script, |marker| format!("{marker}\\t''"), values) + &positionals
        }
        // Scripts for these shells complete only commands and flags.
        _ => generate_script(shell, &mut command),
    }
}

fn generate_script(shell: Shell, command: &mut clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "brigade", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Replaces the markers with code that lists the values, in the syntax of a shell.
fn fill_markers(
    script: &str,
    form: impl Fn(&str) -> String,
    list: impl Fn(CompletionKind) -> String,
) -> String {
    CompletionKind::ALL
        .into_iter()
        .fold(script.to_owned(), |script, values| script.replace(&form(values.marker()), &list(values)))
}

/// Kind of values of an argument, if this program lists them.
fn completion_kind(path: &[&str], argument: &clap::Arg) -> Option<CompletionKind> {
    match (path, argument.get_id().as_str()) {
        (["agents", "show"], "id") | (_, "agent") => Some(CompletionKind::Agents),
        (_, "model") => Some(CompletionKind::Models),
        (["agents", ..], _) => None,
        (_, "id" | "resume") => Some(CompletionKind::Sessions),
        _ => None,
    }
}

/// Command definition with a marker as the only value of each such argument.
fn with_markers(command: clap::Command, path: &[&str]) -> clap::Command {
    let command = command.mut_args(|argument| match completion_kind(path, &argument) {
        Some(values) => argument.value_parser([values.marker()]),
        None => argument,
    });
    command.mut_subcommands(|below| {
        let name = below.get_name().to_owned();
        with_markers(below, &[path, &[name.as_str()]].concat())
    })
}

/// Commands whose first argument is completed, and its values. The generator for fish handles options only.
fn positionals(command: &clap::Command, path: &[&str]) -> Vec<(Vec<String>, CompletionKind)> {
    let first = command.get_positionals().next().and_then(|argument| completion_kind(path, argument));
    let first = first.map(|values| (path.iter().map(|&name| name.to_owned()).collect(), values));
    let below =
        command.get_subcommands().flat_map(|below| positionals(below, &[path, &[below.get_name()]].concat()));
    first.into_iter().chain(below).collect()
}

fn fish_line((path, values): (Vec<String>, CompletionKind)) -> String {
    let condition = path.join("; and __fish_seen_subcommand_from ");
    format!(
        "complete -c brigade -n \"__fish_brigade_using_subcommand {condition}\" -k -f -a \"({})\"\n",
        values.command()
    )
}

/// Line of the zsh script after which functions are defined.
const ZSH_HEAD: &str = "autoload -U is-at-least\n";
const ZSH_FUNCTIONS: &str = r#"
(( $+functions[_brigade_values] )) ||
_brigade_values() {
    local -a found
    found=("${(@f)$(brigade __complete $1 2>/dev/null)}")
    found=("${(@)found//:/\\:}")
    found=("${(@)found/$'\t'/:}")
    _describe -V "$1" found
}
(( $+functions[_brigade_sessions] )) || _brigade_sessions() { _brigade_values sessions }
(( $+functions[_brigade_agents] )) || _brigade_agents() { _brigade_values agents }
(( $+functions[_brigade_models] )) || _brigade_models() { _brigade_values models }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positionals_that_name_existing_things_are_completed() {
        let found = positionals(&Args::command(), &[]);
        let found: Vec<String> =
            found.iter().map(|(path, values)| format!("{} {values:?}", path.join(" "))).collect();
        for expected in [
            "resume Sessions",
            "tell Sessions",
            "cancel Sessions",
            "answer Sessions",
            "sessions show Sessions",
            "sessions tree Sessions",
            "sessions export Sessions",
            "sessions rm Sessions",
            "agents show Agents",
        ] {
            assert!(found.iter().any(|found| found == expected), "no {expected} in {found:?}");
        }
        assert!(!found.iter().any(|found| found.starts_with("agents new")), "a new id exists nowhere");
    }

    #[test]
    fn script_contains_no_marker() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = script(shell);
            for values in CompletionKind::ALL {
                assert!(!script.contains(values.marker()), "{shell}: {}", values.marker());
            }
            let asks = matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish);
            assert_eq!(script.contains("brigade __complete"), asks, "{shell}");
        }
    }
}
