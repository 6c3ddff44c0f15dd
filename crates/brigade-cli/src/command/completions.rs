//! `brigade completions`: the script with which a shell completes what is typed.
//!
//! A script is printed once and kept in a file, so it must work with later versions of the program. What changes, such as
//! the ids of sessions, it asks for with `brigade __complete KIND` when the user presses Tab. The dynamic engine of
//! `clap_complete` would do the same, but its scripts only work with the version that wrote them.

mod values;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Args, Completions};
use crate::failure::{Exit, Failure};
use crate::output;
use values::Values;

pub(crate) use values::print;

/// Runs it.
pub(crate) fn run(completions: &Completions) -> Result<Exit, Failure> {
    output::raw(&script(completions.shell))?;
    Ok(Exit::Done)
}

fn script(shell: Shell) -> String {
    let mut command = Args::command();
    match shell {
        Shell::Bash => {
            let values = |values: Values| format!("$({} | cut -f 1)", values.command());
            filled(&generated(shell, &mut marked(command, &[])), |marker| marker.to_owned(), values)
        }
        Shell::Zsh => {
            let values = |values: Values| values.function();
            let script =
                filled(&generated(shell, &mut marked(command, &[])), |marker| format!("({marker})"), values);
            script.replacen(ZSH_HEAD, &format!("{ZSH_HEAD}{ZSH_FUNCTIONS}"), 1)
        }
        Shell::Fish => {
            let values = |values: Values| format!("({})", values.command());
            let positionals: String = positionals(&command, &[]).into_iter().map(fish_line).collect();
            let script = generated(shell, &mut marked(command, &[]));
            filled(&script, |marker| format!("{marker}\\t''"), values) + &positionals
        }
        // These complete commands and flags only.
        _ => generated(shell, &mut command),
    }
}

fn generated(shell: Shell, command: &mut clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "brigade", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Puts what lists the values in the place of their markers, in the form in which a shell has them.
fn filled(script: &str, form: impl Fn(&str) -> String, list: impl Fn(Values) -> String) -> String {
    Values::ALL
        .into_iter()
        .fold(script.to_owned(), |script, values| script.replace(&form(values.marker()), &list(values)))
}

/// The values of an argument, if they are listed by this program.
fn values_of(path: &[&str], argument: &clap::Arg) -> Option<Values> {
    match (path, argument.get_id().as_str()) {
        (["agents", "show"], "id") | (_, "agent") => Some(Values::Agents),
        (_, "model") => Some(Values::Models),
        (["agents", ..], _) => None,
        (_, "id" | "resume") => Some(Values::Sessions),
        _ => None,
    }
}

/// The same command with a marker as the only value of each such argument.
fn marked(command: clap::Command, path: &[&str]) -> clap::Command {
    let command = command.mut_args(|argument| match values_of(path, &argument) {
        Some(values) => argument.value_parser([values.marker()]),
        None => argument,
    });
    command.mut_subcommands(|below| {
        let name = below.get_name().to_owned();
        marked(below, &[path, &[name.as_str()]].concat())
    })
}

/// Commands whose first argument is completed, and its values: the generator for fish has options only.
fn positionals(command: &clap::Command, path: &[&str]) -> Vec<(Vec<String>, Values)> {
    let own = command.get_positionals().next().and_then(|argument| values_of(path, argument));
    let own = own.map(|values| (path.iter().map(|&name| name.to_owned()).collect(), values));
    let below =
        command.get_subcommands().flat_map(|below| positionals(below, &[path, &[below.get_name()]].concat()));
    own.into_iter().chain(below).collect()
}

fn fish_line((path, values): (Vec<String>, Values)) -> String {
    let condition = path.join("; and __fish_seen_subcommand_from ");
    format!(
        "complete -c brigade -n \"__fish_brigade_using_subcommand {condition}\" -k -f -a \"({})\"\n",
        values.command()
    )
}

/// The line of the script for zsh after which functions are defined.
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
    fn arguments_that_name_something_that_exists_are_completed() {
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
    fn no_marker_stays_in_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let script = script(shell);
            for values in Values::ALL {
                assert!(!script.contains(values.marker()), "{shell}: {}", values.marker());
            }
            let asks = matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish);
            assert_eq!(script.contains("brigade __complete"), asks, "{shell}");
        }
    }
}
