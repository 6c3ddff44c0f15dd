//! `brigade sessions list`: sessions, newest first, with search and filters.

use brigade::store::{RootSummary, TreeTotals};
use brigade::{Store, StoreError};
use brigade_core::{Event, Record, SessionId, Spent};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::args::{SessionState, SessionsList};
use super::search::TextQuery;
use super::table::{Column, table};
use crate::clock;
use crate::error::CliError;
use crate::render::fit;
use crate::sanitize;
use crate::store_advice;
use crate::units;

/// Default number of sessions in text output.
const DEFAULT_LIMIT: usize = 20;
/// Minimum length of a displayed id.
const MIN_ID_CHARS: usize = 8;
const MAX_AGENT_COLUMNS: usize = 16;
/// Columns of a task, even if the output is not a terminal.
const MAX_TASK_COLUMNS: usize = 200;
/// Number of sessions whose totals are loaded at a time.
const PAGE_SIZE: usize = 64;

/// Number of sessions to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListLimit {
    AtMost(usize),
    All,
}

impl ListLimit {
    /// Limit from the flags. The default is one screen for text, and all sessions for JSON.
    pub(super) fn new(list: &SessionsList, is_text: bool) -> ListLimit {
        match list.limit.and_then(|limit| usize::try_from(limit).ok()) {
            Some(limit) => ListLimit::AtMost(limit),
            None if list.all || !is_text => ListLimit::All,
            None => ListLimit::AtMost(DEFAULT_LIMIT),
        }
    }
}

/// Sessions that were found.
pub(super) struct Listing {
    /// Newest first.
    entries: Vec<SessionEntry>,
    /// Whether there are more sessions than the limit.
    has_more: bool,
    /// Number of sessions in the store.
    all: usize,
    /// Length of an id that makes it unique.
    id_length: usize,
}

/// Session in the list.
struct SessionEntry {
    id: SessionId,
    at: Option<u64>,
    state: SessionState,
    agent: String,
    task: String,
    /// Excerpt with the text or the agent, if it is not in the task or the agent of this session.
    found: Option<String>,
    problem: Option<String>,
    agents: u64,
    spent: Spent,
}

/// Finds the sessions that match. Complete logs are read only for a text search.
pub(super) async fn find(
    store: &dyn Store,
    list: &SessionsList,
    limit: ListLimit,
) -> Result<Listing, CliError> {
    let query = TextQuery::new(&list.text);
    let since = list.since.map(units::Since::moment);
    let summaries = store.roots().await?;
    let (all, id_length) = (summaries.len(), unique_prefix_length(&summaries));
    let mut entries = Vec::new();
    let mut has_more = false;
    let is_recent = |entry: &SessionEntry| since.is_none_or(|since| entry.at.is_some_and(|at| at >= since));
    let all_entries = summaries.iter().map(|summary| (summary, SessionEntry::new(summary)));
    let mut candidates = all_entries.filter(|(_, entry)| is_recent(entry)).peekable();
    'pages: while candidates.peek().is_some() {
        let page: Vec<(&RootSummary, SessionEntry)> = candidates.by_ref().take(PAGE_SIZE).collect();
        let roots = page.iter().map(|(summary, _)| summary.root.clone()).collect();
        let totals = store.totals(roots).await?;
        for ((summary, mut entry), totals) in page.into_iter().zip(totals) {
            entry.state = state(summary, &totals);
            if !list.status.is_empty() && !list.status.contains(&entry.state) {
                continue;
            }
            if let Some(agent) = &list.agent
                && !same_name(agent, &entry.agent)
            {
                entry.found = find_agent_below(store, &summary.root, agent).await;
                if entry.found.is_none() {
                    continue;
                }
            }
            if let Some(query) = &query
                && query.excerpt(&entry.task).is_none()
            {
                let Some(found) = query.find_in_tree(store, &summary.root).await else { continue };
                entry.found = Some(found);
            }
            if matches!(limit, ListLimit::AtMost(limit) if entries.len() >= limit) {
                has_more = true;
                break 'pages;
            }
            if let Ok(totals) = totals {
                entry.agents = totals.sessions.max(1);
                entry.spent = totals.spent;
            }
            entries.push(entry);
        }
    }
    Ok(Listing { entries, has_more, all, id_length })
}

