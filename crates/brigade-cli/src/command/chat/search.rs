//! A search in what was typed before.

use super::history::History;
use crate::safe;

/// A search: the words that are looked for, and the entry that has them.
#[derive(Debug)]
pub(super) struct Search {
    words: String,
    found: Option<usize>,
    /// What was typed before the search.
    draft: String,
}

impl Search {
    pub(super) fn new(draft: &str) -> Search {
        Search { words: String::new(), found: None, draft: draft.to_owned() }
    }

    /// What was typed before the search.
    pub(super) fn draft(&self) -> &str {
        &self.draft
    }

    /// Looks for more words. Returns the entry to show.
    pub(super) fn extend(&mut self, words: &str, history: &History) -> String {
        self.words.push_str(words);
        self.again(history)
    }

    /// Looks for one character less.
    pub(super) fn shorten(&mut self, history: &History) -> String {
        self.words.pop();
        self.again(history)
    }

    /// The next older entry with the same words, or none if there is none.
    pub(super) fn older(&mut self, history: &History) -> Option<String> {
        if self.words.is_empty() {
            return None;
        }
        let (at, entry) = history.find(&self.words, self.found)?;
        self.found = Some(at);
        Some(entry.to_owned())
    }

    /// The words beside the entry.
    pub(super) fn notice(&self) -> String {
        let words = safe::line(&self.words);
        match (words.is_empty(), self.found) {
            (true, _) => "Search: type words of an earlier message. Ctrl-C cancels.".to_owned(),
            (false, Some(_)) => {
                format!("Search: {words} (Enter sends, Tab edits, Ctrl-R older, Ctrl-C cancels)")
            }
            (false, None) => format!("Search: {words} (nothing found; Ctrl-C cancels)"),
        }
    }

    fn again(&mut self, history: &History) -> String {
        let found = history.find(&self.words, None).filter(|_| !self.words.is_empty());
        self.found = found.map(|(at, _)| at);
        found.map_or_else(|| self.draft.clone(), |(_, entry)| entry.to_owned())
    }
}
