//! Suggestions for mistyped commands and flags.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Args;
use crate::settings::{closest, did_you_mean};
use crate::summary::shell_quoted;

/// Help command of the parser.
const HELP_COMMAND: &str = "help";
/// Flags of other programs that run one task and print its result.
const PRINT_FLAGS: [&str; 3] = ["-p", "--print", "--prompt"];
/// Commands that take a task.
const RUN_COMMANDS: [&str; 2] = ["run", "exec"];

/// Names that other programs use for these commands.
const OTHER_NAMES: [(&str, &str); 2] = [("version", "--version"), ("status", "sessions list")];

/// Replaces the parser's suggestion with the nearest name, or removes it if no name is close.
pub(crate) fn correct(error: &mut clap::Error, typed: &[String]) {
    // Help and the version are not mistakes, and building the definition takes most of their time.
    if !error.use_stderr() {
        return;
    }
    let mut definition = Args::command();
    definition.build();
    let subcommand =
        typed.iter().find_map(|word| definition.find_subcommand(word)).map(clap::Command::get_name);
    let subcommand = subcommand.map(str::to_owned);
    match (error.kind(), &subcommand) {
        (ErrorKind::InvalidSubcommand, None) => {
            let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return };
            let near = did_you_mean(word, definition.get_subcommands().map(clap::Command::get_name));
            if error.get(ContextKind::SuggestedSubcommand).is_none() {
                return;
            }
            match near.map(str::to_owned) {
                Some(near) => {
                    error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![near]))
                }
                None => error.remove(ContextKind::SuggestedSubcommand),
            };
        }
        (ErrorKind::UnknownArgument, Some(name)) => {
            let Some(command) = definition.find_subcommand_mut(name) else { return };
            let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return };
            let Some(flag) = word.strip_prefix("--") else { return };
            let flag = flag.split('=').next().unwrap_or(flag);
            let near = did_you_mean(flag, command.get_arguments().filter_map(clap::Arg::get_long));
            let Some(near) = near.filter(|_| error.get(ContextKind::SuggestedArg).is_some()) else { return };
            let near = format!("--{near}");
            error.insert(ContextKind::SuggestedArg, ContextValue::String(near));
            // The parser's usage line contains its own suggestion.
            error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
        }
        _ => {}
    }
}

/// Hint in addition to the parser's message, if that is not sufficient.
pub(crate) fn hint(error: &clap::Error, typed: &[String]) -> Option<String> {
    match error.kind() {
        ErrorKind::UnknownArgument => print_flag(typed),
        ErrorKind::InvalidSubcommand => subcommand(error, typed),
        _ => None,
    }
}

/// Hint for `brigade -p TASK`.
fn print_flag(typed: &[String]) -> Option<String> {
    let is_print = |argument: &String| PRINT_FLAGS.contains(&argument.as_str());
    let definition = Args::command();
    let is_other = |argument: &String| {
        !RUN_COMMANDS.contains(&argument.as_str())
            && definition.get_subcommands().any(|command| command.get_name() == argument)
    };
    if !typed.iter().any(is_print) || typed.first().is_some_and(is_other) {
        return None;
    }
    let starts_with_run = typed.first().is_some_and(|first| RUN_COMMANDS.contains(&first.as_str()));
    let rest = typed.iter().skip(usize::from(starts_with_run)).filter(|argument| !is_print(argument));
    let rest: String = rest.map(|argument| format!(" {}", shell_quoted(argument))).collect();
    let rest = if rest.is_empty() { " \"TASK\"".to_owned() } else { rest };
    Some(format!("To run a task: brigade run{rest}"))
}

