//! Output of slash commands, as text that is safe to print.

use brigade::{Store, UndoResult, UndoneFile};
use brigade_core::view::Node;
use brigade_core::{Event, SessionId};

use super::conversation::Conversation;
use crate::clock;
use crate::error::CliError;
use crate::follow::RunView;
use crate::render::{self, fit, pad};
use crate::sanitize;
use crate::settings::LEAD_AGENT;
use crate::terminal::Colour;
use crate::units;

/// Maximum number of sessions that are listed.
const MAX_LISTED_SESSIONS: usize = 10;
pub(super) const NO_SESSION: &str = "No messages yet.";

/// Tree of agents.
pub(super) fn tree(conversation: &Conversation, colour: Colour, columns: usize) -> String {
    conversation
        .view
        .as_ref()
        .map_or_else(|| NO_SESSION.to_owned(), |view| render::costs(view, colour, columns))
}

/// Tokens and cost.
pub(super) fn cost(conversation: &Conversation, colour: Colour, columns: usize) -> String {
    conversation
        .view
        .as_ref()
        .map_or_else(|| NO_SESSION.to_owned(), |view| render::costs_by_agent(view, colour, columns))
}

/// Model of the next round.
pub(super) async fn model(conversation: &Conversation) -> String {
    match conversation.model().await {
        Some(model) => format!("Model: {}.", sanitize::line(&model)),
        None => {
            "No model is set. Set one with /model PROVIDER/MODEL. List available models with: brigade models"
                .to_owned()
        }
    }
}

/// Available agents.
pub(super) fn agents(conversation: &Conversation, columns: usize) -> String {
    let agents = conversation.runtime.settings().agents.list();
    let width = agents.iter().map(|agent| agent.id.len()).chain([LEAD_AGENT.len()]).max().unwrap_or_default();
    let line = |id: &str, about: &str| fit(&format!("{} {}", pad(id, width), sanitize::line(about)), columns);
    let mut lines = vec![line(LEAD_AGENT, "takes tasks and delegates parts of them")];
    lines.extend(agents.iter().map(|agent| line(&agent.id, &agent.description)));
    lines.join("\n")
}

/// Sessions with the newest activity.
pub(super) async fn sessions(store: &dyn Store, columns: usize) -> Result<String, CliError> {
    let mut roots = store.roots().await?;
    roots.sort_by_key(|summary| std::cmp::Reverse(summary.last.as_ref().map_or(0, |record| record.at)));
    let mut lines = Vec::new();
    for summary in roots.iter().take(MAX_LISTED_SESSIONS) {
        let Ok(first) = &summary.first else { continue };
        let Event::Started { delegation, .. } = &first.event else { continue };
        let at = summary.last.as_ref().map_or(first.at, |last| last.at);
        let agent = delegation.role.as_deref().or(delegation.agent.as_deref()).unwrap_or(LEAD_AGENT);
        let age = units::format_age(clock::now().saturating_sub(at));
        let about = format!(
            "{} {}: {}",
            pad(&age, 4),
            sanitize::line(agent),
            sanitize::line(delegation.task.as_str())
        );
        // The id is never cut, because the user has to type it.
        let max_columns = columns.saturating_sub(summary.root.as_str().len() + 1).max(12);
        lines.push(format!("{} {}", summary.root, fit(&about, max_columns)));
    }
    if lines.is_empty() {
        return Ok("No sessions yet.".to_owned());
    }
    lines.push("Resume one with: /resume ID".to_owned());
    Ok(lines.join("\n"))
}

/// Report of an undo, file by file.
pub(super) fn undo_report(files: &[UndoneFile]) -> String {
    let lines = files.iter().map(|UndoneFile { path, result }| {
        let path = sanitize::line(path);
        match result {
            UndoResult::Restored => format!("restored {path}"),
            UndoResult::PartlyRestored => {
                format!("restored {path} to the content that another program wrote during the round")
            }
            UndoResult::Removed => format!("removed {path}, which was created in the round"),
            UndoResult::Unchanged => format!("{path} is already restored"),
            UndoResult::Refused { cause } => format!("cannot undo {path}: {}", sanitize::line(cause)),
        }
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return "The last round edited no files. Changes by commands are not undone.".to_owned();
    }
    lines.join("\n")
}

/// Note for the agent about an undo; none if no file was changed.
pub(super) fn undo_note_for_agent(files: &[UndoneFile]) -> Option<String> {
    let is_changed = |file: &&UndoneFile| match &file.result {
        UndoResult::Restored | UndoResult::PartlyRestored | UndoResult::Removed => true,
        UndoResult::Unchanged | UndoResult::Refused { .. } => false,
    };
    let changed: Vec<&str> = files.iter().filter(is_changed).map(|file| file.path.as_str()).collect();
    let paths = (!changed.is_empty()).then(|| changed.join(", "))?;
    Some(format!("I undid the latest edits to: {paths}"))
}

/// Text that begins with no agent, or with more than one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecipientError {
    /// No agent has this name.
    #[error("no agent is named '{0}'. List the agents with /tree")]
    Unknown(String),
    /// The agent has ended.
    #[error("{label} is no longer running. Continue its session with: /resume {session}")]
    Ended { label: String, session: SessionId },
    /// Several running agents have this name.
    #[error("several agents are named '{name}'. Use {}", keys.join(" or "))]
    Ambiguous { name: String, keys: Vec<String> },
}

