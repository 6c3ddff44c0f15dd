//! References to sessions: an id, a prefix of an id, or `last`.

use std::path::Path;

use brigade::Store;
use brigade::store::RootSummary;
use brigade_core::{Event, SessionId};

use crate::clock;
use crate::error::CliError;
use crate::render::fit;
use crate::sanitize;
use crate::setup;
use crate::units;

/// Reference to the newest session.
const LAST: &str = "last";
/// Minimum length of an id prefix.
pub(crate) const MIN_ID_CHARS: usize = 4;
/// Maximum number of candidates that are listed for an ambiguous prefix.
const MAX_SHOWN_MATCHES: usize = 8;
/// Columns of a task in a list of candidates.
const TASK_COLUMNS: usize = 50;

/// Resolves a reference. A complete id is returned as it is, whether the session exists or not.
pub(crate) async fn resolve(store: &dyn Store, text: &str) -> Result<SessionId, CliError> {
    let text = text.trim();
    let exact = match setup::parse_session_id(text) {
        Ok(session) => return Ok(session),
        Err(failure) => failure,
    };
    if text == LAST {
        return last(store).await;
    }
    let (beginning, below) = text.find('.').map_or((text, ""), |dot| text.split_at(dot));
    let is_id = |byte: u8| matches!(byte, b'a'..=b'z' | b'2'..=b'7');
    if beginning.len() < MIN_ID_CHARS || !beginning.bytes().all(is_id) {
        return Err(exact.hint(format!(
            "Use at least the first {MIN_ID_CHARS} characters of an id, or `{LAST}` for the newest session."
        )));
    }
    let mut matching: Vec<(SessionId, RootSummary)> = Vec::new();
    for summary in store.roots().await? {
        let root = summary.root.root_id();
        if root.as_str().starts_with(beginning) && !matching.iter().any(|(known, _)| *known == root) {
            matching.push((root, summary));
        }
    }
    match matching.as_slice() {
        [] => Err(CliError::usage(format!(
            "no session id starts with '{beginning}'. List all sessions with: brigade sessions list"
        ))),
        [(root, _)] => setup::parse_session_id(&format!("{root}{below}")),
        _ => Err(ambiguous(beginning, &matching)),
    }
}

/// Name of a session in messages: its agent and task, such as `lead "fix the tests"`, or its id if neither is known.
pub(crate) async fn title(store: &dyn Store, session: &SessionId) -> String {
    let records = store.read_prefix(session).await.map(|(records, _)| records).unwrap_or_default();
    let delegation = records.iter().find_map(|record| match &record.event {
        Event::Started { delegation, .. } => Some(delegation),
        _ => None,
    });
    let Some(delegation) = delegation else { return session.to_string() };
    let (label, task) = (sanitize::line(delegation.label()), sanitize::line(delegation.task.as_str()));
    if task.is_empty() { label } else { format!("{label} \"{}\"", fit(&task, TASK_COLUMNS)) }
}

/// Root session of this folder with the newest activity. `start` is the command that creates one, for the error
/// message.
pub(crate) async fn last_in_folder(
    store: &dyn Store,
    folder: &Path,
    start: &str,
) -> Result<SessionId, CliError> {
    let workspace = setup::open_workspace(folder)?;
    let mut roots = store.roots().await?;
    roots.retain(|summary| summary.root.is_root());
    roots.sort_by_key(|summary| std::cmp::Reverse(summary.last.as_ref().map_or(0, |record| record.at)));
    for summary in roots {
        if setup::session_folder(store, &summary.root).await?.is_some_and(|folder| folder == workspace.root())
        {
            return Ok(summary.root);
        }
    }
    Err(CliError::usage(format!(
        "no sessions in {} yet. Start one with: {start}",
        workspace.root().display()
    )))
}

async fn last(store: &dyn Store) -> Result<SessionId, CliError> {
    let roots = store.roots().await?;
    let newest = roots.into_iter().map(|summary| summary.root).find(|root| root.is_root());
    newest.ok_or_else(|| CliError::usage("no sessions yet. Start one with: brigade run \"TASK\""))
}

