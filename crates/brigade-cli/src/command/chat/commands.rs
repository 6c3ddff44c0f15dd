//! Commands of the chat, which begin with a slash.

use brigade_core::permission::{Mode, ModeError};

use super::attach::common_prefix;
use crate::settings::did_you_mean;

/// Commands with their parameters and descriptions.
const COMMANDS: [(&str, &str, &str); 13] = [
    ("tree", "", "show all agents and their status"),
    ("cost", "", "show tokens and cost, per agent and in total"),
    ("model", "[NAME]", "show the model, or set it for the next round"),
    ("mode", "[MODE]", "show the mode, or set it for the next round: plan, ask, edit, auto"),
    ("agents", "", "list the available agents"),
    ("tell", "AGENT TEXT", "send a message to a running agent"),
    ("stop", "[AGENT]", "stop this round, or one running agent"),
    ("undo", "", "undo the file edits of the last round"),
    ("compact", "", "replace the conversation with a summary"),
    ("clear", "", "start a new session with the next message"),
    ("resume", "[ID]", "list earlier sessions, or continue one"),
    ("help", "", "show this list"),
    ("quit", "", "quit (also Ctrl-D, or Ctrl-C twice)"),
];

const KEYS: [(&str, &str); 11] = [
    ("@FILE", "attach a file from the working directory; Tab completes its path"),
    ("!COMMAND", "run a command; its output is sent with your next message"),
    ("!!COMMAND", "run a command; its output is not sent to the agent"),
    ("Enter", "send the message; while agents work, it is delivered at the next turn"),
    ("Alt-Enter", "insert a new line (also Ctrl-J, or a backslash at the end)"),
    ("Up, Down", "browse the history; lines that start with a space are not kept"),
    ("Esc", "stop the round, or your running command"),
    ("Shift-Tab", "switch the mode: plan, ask, edit"),
    ("Ctrl-R", "search the history"),
    ("Ctrl-C", "clear the line, then stop the round, then quit"),
    ("Ctrl-Z", "suspend the chat; fg in the shell resumes it"),
];

/// Line that begins with a slash, but is not a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidCommand {
    /// Unknown mode.
    #[error("/mode: {0}")]
    Mode(ModeError),
    /// `/tell` without an agent or a text.
    #[error("usage: /tell AGENT TEXT")]
    TellUsage,
    /// Unknown command.
    #[error("Unknown command /{name}. {hint} To send a message that starts with a slash, type //{name}")]
    Unknown { name: String, hint: String },
}

/// Parsed input line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParsedLine {
    /// Message to the agent.
    Message(String),
    /// Command of the chat.
    Command(Command),
}

/// Command of the chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Shows the tree.
    Tree,
    /// Shows tokens and cost.
    Cost,
    /// Shows or sets the model.
    Model(Option<String>),
    /// Shows or sets the mode.
    Mode(Option<Mode>),
    /// Lists the agents.
    Agents,
    /// Sends a message to a running agent. The agent and the message are one text, because names may contain spaces.
    Tell(String),
    /// Stops the round, or an agent.
    Stop(Option<String>),
    /// Undoes the file edits of the last round.
    Undo,
    /// Replaces the conversation with a summary.
    Compact,
    /// Starts a new session.
    Clear,
    /// Lists sessions, or switches to one.
    Resume(Option<String>),
    /// Lists the commands.
    Help,
    /// Ends the chat.
    Quit,
}

/// Shell command of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserCommand {
    pub(crate) text: String,
    /// Readers of its output.
    pub(crate) output: OutputAudience,
}

/// Readers of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputAudience {
    /// The user, and the agent with the next message.
    UserAndAgent,
    /// The user alone.
    UserOnly,
}

/// Command in a line that begins with `!`. With a space before it, the line is a message.
pub(crate) fn parse_user_command(line: &str) -> Option<UserCommand> {
    let rest = line.strip_prefix('!')?;
    let (text, output) = match rest.strip_prefix('!') {
        Some(rest) => (rest, OutputAudience::UserOnly),
        None => (rest, OutputAudience::UserAndAgent),
    };
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(UserCommand { text, output })
}

/// Parses a line.
pub(crate) fn parse(line: &str) -> Result<ParsedLine, InvalidCommand> {
    let Some(rest) = line.trim().strip_prefix('/') else { return Ok(ParsedLine::Message(line.to_owned())) };
    if rest.starts_with('/') {
        return Ok(ParsedLine::Message(rest.to_owned()));
    }
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if name.contains('/') {
        // A path, such as /etc/hosts.
        return Ok(ParsedLine::Message(line.to_owned()));
    }
    let arguments = arguments.trim();
    let argument = (!arguments.is_empty()).then(|| arguments.to_owned());
    let command = match name {
        "tree" => Command::Tree,
        "cost" => Command::Cost,
        "model" => Command::Model(argument),
        "mode" => Command::Mode(argument.map(|mode| mode.parse()).transpose().map_err(InvalidCommand::Mode)?),
        "agents" => Command::Agents,
        "tell" if arguments.contains(char::is_whitespace) => Command::Tell(arguments.to_owned()),
        "tell" => return Err(InvalidCommand::TellUsage),
        "stop" => Command::Stop(argument),
        "undo" => Command::Undo,
        "compact" => Command::Compact,
        "clear" => Command::Clear,
        "resume" => Command::Resume(argument),
        "help" | "?" => Command::Help,
        "quit" | "exit" => Command::Quit,
        _ => return Err(unknown_command(name)),
    };
    Ok(ParsedLine::Command(command))
}