fn subcommand(error: &clap::Error, typed: &[String]) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let definition = Args::command();
    let commands = || definition.get_subcommands().map(clap::Command::get_name);
    let at = typed.iter().position(|argument| argument == word)?;
    let (before, rest) = typed.split_at(at);
    if before.iter().any(|argument| argument == HELP_COMMAND) {
        let suggestion = did_you_mean(word, commands())
            .map(|command| format!("Did you mean: brigade {HELP_COMMAND} {command}"));
        return Some(suggestion.unwrap_or_else(|| "List all commands with: brigade help".to_owned()));
    }
    if before.iter().any(|argument| commands().any(|command| command == argument)) {
        return None;
    }
    let word_count = rest.iter().take_while(|argument| !argument.starts_with('-')).count();
    let (task, flags) = rest.split_at(word_count);
    let (first, others) = task.split_first()?;
    let task = task.join(" ");
    if let Some((_, command)) = OTHER_NAMES.iter().find(|(name, _)| *name == task) {
        return Some(format!("Did you mean: brigade {command}"));
    }
    if let Some(command) = did_you_mean(&task, commands()) {
        let has_suggestion = error.get(ContextKind::SuggestedSubcommand).is_some();
        return (!has_suggestion).then(|| format!("Did you mean: brigade {command}"));
    }
    let flags: String = before.iter().chain(flags).map(|flag| format!(" {}", shell_quoted(flag))).collect();
    let as_task = format!("To run a task: brigade run {}{flags}", shell_quoted(&task));
    // With one letter off, the remaining words are likely the arguments of that command.
    let slip = closest(first, commands()).filter(|(distance, _)| *distance == 1 && !others.is_empty());
    Some(match slip {
        Some((_, command)) => {
            let others: String = others.iter().map(|word| format!(" {}", shell_quoted(word))).collect();
            format!("Did you mean: brigade {command}{others}{flags}\n{as_task}")
        }
        None => as_task,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn hint_for(typed: &[&str]) -> Option<String> {
        let typed: Vec<String> = typed.iter().map(|word| (*word).to_owned()).collect();
        let mut error = Args::try_parse_from([&["brigade".to_owned()], &typed[..]].concat()).unwrap_err();
        correct(&mut error, &typed);
        hint(&error, &typed)
    }

    #[test]
    fn task_without_a_command_hints_at_run() {
        let hint_text = |typed: &[&str]| hint_for(typed).unwrap();
        let begin = "To run a task: brigade run";
        assert_eq!(hint_text(&["fix the tests"]), format!("{begin} 'fix the tests'"));
        assert_eq!(hint_text(&["fix", "the", "tests"]), format!("{begin} 'fix the tests'"));
        assert_eq!(
            hint_text(&["fix", "it", "--model", "ollama/qwen 3"]),
            format!("{begin} 'fix it' --model 'ollama/qwen 3'")
        );
        assert_eq!(hint_text(&["-v", "it's late"]), format!("{begin} 'it'\\''s late' -v"));
        assert_eq!(hint_text(&["refactor"]), format!("{begin} refactor"));
    }

    #[test]
    fn print_flags_of_other_tools_hint_at_run() {
        let hint_text = |typed: &[&str]| hint_for(typed).unwrap();
        let begin = "To run a task: brigade run";
        assert_eq!(hint_text(&["-p", "fix the tests"]), format!("{begin} 'fix the tests'"));
        assert_eq!(
            hint_text(&["--print", "fix it", "--output-format", "json"]),
            format!("{begin} 'fix it' --output-format json")
        );
        assert_eq!(
            hint_text(&["--model", "ollama/qwen3", "-p", "it's late"]),
            format!("{begin} --model ollama/qwen3 'it'\\''s late'")
        );
        assert_eq!(hint_text(&["run", "-p", "fix it"]), format!("{begin} 'fix it'"));
        assert_eq!(hint_text(&["-p"]), format!("{begin} \"TASK\""));
        assert_eq!(hint_for(&["sessions", "-p"]), None);
    }

    #[test]
    fn mistyped_command_names_the_nearest() {
        assert_eq!(hint_for(&["rnu"]), Some("Did you mean: brigade run".to_owned()));
        assert_eq!(hint_for(&["sesions"]), None, "the parser suggests it");
        assert_eq!(hint_for(&["sessions", "shwo"]), None, "the parser suggests it");
        assert_eq!(hint_for(&["run", "--nonsense"]), None);
    }

    #[test]
    fn slip_before_a_task_names_the_command_first() {
        let task = "To run a task: brigade run";
        let both = format!("Did you mean: brigade run hi -v\n{task} 'rnu hi' -v");
        assert_eq!(hint_for(&["rnu", "hi", "-v"]), Some(both));
        // Words that are not close to a command are a task.
        assert_eq!(hint_for(&["test", "it"]), Some(format!("{task} 'test it'")));
    }

    #[test]
    fn words_for_what_has_another_name_are_known() {
        for (word, command) in [("version", "brigade --version"), ("status", "brigade sessions list")] {
            assert_eq!(hint_for(&[word]), Some(format!("Did you mean: {command}")));
            assert!(hint_for(&[word, "page"]).unwrap().ends_with(&format!("brigade run '{word} page'")));
        }
    }

    #[test]
    fn help_for_an_unknown_command_is_not_taken_for_a_task() {
        assert_eq!(hint_for(&["help", "foo"]), Some("List all commands with: brigade help".to_owned()));
        assert_eq!(hint_for(&["help", "rnu"]), Some("Did you mean: brigade help run".to_owned()));
        assert_eq!(hint_for(&["help", "rnu", "-v"]), Some("Did you mean: brigade help run".to_owned()));
    }
}
