//! Refusal of commands that an agent runs in the user's name.
//!
//! Commands that start agents, send them messages, act for the user or widen what agents may do are for the user only. The
//! command of an agent runs below a guard, which the process table shows. This is a second barrier: the sandbox hides the
//! session store and the data directory.

use brigade::process::is_server_tag;

use crate::args::Command;
use crate::command::agents::AgentsCommand;
use crate::command::chat::USER_COMMAND_TAG;
use crate::command::sessions::SessionsCommand;
use crate::command::tools::ToolsCommand;
use crate::error::CliError;
use crate::notify::NOTIFY_TAG;

/// Callers that a command accepts.
enum Callers {
    /// Everyone: it only reads.
    All,
    /// The user, and another program that uses it as a server.
    UserAndClients(Refusal),
    /// The user.
    User(Refusal),
}

/// Parts of the message for an agent.
struct Refusal {
    /// The command.
    command: &'static str,
    /// Reason, as what only the user can do.
    privilege: &'static str,
}

/// Origin of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Caller {
    User,
    /// A server that Brigade started.
    Server,
    Agent,
}

/// Refuses the command if an agent runs it.
pub(crate) fn check(command: &Command) -> Result<(), CliError> {
    let (refusal, most) = match callers(command) {
        Callers::All => return Ok(()),
        Callers::UserAndClients(refusal) => (refusal, Caller::Server),
        Callers::User(refusal) => (refusal, Caller::User),
    };
    check_caller(&refusal, most)
}

/// Refuses the worker of the demo if an agent starts it.
pub(crate) fn check_demo() -> Result<(), CliError> {
    check_caller(&Refusal { command: "demo", privilege: "start agents" }, Caller::User)
}

fn check_caller(refusal: &Refusal, most: Caller) -> Result<(), CliError> {
    let Refusal { command, privilege } = refusal;
    match brigade_sandbox::guards_above(crate::GUARD_ARG) {
        Ok(tags) if caller(&tags) <= most => Ok(()),
        Ok(_) => Err(CliError::usage(format!(
            "cannot run `brigade {command}` in a command of an agent: only the user can {privilege}. Ask the user to run it."
        ))),
        Err(error) => Err(CliError::usage(format!(
            "cannot run `brigade {command}`: cannot determine whether an agent runs it: {error}. Mount /proc \
             for the current pid namespace."
        ))),
    }
}

/// Origin of a process below guards with these tags.
fn caller(tags: &[String]) -> Caller {
    let origin = |tag: &String| match tag.as_str() {
        NOTIFY_TAG | USER_COMMAND_TAG => Caller::User,
        tag if is_server_tag(tag) => Caller::Server,
        _ => Caller::Agent,
    };
    tags.iter().map(origin).max().unwrap_or(Caller::User)
}

fn callers(command: &Command) -> Callers {
    let user = |command, privilege| Callers::User(Refusal { command, privilege });
    let client = |command, privilege| Callers::UserAndClients(Refusal { command, privilege });
    match command {
        Command::Run(_) => user("run", "start agents"),
        Command::Chat(_) => user("chat", "start agents"),
        Command::Resume(_) => user("resume", "resume sessions"),
        Command::Tell(_) => user("tell", "send messages to sessions"),
        Command::Cancel(_) => user("cancel", "cancel sessions"),
        Command::Answer(_) => user("answer", "answer approval requests"),
        Command::Trust(trust) if trust.list => Callers::All,
        Command::Trust(_) => user("trust", "decide which projects are trusted"),
        Command::Demo(_) => user("demo", "start agents"),
        Command::Eval(_) => user("eval", "start agents"),
        Command::Init(_) => user("init", "change the configuration"),
        Command::Mcp(_) => client("mcp", "serve agents"),
        Command::Acp(_) => client("acp", "serve agents"),
        Command::Sessions(sessions) => match &sessions.command {
            SessionsCommand::Import { .. } => user("sessions import", "import sessions"),
            SessionsCommand::Rm { .. } => user("sessions rm", "remove sessions"),
            SessionsCommand::List(_)
            | SessionsCommand::Show { .. }
            | SessionsCommand::Tree { .. }
            | SessionsCommand::Export(_) => Callers::All,
        },
        Command::Agents(agents) => match &agents.command {
            AgentsCommand::New { .. } => user("agents new", "define agents"),
            AgentsCommand::List | AgentsCommand::Show { .. } | AgentsCommand::Lint { .. } => Callers::All,
        },
        Command::Tools(tools) => match &tools.command {
            ToolsCommand::Add(_) => user("tools add", "change the configuration"),
            ToolsCommand::Remove { .. } => user("tools remove", "change the configuration"),
            ToolsCommand::Login { .. } => user("tools login", "log in to servers"),
            ToolsCommand::Logout { .. } => user("tools logout", "log out of servers"),
            ToolsCommand::List { .. } => Callers::All,
        },
        Command::Models(_)
        | Command::Config(_)
        | Command::Doctor(_)
        | Command::Completions(_)
        | Command::Man(_) => Callers::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_user_command_does_not_hide_an_agent_above_it() {
        let of = |tags: &[&str]| caller(&tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&[]), Caller::User);
        assert_eq!(of(&["notify"]), Caller::User);
        assert_eq!(of(&["mcp:other", "notify"]), Caller::Server);
        assert_eq!(of(&["acp:x", "abc:1.0"]), Caller::Agent);
        assert_eq!(of(&["notify", "abc:1.0"]), Caller::Agent);
        assert_eq!(of(&["eval:12"]), Caller::Agent, "its checks run code of agents");
        assert_eq!(of(&[""]), Caller::Agent);
    }
}
