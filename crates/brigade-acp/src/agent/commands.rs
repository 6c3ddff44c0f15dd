//! Prompts that begin with a slash: for the session itself, not for its model.

use agent_client_protocol::v1::schema as acp;
use brigade::{Runtime, StoreError};
use brigade_core::view::{Doing, Node, Tree};
use brigade_core::{SessionId, Status};

use super::seat::Seat;
use super::{calls, choices, refusal};

/// The commands, what they take, and what they do.
const COMMANDS: [(&str, &str, &str); 9] = [
    ("tree", "", "Who works for whom, and how far they are"),
    ("cost", "", "Tokens and money, by agent and in all"),
    ("agents", "", "The agents that can be named"),
    ("model", "[NAME]", "The model, or another one from the next prompt on"),
    ("mode", "[MODE]", "plan, ask, edit or auto, from the next prompt on"),
    ("tell", "AGENT TEXT", "Say something to one of the agents that work"),
    ("stop", "[AGENT]", "Stop this round, or one of the agents that work"),
    ("resume", "", "Go on after a limit, a failure or a crash"),
    ("help", "", "This list"),
];

/// What a prompt means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    /// Words for the agent.
    Words(&'a str),
    /// The last round is to go on.
    Resume,
    /// Something that is done at once, also while a round is going on: the command and what follows it.
    Command(&'static str, &'a str),
}

/// What a prompt means. A slash that begins no command begins a sentence or a path.
pub(super) fn meaning(text: &str) -> Meaning<'_> {
    let Some(rest) = text.trim().strip_prefix('/') else { return Meaning::Words(text) };
    let (name, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    match COMMANDS.iter().find(|(command, _, _)| *command == name) {
        Some(("resume", _, _)) => Meaning::Resume,
        Some((command, _, _)) => Meaning::Command(command, words.trim()),
        None => Meaning::Words(text),
    }
}

/// The list that a client offers to type.
pub(super) fn available() -> acp::AvailableCommandsUpdate {
    let command = |(name, takes, does): (&str, &str, &str)| {
        let command = acp::AvailableCommand::new(name, does);
        match takes {
            "" => command,
            takes => command
                .input(acp::AvailableCommandInput::Unstructured(acp::UnstructuredCommandInput::new(takes))),
        }
    };
    acp::AvailableCommandsUpdate::new(COMMANDS.map(command).to_vec())
}

/// Does what a command says, and says what came of it.
pub(super) async fn obey(seat: &Seat, by: &str, command: &str, words: &str) -> Result<String, acp::Error> {
    Ok(match command {
        "tree" => drawn(&tree(seat).await?, &seat.session),
        "cost" => costs(&tree(seat).await?, &seat.session),
        "agents" => agents(&seat.desk.runtime),
        "model" if words.is_empty() => format!("The model is {}.", seat.model()),
        "model" => {
            choices::set_model(seat, words)?;
            format!("The model is {} from the next prompt on.", seat.model())
        }
        "mode" if words.is_empty() => format!("The mode is {}.", seat.mode()),
        "mode" => {
            choices::set_mode(seat, words)?;
            format!("The mode is {} from the next prompt on.", seat.mode())
        }
        "tell" => tell(seat, words).await?,
        "stop" if words.is_empty() && seat.stop() => "Stopping.".to_owned(),
        "stop" if words.is_empty() => "Nothing is going on here.".to_owned(),
        "stop" => stop(seat, by, words).await?,
        _ => help(),
    })
}

fn help() -> String {
    let line = |(name, takes, does): (&str, &str, &str)| {
        let typed = format!("/{name} {takes}");
        format!("- `{}`: {does}", typed.trim())
    };
    COMMANDS.map(line).join("\n")
}

async fn tree(seat: &Seat) -> Result<Tree, acp::Error> {
    let failed = |error: StoreError| refusal::failed(error.to_string());
    let records = seat.desk.runtime.store().tail(&seat.session, 0, usize::MAX).await.map_err(failed)?;
    Ok(Tree::fold(&records))
}