/// Finds the agent that a text begins with, and returns it with the rest of the text. Names may contain spaces.
pub(super) fn parse_recipient<'a>(
    view: &RunView,
    text: &'a str,
) -> Result<(SessionId, &'a str), RecipientError> {
    let nodes = view.tree.walk(&view.root);
    let mut found: Vec<(&Node, &'a str)> = Vec::new();
    let mut longest = 0;
    for node in nodes.into_iter().filter(|node| node.session != view.root) {
        let names = [node.session.as_str().to_owned(), node.key(), node.label.clone()];
        for name in names {
            let Some(rest) = after_name(text, &name) else { continue };
            if name.len() > longest {
                found.clear();
                longest = name.len();
            }
            if name.len() == longest {
                found.push((node, rest));
            }
        }
    }
    let name = sanitize::line(text.split_whitespace().next().unwrap_or_default());
    let working: Vec<&(&Node, &str)> = found.iter().filter(|(node, _)| !node.has_ended()).collect();
    match (working.as_slice(), found.as_slice()) {
        ([(node, rest)], _) => Ok((node.session.clone(), rest)),
        ([], []) => Err(RecipientError::Unknown(name)),
        ([], [(node, _), ..]) => {
            Err(RecipientError::Ended { label: sanitize::line(&node.label), session: node.session.clone() })
        }
        (several, _) => {
            let keys: Vec<String> = several.iter().map(|(node, _)| node.key()).collect();
            Err(RecipientError::Ambiguous { name, keys })
        }
    }
}

/// Text after a name at its start, ignoring case.
fn after_name<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    if name.is_empty() {
        return None;
    }
    let lower = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<String>();
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let ends = ends.filter(|at| text[*at..].is_empty() || text[*at..].starts_with(char::is_whitespace));
    let name = lower(name);
    ends.into_iter().find(|end| lower(&text[..*end]) == name).map(|end| text[end..].trim())
}

#[cfg(test)]
mod tests {
    use brigade_core::delegation::{Outcome, Status};
    use brigade_core::{Budget, CallId, Delegation, Grant, Hash, Limit, Record, Spent};

    use super::*;

    fn view(roles: &[(&str, bool)]) -> RunView {
        let root = SessionId::root(1);
        let hash = Hash::of(b"");
        let grant =
            Grant { authority: hash, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        let mut view = RunView::new(root.clone());
        let record = |session: &SessionId, seq, event| Record {
            session: session.clone(),
            seq,
            pos: brigade_core::Cursor::START,
            at: 0,
            v: 1,
            event,
        };
        let delegation = Delegation::default();
        view.apply(&record(
            &root,
            0,
            Event::Started { delegation: delegation.into(), agent: hash, grant, parent: None, depth: 0 },
        ));
        for (index, (role, has_ended)) in (0..).zip(roles) {
            let call = CallId { turn: 1, index };
            let child = root.child(call);
            let delegation = Delegation { role: Some((*role).to_owned()), ..Delegation::default() };
            let delegated = Event::Delegated {
                call,
                child: child.clone(),
                delegation: delegation.into(),
                agent: hash,
                grant,
            };
            view.apply(&record(&root, 1 + u64::from(index), delegated));
            if *has_ended {
                let outcome = Outcome { status: Status::Done, text: "".into(), warnings: Vec::new() };
                view.apply(&record(&child, 0, Event::Ended { outcome, spent: Spent::default() }));
            }
        }
        view
    }

    #[tokio::test]
    async fn sessions_are_listed_by_the_time_of_their_last_event() {
        let store = brigade::store::MemoryStore::new();
        let hash = Hash::of(b"");
        let grant =
            Grant { authority: hash, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        let record = |bits, seq, at| {
            let delegation = Delegation { task: "task".into(), ..Delegation::default() }.into();
            let event = Event::Started { delegation, agent: hash, grant, parent: None, depth: 0 };
            Record { session: SessionId::root(bits), seq, pos: brigade_core::Cursor::START, at, v: 1, event }
        };
        // The session that began first has the newest event, and an old one is imported last.
        for records in
            [vec![record(1, 0, 100), record(1, 1, 400)], vec![record(2, 0, 300)], vec![record(3, 0, 50)]]
        {
            store.restore(records, Vec::new()).await.unwrap();
        }
        let text = sessions(&store, 80).await.unwrap();
        let ids: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(ids[..3], [1, 2, 3].map(|bits| SessionId::root(bits).to_string()));
    }

    #[test]
    fn parse_recipient_accepts_name_key_or_id() {
        let view = view(&[("Security", false), ("Security Auditor", false), ("Gone", true), ("Gone", false)]);
        let child = |index| view.root.child(CallId { turn: 1, index });
        assert_eq!(parse_recipient(&view, "security auditor hurry up"), Ok((child(1), "hurry up")));
        assert_eq!(parse_recipient(&view, "Security hurry"), Ok((child(0), "hurry")));
        assert_eq!(parse_recipient(&view, "gone x"), Ok((child(3), "x")), "the running agent is preferred");
        assert_eq!(
            parse_recipient(&view, child(2).as_str()),
            Err(RecipientError::Ended { label: "Gone".to_owned(), session: child(2) })
        );
        let key = view.tree.node(&child(0)).unwrap().key();
        assert_eq!(parse_recipient(&view, &format!("{key} x")), Ok((child(0), "x")));
        assert_eq!(parse_recipient(&view, "Sec x"), Err(RecipientError::Unknown("Sec".to_owned())));
        assert!(parse_recipient(&view, "\u{1b}[2J x").unwrap_err().to_string().contains("\\u{1b}"));
    }

    #[test]
    fn parse_recipient_ambiguous_name_is_refused() {
        let view = view(&[("Worker", false), ("Worker", false)]);
        let error = parse_recipient(&view, "worker go").unwrap_err().to_string();
        assert!(error.contains("run:"), "{error}");
    }
}