/// First session below this one that the agent ran, with its task. Unreadable sessions are skipped.
async fn find_agent_below(store: &dyn Store, root: &SessionId, agent: &str) -> Option<String> {
    for session in store.sessions(root).await.unwrap_or_default() {
        let Ok((records, _)) = store.read_prefix(&session).await else { continue };
        if let Some(Event::Started { delegation, .. }) = records.first().map(|record| &record.event)
            && same_name(agent, delegation.label())
        {
            let (label, task) =
                (sanitize::line(delegation.label()), sanitize::line(delegation.task.as_str()));
            return Some(format!("{label} {session}: {}", fit(&task, MAX_TASK_COLUMNS)));
        }
    }
    None
}

fn same_name(one: &str, other: &str) -> bool {
    one.trim().to_lowercase() == other.trim().to_lowercase()
}

/// Length of the shortest prefixes that are unique.
fn unique_prefix_length(summaries: &[RootSummary]) -> usize {
    let mut roots: Vec<SessionId> = summaries.iter().map(|summary| summary.root.root_id()).collect();
    roots.sort();
    roots.dedup();
    let same = |pair: &[SessionId]| match pair {
        [one, other] => one.as_str().bytes().zip(other.as_str().bytes()).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    roots.windows(2).map(|pair| same(pair) + 1).max().unwrap_or(0).max(MIN_ID_CHARS)
}

fn state(summary: &RootSummary, totals: &TreeTotals) -> SessionState {
    if summary.runner.is_some() {
        return SessionState::Running;
    }
    match (&summary.last, totals) {
        (Err(StoreError::Newer { .. }), _) => SessionState::Newer,
        (Err(_), _) => SessionState::Damaged,
        (Ok(Record { event: Event::Ended { outcome, .. }, .. }), _) => parse_state(outcome.status.as_str()),
        // A message after the end of a round does not start another one.
        (Ok(last), Ok(totals)) if last.event.is_external() => {
            totals.ended.as_ref().map_or(SessionState::Interrupted, |status| parse_state(status.as_str()))
        }
        (Ok(last), Err(_)) if last.event.is_external() => SessionState::Damaged,
        (Ok(_), _) => SessionState::Interrupted,
    }
}

/// State for a status name of the log.
fn parse_state(word: &str) -> SessionState {
    SessionState::from_str(word, false).unwrap_or(SessionState::Damaged)
}

fn state_name(state: SessionState) -> String {
    state.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl SessionEntry {
    fn new(summary: &RootSummary) -> SessionEntry {
        let mut entry = SessionEntry {
            id: summary.root.clone(),
            at: None,
            state: SessionState::Damaged,
            agent: String::new(),
            task: String::new(),
            found: None,
            problem: None,
            agents: 1,
            spent: Spent::default(),
        };
        match &summary.first {
            Ok(first) => {
                entry.at = Some(first.at);
                if let Event::Started { delegation, .. } = &first.event {
                    entry.agent = delegation.label().to_owned();
                    entry.task = delegation.task.to_string();
                }
            }
            Err(error) => entry.problem = Some(store_advice::describe(error)),
        }
        if let Err(error) = &summary.last {
            entry.problem.get_or_insert_with(|| store_advice::describe(error));
        }
        entry
    }

    fn about(&self) -> String {
        match &self.problem {
            None => {
                let first: String = self
                    .task
                    .trim()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take(4 * MAX_TASK_COLUMNS)
                    .collect();
                fit(&sanitize::line(&first), MAX_TASK_COLUMNS)
            }
            Some(problem) => sanitize::line(problem),
        }
    }

    fn short_id(&self, length: usize) -> String {
        let id = self.id.as_str();
        let (root, path) = id.find('.').map_or((id, ""), |dot| id.split_at(dot));
        format!("{}{path}", root.get(..length).unwrap_or(root))
    }

    fn json(&self) -> Value {
        let mut entry = json!({
            "session_id": self.id,
            "at": self.at,
            "state": state_name(self.state),
            "agent": self.agent,
            "agents": self.agents,
            "turns": self.spent.turns,
            "tokens": self.spent.usage.total(),
            "cost_usd": units::dollars_as_f64(self.spent.usd),
            "task": self.task,
            "found": self.found,
            "problem": self.problem,
        });
        if self.spent.unpriced > 0 {
            entry["cost_unknown"] = json!(true);
        }
        entry
    }
}

impl Listing {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sessions as JSON.
    pub(super) fn json(&self) -> Vec<Value> {
        self.entries.iter().map(SessionEntry::json).collect()
    }

    /// Sessions as a table of at most this width. If the width is unlimited, ids are complete.
    pub(super) fn text(&self, max_columns: usize) -> String {
        let entries = &self.entries;
        let id_length = if max_columns == usize::MAX { usize::MAX } else { self.id_length };
        let now = clock::now();
        let column = |cell: &dyn Fn(&SessionEntry) -> String| entries.iter().map(cell).collect::<Vec<_>>();
        let columns = [
            Column::text("id", column(&|entry| entry.short_id(id_length))),
            Column::number(
                "age",
                column(&|entry| {
                    entry.at.map(|at| units::format_age(now.saturating_sub(at))).unwrap_or_default()
                }),
            ),
            Column::text("state", column(&|entry| state_name(entry.state))),
            Column::text("agent", column(&|entry| fit(&sanitize::line(&entry.agent), MAX_AGENT_COLUMNS)))
                .droppable(3),
            Column::number("agents", column(&|entry| entry.agents.to_string())).droppable(2),
            Column::number("turns", column(&|entry| entry.spent.turns.to_string())).droppable(1),
            Column::number("cost", column(&|entry| units::brief_cost(&entry.spent))).droppable(4),
            Column::text("task", column(&|entry| entry.about())),
        ];
        let found: Vec<Option<String>> = entries.iter().map(|entry| entry.found.clone()).collect();
        table(&columns, &found, max_columns)
    }

    /// Note about the list, if one is useful.
    pub(super) fn remark(&self, list: &SessionsList) -> Option<String> {
        let is_filtered =
            !list.text.is_empty() || !list.status.is_empty() || list.agent.is_some() || list.since.is_some();
        let shown = self.entries.len();
        match (self.all, shown) {
            (0, _) => {
                Some("No sessions yet. Start one with: brigade run \"TASK\", or try: brigade demo".to_owned())
            }
            (all, 0) => Some(format!("No match in {}. {}", units::count(all, "session"), widen_hint(list))),
            (_, shown) if self.has_more && is_filtered => Some(format!(
                "Showing {shown} of the matching sessions, newest first. Use --all to show all."
            )),
            (all, shown) if self.has_more => {
                Some(format!("Showing {shown} of {all} sessions, newest first. Use --all to show all."))
            }
            _ => None,
        }
    }
}

/// Hint that lists the ways to widen the search.
fn widen_hint(list: &SessionsList) -> String {
    let mut ways = Vec::new();
    if !list.text.is_empty() {
        ways.push("use a shorter search text");
    }
    if !list.status.is_empty() {
        ways.push("omit --status");
    }
    if list.agent.is_some() {
        ways.push("omit --agent");
    }
    if list.since.is_some() {
        ways.push("use an earlier --since");
    }
    format!("To find more, {}.", ways.join(", or "))
}