/// The tree as a nested list.
fn drawn(tree: &Tree, root: &SessionId) -> String {
    let nodes = tree.walk(root);
    let Some(top) = nodes.first() else { return "Nothing has happened yet.".to_owned() };
    let depth = top.depth;
    let line = |node: &&Node| {
        let indent = "  ".repeat(node.depth.saturating_sub(depth) as usize);
        let label = calls::brief(&node.label);
        format!("{indent}- **{label}**: {}, {} turns", doing(&node.doing), node.turns)
    };
    nodes.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn doing(doing: &Doing) -> String {
    match doing {
        Doing::Waiting => "waits for its turn".to_owned(),
        Doing::Thinking => "thinks".to_owned(),
        Doing::Tool(tool) => format!("calls {tool}"),
        Doing::Delegating => "waits for its agents".to_owned(),
        Doing::Finishing => "says its last word".to_owned(),
        Doing::Summarising => "sums up what was said".to_owned(),
        Doing::Ended(outcome) => match &outcome.status {
            Status::Failed { cause } => format!("failed: {}", calls::brief(cause)),
            status => status.word().to_owned(),
        },
    }
}

/// What each agent used up by itself, and all of them together.
fn costs(tree: &Tree, root: &SessionId) -> String {
    let nodes = tree.walk(root);
    if nodes.is_empty() {
        return "Nothing was used up yet.".to_owned();
    }
    let amount = |spent: brigade_core::Spent| {
        let usage = spent.usage;
        let money = match spent.usd {
            0 => String::new(),
            usd => format!(", ${:.4}", usd as f64 / 1e9),
        };
        format!("{} tokens in, {} out{money}", usage.input_total(), usage.output)
    };
    let line = |node: &&Node| format!("- **{}**: {}", calls::brief(&node.label), amount(node.own));
    let lines: Vec<String> = nodes.iter().map(line).collect();
    format!("{}\n\nIn all {}.", lines.join("\n"), amount(tree.spent(root)))
}

fn agents(runtime: &Runtime) -> String {
    let agents = runtime.settings().agents.list();
    if agents.is_empty() {
        return "No agents are defined here; `brigade agents new` writes one.".to_owned();
    }
    let line = |id: &str, about: &str| format!("- **{id}**: {}", calls::brief(about));
    agents.iter().map(|agent| line(&agent.id, &agent.description)).collect::<Vec<_>>().join("\n")
}

async fn tell(seat: &Seat, words: &str) -> Result<String, acp::Error> {
    let tree = tree(seat).await?;
    let (node, text) = named(&tree, &seat.session, words)?;
    if text.is_empty() {
        return Err(refusal::params("say whom and what: /tell AGENT TEXT"));
    }
    seat.desk.runtime.tell(&node.session, text).await.map_err(|error| refusal::run(&error))?;
    Ok(format!("{} hears it before its next turn.", calls::brief(&node.label)))
}

async fn stop(seat: &Seat, by: &str, words: &str) -> Result<String, acp::Error> {
    let tree = tree(seat).await?;
    let (node, _) = named(&tree, &seat.session, words)?;
    seat.desk.runtime.cancel(&node.session, by).await.map_err(|error| refusal::run(&error))?;
    Ok(format!("{} is stopped.", calls::brief(&node.label)))
}

/// The agent at work that the words begin with, by its label or id, and the rest of them. Labels may have blanks, so
/// the longest that fits is meant.
fn named<'t, 'w>(
    tree: &'t Tree,
    root: &SessionId,
    words: &'w str,
) -> Result<(&'t Node, &'w str), acp::Error> {
    let working: Vec<&Node> =
        tree.walk(root).into_iter().filter(|node| !matches!(node.doing, Doing::Ended(_))).collect();
    let rest = |name: &str| {
        let begins = words.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        let rest = words.get(name.len()..).filter(|_| begins)?;
        (rest.is_empty() || rest.starts_with(char::is_whitespace)).then(|| rest.trim())
    };
    let fitting = working.iter().flat_map(|node| {
        [node.label.as_str(), node.session.as_str()]
            .into_iter()
            .filter_map(|name| rest(name).map(|rest| (*node, rest, name.len())))
    });
    match fitting.max_by_key(|(_, _, length)| *length) {
        Some((node, rest, _)) => Ok((node, rest)),
        None => {
            let labels: Vec<String> = working.iter().map(|node| calls::brief(&node.label)).collect();
            let known = if labels.is_empty() { "nobody".to_owned() } else { labels.join(", ") };
            Err(refusal::params(format!("no agent of that name is at work; at work: {known}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_are_commands() {
        assert_eq!(meaning(" /tree "), Meaning::Command("tree", ""));
        assert_eq!(meaning("/tell Code Reviewer  hurry"), Meaning::Command("tell", "Code Reviewer  hurry"));
        assert_eq!(meaning("/resume"), Meaning::Resume);
        for words in ["/etc/hosts is wrong", "tree", "/trees", "/"] {
            assert_eq!(meaning(words), Meaning::Words(words));
        }
    }
}
