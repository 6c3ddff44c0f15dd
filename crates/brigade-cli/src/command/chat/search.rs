//! Search in the input history.

use super::history::History;
use crate::sanitize;

/// Search state: the query, and the matching entry.
#[derive(Debug)]
pub(super) struct Search {
    query: String,
    found: Option<usize>,
    /// Input from before the search.
    draft: String,
}

impl Search {
    pub(super) fn new(draft: &str) -> Search {
        Search { query: String::new(), found: None, draft: draft.to_owned() }
    }

    /// Input from before the search.
    pub(super) fn draft(&self) -> &str {
        &self.draft
    }

    /// Extends the query. Returns the entry to show.
    pub(super) fn extend(&mut self, query: &str, history: &History) -> String {
        self.query.push_str(query);
        self.search_again(history)
    }

    /// Removes one character from the query.
    pub(super) fn shorten(&mut self, history: &History) -> String {
        self.query.pop();
        self.search_again(history)
    }

    /// Next older match, if there is one.
    pub(super) fn older(&mut self, history: &History) -> Option<String> {
        if self.query.is_empty() {
            return None;
        }
        let (at, entry) = history.find(&self.query, self.found)?;
        self.found = Some(at);
        Some(entry.to_owned())
    }

    /// Notice next to the entry.
    pub(super) fn notice(&self) -> String {
        let query = sanitize::line(&self.query);
        match (query.is_empty(), self.found) {
            (true, _) => "Search: type part of an earlier message. Ctrl-C cancels.".to_owned(),
            (false, Some(_)) => {
                format!("Search: {query} (Enter: send, Tab: edit, Ctrl-R: older, Ctrl-C: cancel)")
            }
            (false, None) => format!("Search: {query} (nothing found; Ctrl-C cancels)"),
        }
    }

    fn search_again(&mut self, history: &History) -> String {
        let found = history.find(&self.query, None).filter(|_| !self.query.is_empty());
        self.found = found.map(|(at, _)| at);
        found.map_or_else(|| self.draft.clone(), |(_, entry)| entry.to_owned())
    }
}