fn unknown_command(name: &str) -> InvalidCommand {
    let hint = match did_you_mean(name, COMMANDS.map(|(known, _, _)| known)) {
        Some(known) => format!("Did you mean /{known}?"),
        None => "See /help.".to_owned(),
    };
    InvalidCommand::Unknown { name: name.to_owned(), hint }
}

/// Completes a command, as far as it is unambiguous.
pub(crate) fn complete(text: &str) -> Option<String> {
    let prefix = text.strip_prefix('/').filter(|prefix| !prefix.contains(char::is_whitespace))?;
    let candidates: Vec<_> = COMMANDS.iter().filter(|(name, _, _)| name.starts_with(prefix)).collect();
    match candidates.as_slice() {
        [] => None,
        [(name, parameters, _)] => Some(format!("/{name}{}", if parameters.is_empty() { "" } else { " " })),
        several => {
            let names: Vec<&str> = several.iter().map(|(name, _, _)| *name).collect();
            Some(format!("/{}", common_prefix(&names)))
        }
    }
}

/// Help text with commands and keys.
pub(crate) fn help() -> String {
    let mut text = String::new();
    for (name, parameters, description) in COMMANDS {
        text.push_str(&format!("{:<18} {description}\n", format!("/{name} {parameters}")));
    }
    for (key, description) in KEYS {
        text.push_str(&format!("{key:<18} {description}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        match parse(line) {
            Ok(ParsedLine::Command(command)) => command,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn slash_commands_are_parsed() {
        assert_eq!(command("/tree"), Command::Tree);
        assert_eq!(command(" /model  a/b "), Command::Model(Some("a/b".to_owned())));
        assert_eq!(command("/model"), Command::Model(None));
        assert_eq!(command("/mode plan"), Command::Mode(Some(Mode::Plan)));
        assert_eq!(
            command("/tell Security Auditor hurry\nup"),
            Command::Tell("Security Auditor hurry\nup".into())
        );
        assert_eq!(command("/undo"), Command::Undo);
        assert_eq!(command("/stop"), Command::Stop(None));
        assert_eq!(command("/resume x"), Command::Resume(Some("x".to_owned())));
        for (name, _, _) in COMMANDS {
            assert!(parse(&format!("/{name} plan b")).is_ok() || name == "mode", "{name}");
            assert!(help().contains(&format!("/{name}")));
        }
    }

    #[test]
    fn messages_are_not_parsed_as_commands() {
        for (line, message) in [
            ("hello /tree", "hello /tree"),
            ("  indented", "  indented"),
            ("//tree", "/tree"),
            ("/etc/hosts is wrong", "/etc/hosts is wrong"),
        ] {
            assert_eq!(parse(line), Ok(ParsedLine::Message(message.to_owned())));
        }
    }

    #[test]
    fn exclamation_mark_runs_a_user_command() {
        let parse_user_command =
            |line| parse_user_command(line).map(|UserCommand { text, output }| (text, output));
        assert_eq!(parse_user_command("!ls -l"), Some(("ls -l".to_owned(), OutputAudience::UserAndAgent)));
        assert_eq!(
            parse_user_command("!! cat .env"),
            Some(("cat .env".to_owned(), OutputAudience::UserOnly))
        );
        for message in [" !ls", "hello!", "!", "!! ", ""] {
            assert_eq!(parse_user_command(message), None);
        }
    }

    #[test]
    fn invalid_commands_are_explained() {
        let lines = ["/tre", "/stopp", "/xylophone", "/tell reviewer", "/mode wild", "/"];
        let explained = lines.map(|line| format!("{line}\n  {}\n", parse(line).unwrap_err()));
        insta::assert_snapshot!(explained.concat());
    }

    #[test]
    fn complete_extends_a_prefix_while_it_is_unambiguous() {
        assert_eq!(complete("/tr").as_deref(), Some("/tree"));
        assert_eq!(complete("/m").as_deref(), Some("/mode"));
        assert_eq!(complete("/t").as_deref(), Some("/t"));
        assert_eq!(complete("/res").as_deref(), Some("/resume "));
        assert_eq!((complete("/x"), complete("tr"), complete("/tell a")), (None, None, None));
    }
}
