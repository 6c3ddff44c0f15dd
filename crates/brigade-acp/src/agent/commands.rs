//! Slash commands: prompts for the session itself, not for its model.

use agent_client_protocol_schema::v1 as acp;
use brigade::Runtime;
use brigade_core::view::{Activity, Node, Tree};
use brigade_core::{SessionId, Status};

use super::open_session::OpenSession;
use super::{calls, config_options, errors};

/// Names, arguments and descriptions of the commands.
const COMMANDS: [(&str, &str, &str); 9] = [
    ("tree", "", "Show the agents of this session and their status"),
    ("cost", "", "Show tokens and cost by agent and in total"),
    ("agents", "", "List the available agents"),
    ("model", "[NAME]", "Show the model, or set it starting with the next prompt"),
    ("mode", "[MODE]", "Show the mode, or set it starting with the next prompt: plan, ask, edit or auto"),
    ("tell", "AGENT TEXT", "Send a message to a running agent"),
    ("stop", "[AGENT]", "Stop all running agents, or only one"),
    ("resume", "", "Resume after a limit, a failure or a crash"),
    ("help", "", "List the commands"),
];

/// A parsed prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParsedPrompt<'a> {
    /// A message to the agent.
    Message(&'a str),
    /// A request to resume the last round.
    Resume,
    /// A command that runs at once, even during a round, and its arguments.
    Command(&'static str, &'a str),
}

/// Parses a prompt. A slash that starts no known command is part of a message.
pub(super) fn parse_prompt(text: &str) -> ParsedPrompt<'_> {
    let Some(rest) = text.trim().strip_prefix('/') else { return ParsedPrompt::Message(text) };
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    match COMMANDS.iter().find(|(command, _, _)| *command == name) {
        Some(("resume", _, _)) => ParsedPrompt::Resume,
        Some((command, _, _)) => ParsedPrompt::Command(command, arguments.trim()),
        None => ParsedPrompt::Message(text),
    }
}

/// The list of commands that clients offer for completion.
pub(super) fn available() -> acp::AvailableCommandsUpdate {
    let command = |(name, hint, description): (&str, &str, &str)| {
        let command = acp::AvailableCommand::new(name, description);
        match hint {
            "" => command,
            hint => command
                .input(acp::AvailableCommandInput::Unstructured(acp::UnstructuredCommandInput::new(hint))),
        }
    };
    acp::AvailableCommandsUpdate::new(COMMANDS.map(command).to_vec())
}

/// Runs a command and returns its output.
pub(super) async fn run_command(
    open_session: &OpenSession,
    by: &str,
    command: &str,
    arguments: &str,
) -> Result<String, acp::Error> {
    Ok(match command {
        "tree" => render_tree(&tree(open_session).await?, open_session.id()),
        "cost" => render_costs(&tree(open_session).await?, open_session.id()),
        "agents" => agents(&open_session.runtime()),
        "model" if arguments.is_empty() => format!("The model is {}.", open_session.model()),
        "model" => {
            config_options::set_model(open_session, arguments)?;
            format!("Model set to {}, starting with the next prompt.", open_session.model())
        }
        "mode" if arguments.is_empty() => format!("The mode is {}.", open_session.mode()),
        "mode" => {
            config_options::set_mode(open_session, arguments)?;
            format!("Mode set to {}, starting with the next prompt.", open_session.mode())
        }
        "tell" => tell(open_session, arguments).await?,
        "stop" if arguments.is_empty() && open_session.stop(by) => "Stopping.".to_owned(),
        "stop" if arguments.is_empty() => "No agent is running.".to_owned(),
        "stop" => stop(open_session, by, arguments).await?,
        _ => help(),
    })
}

fn help() -> String {
    let line = |(name, hint, description): (&str, &str, &str)| {
        let typed = format!("/{name} {hint}");
        format!("- `{}`: {description}", typed.trim())
    };
    COMMANDS.map(line).join("\n")
}

async fn tree(open_session: &OpenSession) -> Result<Tree, acp::Error> {
    open_session.tree().await.map_err(|error| errors::failed(error.to_string()))
}