fn ambiguous(beginning: &str, matching: &[(SessionId, RootSummary)]) -> CliError {
    let mut text = format!("{} session ids start with '{beginning}'. Type more characters:", matching.len());
    for (root, summary) in matching.iter().take(MAX_SHOWN_MATCHES) {
        let (age, task) = match &summary.first {
            Ok(first) => (units::format_age(clock::now().saturating_sub(first.at)), task(&first.event)),
            Err(_) => (String::new(), String::new()),
        };
        text.push_str(&format!("\n  {root}  {age:>4}  {}", fit(&task, TASK_COLUMNS)));
    }
    if matching.len() > MAX_SHOWN_MATCHES {
        text.push_str(&format!("\n  … and {} more", matching.len() - MAX_SHOWN_MATCHES));
    }
    CliError::usage(text)
}

/// Task in the first event of a session, on one line.
pub(crate) fn task(event: &Event) -> String {
    match event {
        Event::Started { delegation, .. } => sanitize::line(delegation.task.as_str()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use brigade::store::MemoryStore;
    use brigade_core::{Budget, Delegation, Grant, Hash, Limit, Record};

    use super::*;

    /// Creates a store with two sessions whose ids share a prefix; the second is newer.
    fn store() -> (MemoryStore, [SessionId; 3]) {
        let store = MemoryStore::default();
        let ids = [1, 2, 1 << 120].map(SessionId::root);
        let hash = Hash::of(b"");
        let grant =
            Grant { authority: hash, budget: Budget::UNLIMITED, turns: 1, deadline: Limit::Unlimited };
        let record = |session: &SessionId| {
            let delegation =
                Delegation { task: format!("task of {session}").into(), ..Delegation::default() };
            let event =
                Event::Started { delegation: delegation.into(), agent: hash, grant, parent: None, depth: 0 };
            Record { session: session.clone(), seq: 0, pos: brigade_core::Cursor::START, at: 0, v: 1, event }
        };
        let records = [&ids[2], &ids[0], &ids[1]].map(record).to_vec();
        setup::current_thread_runtime().unwrap().block_on(store.restore(records, Vec::new())).unwrap();
        (store, ids)
    }

    fn find(text: &str) -> Result<String, String> {
        let found = setup::current_thread_runtime().unwrap().block_on(resolve(&store().0, text));
        found.map(|session| session.to_string()).map_err(|failure| match failure {
            CliError::Usage(error) => error.to_string(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn resolve_unique_prefix_finds_the_session() {
        let (_, [first, second, other]) = store();
        assert_eq!(find(&other.as_str()[..4]), Ok(other.to_string()));
        assert_eq!(find(&format!(" {}.1-0 ", &other.as_str()[..9])), Ok(format!("{other}.1-0")));
        assert_eq!(find(first.as_str()), Ok(first.to_string()));
        assert_eq!(find("last"), Ok(second.to_string()));
        // A complete id is never treated as a prefix.
        let unknown = SessionId::root(7);
        assert_eq!(find(unknown.as_str()), Ok(unknown.to_string()));
    }

    #[test]
    fn resolve_ambiguous_prefix_lists_the_matches() {
        let (_, [first, second, _]) = store();
        let refused = find(&first.as_str()[..6]).unwrap_err();
        assert!(refused.starts_with("2 session ids start with 'aaaaaa'"), "{refused}");
        for session in [&first, &second] {
            assert!(
                refused.contains(session.as_str()) && refused.contains(&format!("task of {session}")),
                "{refused}"
            );
        }
    }

    #[test]
    fn resolve_invalid_prefix_is_refused() {
        let names = ["aaa", "", "AAAA", "a b c", "../aaaa", "1-0.1", "zzzz", "aaaaaaaaaaaaaaaaaaaaaaaaab.x"];
        let refused = names.map(|name| format!("{name:?}\n{}\n", find(name).unwrap_err()));
        insta::assert_snapshot!(refused.join("\n"));
    }
}
