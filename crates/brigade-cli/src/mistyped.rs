//! What somebody may have meant whose first word is no command.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Args;
use crate::finish::quoted;
use crate::settings::near;

/// The command of the parser that prints help.
const HELP: &str = "help";
/// Flags with which other programs run one task and print its result.
const PRINT_FLAGS: [&str; 3] = ["-p", "--print", "--prompt"];
/// Commands that take a task.
const RUN: [&str; 2] = ["run", "exec"];

/// A line that helps beyond what the parser says; none where it says enough.
pub(crate) fn hint(error: &clap::Error, typed: &[String]) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument => print_flag(typed),
        ErrorKind::InvalidSubcommand => subcommand(error, typed),
        _ => None,
    }
}

/// The command for `brigade -p TASK`.
fn print_flag(typed: &[String]) -> Option<String> {
    let is_print = |argument: &String| PRINT_FLAGS.contains(&argument.as_str());
    let definition = Args::command();
    let is_other = |argument: &String| {
        !RUN.contains(&argument.as_str())
            && definition.get_subcommands().any(|command| command.get_name() == argument)
    };
    if !typed.iter().any(is_print) || typed.first().is_some_and(is_other) {
        return None;
    }
    let begun = typed.first().is_some_and(|first| RUN.contains(&first.as_str()));
    let rest = typed.iter().skip(usize::from(begun)).filter(|argument| !is_print(argument));
    let rest: String = rest.map(|argument| format!(" {}", quoted(argument))).collect();
    Some(format!("To give a task to a brigade: brigade run{rest}"))
}

fn subcommand(error: &clap::Error, typed: &[String]) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let definition = Args::command();
    let commands = || definition.get_subcommands().map(clap::Command::get_name);
    let at = typed.iter().position(|argument| argument == word)?;
    let (before, rest) = typed.split_at(at);
    if before.iter().any(|argument| argument == HELP) {
        let meant =
            near(word, commands()).map(|command| format!("Perhaps you mean: brigade {HELP} {command}"));
        return Some(meant.unwrap_or_else(|| "To see all commands: brigade help".to_owned()));
    }
    if before.iter().any(|argument| commands().any(|command| command == argument)) {
        return None;
    }
    let words = rest.iter().take_while(|argument| !argument.starts_with('-')).count();
    let (task, flags) = rest.split_at(words);
    let task = task.join(" ");
    if let Some(command) = near(&task, commands()) {
        let is_said = error.get(ContextKind::SuggestedSubcommand).is_some();
        return (!is_said).then(|| format!("Perhaps you mean: brigade {command}"));
    }
    let flags: String = before.iter().chain(flags).map(|flag| format!(" {}", quoted(flag))).collect();
    Some(format!("To give a task to a brigade: brigade run {}{flags}", quoted(&task)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn hint_for(typed: &[&str]) -> Option<String> {
        let typed: Vec<String> = typed.iter().map(|word| (*word).to_owned()).collect();
        let error = Args::try_parse_from([&["brigade".to_owned()], &typed[..]].concat()).unwrap_err();
        hint(&error, &typed)
    }

    #[test]
    fn tasks_are_shown_as_they_have_to_be_typed() {
        let said = |typed: &[&str]| hint_for(typed).unwrap();
        let begin = "To give a task to a brigade: brigade run";
        assert_eq!(said(&["fix the tests"]), format!("{begin} 'fix the tests'"));
        assert_eq!(said(&["fix", "the", "tests"]), format!("{begin} 'fix the tests'"));
        assert_eq!(
            said(&["fix", "it", "--model", "ollama/qwen 3"]),
            format!("{begin} 'fix it' --model 'ollama/qwen 3'")
        );
        assert_eq!(said(&["-v", "it's late"]), format!("{begin} 'it'\\''s late' -v"));
        assert_eq!(said(&["refactor"]), format!("{begin} refactor"));
    }

    #[test]
    fn flags_of_other_programs_name_the_command() {
        let said = |typed: &[&str]| hint_for(typed).unwrap();
        let begin = "To give a task to a brigade: brigade run";
        assert_eq!(said(&["-p", "fix the tests"]), format!("{begin} 'fix the tests'"));
        assert_eq!(
            said(&["--print", "fix it", "--output-format", "json"]),
            format!("{begin} 'fix it' --output-format json")
        );
        assert_eq!(
            said(&["--model", "ollama/qwen3", "-p", "it's late"]),
            format!("{begin} --model ollama/qwen3 'it'\\''s late'")
        );
        assert_eq!(said(&["run", "-p", "fix it"]), format!("{begin} 'fix it'"));
        assert_eq!(said(&["-p"]), begin);
        assert_eq!(hint_for(&["sessions", "-p"]), None);
    }

    #[test]
    fn slips_name_the_command() {
        assert_eq!(hint_for(&["rnu"]), Some("Perhaps you mean: brigade run".to_owned()));
        assert_eq!(hint_for(&["sesions"]), None, "the parser says it");
        assert_eq!(hint_for(&["sessions", "shwo"]), None, "the parser says it");
        assert_eq!(hint_for(&["run", "--nonsense"]), None);
    }

    #[test]
    fn help_for_a_word_that_is_no_command_is_not_taken_for_a_task() {
        assert_eq!(hint_for(&["help", "foo"]), Some("To see all commands: brigade help".to_owned()));
        assert_eq!(hint_for(&["help", "rnu"]), Some("Perhaps you mean: brigade help run".to_owned()));
        assert_eq!(hint_for(&["help", "rnu", "-v"]), Some("Perhaps you mean: brigade help run".to_owned()));
    }
}