/// Renders the tree as a nested list.
fn render_tree(tree: &Tree, root: &SessionId) -> String {
    let nodes = tree.walk(root);
    let Some(top) = nodes.first() else { return "The session has not started yet.".to_owned() };
    let depth = top.depth;
    let line = |node: &&Node| {
        let indent = "  ".repeat(node.depth.saturating_sub(depth) as usize);
        let label = calls::brief(&node.label);
        let turns = if node.turns == 1 { "turn" } else { "turns" };
        format!("{indent}- **{label}**: {}, {} {turns}", activity_label(&node.activity), node.turns)
    };
    nodes.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn activity_label(activity: &Activity) -> String {
    match activity {
        Activity::Pending => "waiting to start".to_owned(),
        Activity::Thinking => "thinking".to_owned(),
        Activity::Tool(tool) => format!("calling {tool}"),
        Activity::Delegating => "waiting for its sub-agents".to_owned(),
        Activity::WrappingUp => "wrapping up".to_owned(),
        Activity::Compacting => "compacting the conversation".to_owned(),
        Activity::Ended(outcome) => match &outcome.status {
            Status::Failed { cause } => format!("failed: {}", calls::brief(cause)),
            status => status.as_str().to_owned(),
        },
    }
}

/// Renders the usage of each agent and the total.
fn render_costs(tree: &Tree, root: &SessionId) -> String {
    let nodes = tree.walk(root);
    if nodes.is_empty() {
        return "No tokens have been used yet.".to_owned();
    }
    let amount = |spent: brigade_core::Spent| {
        let usage = spent.usage;
        let money = match spent.usd {
            0 => String::new(),
            usd => format!(", ${:.4}", usd as f64 / 1e9),
        };
        format!("{} tokens in, {} out{money}", usage.input_total(), usage.output)
    };
    let line = |node: &&Node| format!("- **{}**: {}", calls::brief(&node.label), amount(node.own_usage));
    let lines: Vec<String> = nodes.iter().map(line).collect();
    format!("{}\n\nTotal: {}.", lines.join("\n"), amount(tree.spent(root)))
}

fn agents(runtime: &Runtime) -> String {
    let agents = runtime.settings().agents.list();
    if agents.is_empty() {
        return "No agents are defined here. Create one with `brigade agents new`.".to_owned();
    }
    let line = |id: &str, about: &str| format!("- **{id}**: {}", calls::brief(about));
    agents.iter().map(|agent| line(&agent.id, &agent.description)).collect::<Vec<_>>().join("\n")
}

async fn tell(open_session: &OpenSession, arguments: &str) -> Result<String, acp::Error> {
    let tree = tree(open_session).await?;
    let (node, text) = find_agent(&tree, open_session.id(), arguments)?;
    if text.is_empty() {
        return Err(errors::params("the message is missing. Usage: `/tell AGENT TEXT`"));
    }
    open_session.runtime().tell(&node.session, text).await.map_err(|error| errors::run(&error))?;
    Ok(format!("Sent to {}. It will be delivered before its next turn.", calls::brief(&node.label)))
}

async fn stop(open_session: &OpenSession, by: &str, arguments: &str) -> Result<String, acp::Error> {
    let tree = tree(open_session).await?;
    let (node, _) = find_agent(&tree, open_session.id(), arguments)?;
    open_session.runtime().cancel(&node.session, by).await.map_err(|error| errors::run(&error))?;
    Ok(format!("Stopping {}.", calls::brief(&node.label)))
}

/// Finds the running agent that the arguments start with, by label or id, and returns it with the remaining
/// text. Labels may contain spaces, so the longest match wins.
fn find_agent<'t, 'w>(
    tree: &'t Tree,
    root: &SessionId,
    arguments: &'w str,
) -> Result<(&'t Node, &'w str), acp::Error> {
    let running: Vec<&Node> =
        tree.walk(root).into_iter().filter(|node| !matches!(node.activity, Activity::Ended(_))).collect();
    let rest = |name: &str| {
        let begins = arguments.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        let rest = arguments.get(name.len()..).filter(|_| begins)?;
        (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim())
    };
    let matches = running.iter().flat_map(|node| {
        [node.label.as_str(), node.session.as_str()]
            .into_iter()
            .filter_map(|name| rest(name).map(|rest| (*node, rest, name.len())))
    });
    match matches.max_by_key(|(_, _, length)| *length) {
        Some((node, rest, _)) => Ok((node, rest)),
        None => {
            let labels: Vec<String> = running.iter().map(|node| calls::brief(&node.label)).collect();
            let known = if labels.is_empty() { "none".to_owned() } else { labels.join(", ") };
            Err(errors::params(format!("no running agent has this name. Running agents: {known}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_slash_words_are_commands() {
        assert_eq!(parse_prompt(" /tree "), ParsedPrompt::Command("tree", ""));
        assert_eq!(
            parse_prompt("/tell Code Reviewer  hurry"),
            ParsedPrompt::Command("tell", "Code Reviewer  hurry")
        );
        assert_eq!(parse_prompt("/resume"), ParsedPrompt::Resume);
        for arguments in ["/etc/hosts is wrong", "tree", "/trees", "/"] {
            assert_eq!(parse_prompt(arguments), ParsedPrompt::Message(arguments));
        }
    }
}
