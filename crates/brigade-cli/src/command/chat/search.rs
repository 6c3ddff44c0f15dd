//! A search in what was typed before.

use super::history::History;
use crate::sanitize;

/// A search: the words that are looked for, and the entry that has them.
#[derive(Debug)]
pub(super) struct Search {
    query: String,
    found: Option<usize>,
    /// What was typed before the search.
    draft: String,
}

impl Search {
    pub(super) fn new(draft: &str) -> Search {
        Search { query: String::new(), found: None, draft: draft.to_owned() }
    }

    /// What was typed before the search.
    pub(super) fn draft(&self) -> &str {
        &self.draft
    }

    /// Looks for more words. Returns the entry to show.
    pub(super) fn extend(&mut self, query: &str, history: &History) -> String {
        self.query.push_str(query);
        self.search_again(history)
    }

    /// Looks for one character less.
    pub(super) fn shorten(&mut self, history: &History) -> String {
        self.query.pop();
        self.search_again(history)
    }

    /// The next older entry with the same words, or none if there is none.
    pub(super) fn older(&mut self, history: &History) -> Option<String> {
        if self.query.is_empty() {
            return None;
        }
        let (at, entry) = history.find(&self.query, self.found)?;
        self.found = Some(at);
        Some(entry.to_owned())
    }

    /// The words beside the entry.
    pub(super) fn notice(&self) -> String {
        let query = sanitize::line(&self.query);
        match (query.is_empty(), self.found) {
            (true, _) => "Search: type words of an earlier message. Ctrl-C cancels.".to_owned(),
            (false, Some(_)) => {
                format!("Search: {query} (Enter sends, Tab edits, Ctrl-R older, Ctrl-C cancels)")
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
