//! Text search in the logs of a tree.

use brigade::Store;
use brigade_core::{Delegation, Event, SessionId};

use crate::sanitize;

/// Characters of context on each side of a match.
const CONTEXT_CHARS: usize = 30;

/// Text to search for, ignoring case.
pub(super) struct TextQuery {
    lower: String,
}

impl TextQuery {
    /// Query from the command line, if there is one.
    pub(super) fn new(query: &[String]) -> Option<TextQuery> {
        let lower = query.join(" ").trim().to_lowercase();
        (!lower.is_empty()).then_some(TextQuery { lower })
    }

    /// Match with some context, if the text contains the query.
    pub(super) fn excerpt(&self, text: &str) -> Option<String> {
        let lower = text.to_lowercase();
        let place = lower.find(&self.lower)?;
        // Upper and lower case can differ in length, so the position is approximate. That is sufficient for an
        // excerpt.
        let before = lower[..place].chars().count();
        let whole = self.lower.chars().count();
        let skipped = before.saturating_sub(CONTEXT_CHARS);
        let shown: String =
            text.chars().skip(skipped).take(before - skipped + whole + CONTEXT_CHARS).collect();
        let (left, right) = (
            if skipped > 0 { "…" } else { "" },
            if before + whole + CONTEXT_CHARS < text.chars().count() { "…" } else { "" },
        );
        Some(format!("{left}{}{right}", sanitize::line(&shown)))
    }

    /// First match in a tree. Unreadable sessions are skipped.
    pub(super) async fn find_in_tree(&self, store: &dyn Store, root: &SessionId) -> Option<String> {
        for session in store.sessions(root).await.unwrap_or_default() {
            let Ok((records, _)) = store.read_prefix(&session).await else { continue };
            let found = records.iter().find_map(|record| self.find_in_event(&record.event));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Match in the messages of an event. Provider data and schemas are not searched.
    fn find_in_event(&self, event: &Event) -> Option<String> {
        match event {
            Event::Started { delegation, .. } => self.find_in_delegation(delegation),
            Event::Heard { text, .. } | Event::Said { text, .. } => self.excerpt(text.as_str()),
            Event::Replied { reply, .. } => self.excerpt(reply.text.as_str()).or_else(|| {
                reply.calls.iter().find_map(|call| self.find_in_call(&call.name, call.arguments.as_str()))
            }),
            Event::CallFailed { cause, partial, .. } => {
                let partial = || partial.as_ref().and_then(|text| self.excerpt(text.as_str()));
                self.excerpt(&cause.to_string()).or_else(partial)
            }
            Event::ToolEnded { output, .. } => self.excerpt(output.text.as_str()),
            Event::Asked { what, .. } => self.excerpt(what.as_str()),
            Event::HostAsked { host, .. } => self.excerpt(&host.to_string()),
            Event::Compacted { summary, .. } => self.excerpt(summary.as_str()),
            Event::Ended { outcome, .. } => self.excerpt(outcome.text.as_str()),
            // Tasks and results of children are in their own logs.
            Event::Delegated { .. }
            | Event::Returned { .. }
            | Event::Resumed { .. }
            | Event::Called { .. }
            | Event::ToolStarted { .. }
            | Event::Answered { .. }
            | Event::HostAnswered { .. }
            | Event::LimitReached { .. }
            | Event::CancelAsked { .. } => None,
        }
    }

    fn find_in_delegation(&self, delegation: &Delegation) -> Option<String> {
        let context = delegation.context.as_ref().map(|context| context.as_str());
        [Some(delegation.task.as_str()), context].into_iter().flatten().find_map(|text| self.excerpt(text))
    }

    fn find_in_call(&self, name: &str, arguments: &str) -> Option<String> {
        self.excerpt(name).or_else(|| self.excerpt(arguments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_ignores_case_and_shows_context() {
        let query = |text: &str| TextQuery::new(&[text.to_owned()]);
        assert!(query("  ").is_none());
        let found = |looked: &str, text: &str| query(looked).and_then(|query| query.excerpt(text));
        assert_eq!(found("needle", "a NEEDLE here"), Some("a NEEDLE here".into()));
        assert_eq!(found("größe", "Die GRÖSSE und die GRÖẞE"), Some("Die GRÖSSE und die GRÖẞE".into()));
        assert_eq!(found("needle", "hay"), None);
        let long = format!("{} needle {}", "x".repeat(100), "y".repeat(100));
        let shown = found("needle", &long).unwrap();
        assert!(shown.starts_with("…x") && shown.ends_with("y…") && shown.contains(" needle "), "{shown}");
        assert!(!found("x", "x\u{1b}[2J").unwrap().contains('\u{1b}'));
    }
}
