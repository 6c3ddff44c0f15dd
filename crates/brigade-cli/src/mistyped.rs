//! What somebody may have meant whose first word is no command.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Args;
use crate::finish::quoted;
use crate::settings::near;

/// A line that helps beyond what the parser says; none where it says enough.
pub(crate) fn hint(error: &clap::Error, typed: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let definition = Args::command();
    let commands = || definition.get_subcommands().map(clap::Command::get_name);
    let at = typed.iter().position(|argument| argument == word)?;
    let (before, rest) = typed.split_at(at);
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
    fn slips_name_the_command() {
        assert_eq!(hint_for(&["rnu"]), Some("Perhaps you mean: brigade run".to_owned()));
        assert_eq!(hint_for(&["sesions"]), None, "the parser says it");
        assert_eq!(hint_for(&["sessions", "shwo"]), None, "the parser says it");
        assert_eq!(hint_for(&["run", "--nonsense"]), None);
    }
}
