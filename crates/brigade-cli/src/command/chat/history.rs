//! Input history, in a file that only its owner can read.

use std::fs::{File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::private_files;

/// Maximum number of entries.
const MAX_ENTRIES: usize = 1000;
/// Longer entries are not stored.
const MAX_ENTRY_BYTES: usize = 16 * 1024;
/// Maximum number of bytes that are read from the file.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Entries, oldest first, and the current position.
#[derive(Debug, Default)]
pub(crate) struct History {
    file: Option<PathBuf>,
    entries: Vec<String>,
    /// Current entry, and the draft from before the user moved to it.
    position: Option<(usize, String)>,
}

impl History {
    /// Loads a file. A missing or unreadable file is an empty history.
    pub(crate) fn load(file: PathBuf) -> History {
        let text = read(&file).unwrap_or_default();
        let mut entries: Vec<String> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let count = entries.len();
        entries.drain(..count.saturating_sub(MAX_ENTRIES));
        if count > 2 * MAX_ENTRIES {
            // If the file stays long, it is only slower to read.
            let _ = rewrite(&file, &entries);
        }
        History { file: Some(file), entries, position: None }
    }

    /// Adds an entry, unless it repeats the previous one or begins with a space.
    pub(crate) fn add(&mut self, entry: &str) {
        self.position = None;
        let is_unwanted = entry.trim().is_empty() || entry.starts_with(' ') || entry.len() > MAX_ENTRY_BYTES;
        if is_unwanted || self.entries.last().is_some_and(|last| last == entry) {
            return;
        }
        self.entries.push(entry.to_owned());
        if let Some(file) = &self.file {
            // A history that cannot be written affects only later sessions.
            let _ = append(file, entry);
        }
    }

    /// Entry before the current one. `typed` is kept as the draft.
    pub(crate) fn older(&mut self, typed: &str) -> Option<&str> {
        let (index, typed) = match self.position.take() {
            Some((index, draft)) => (index, draft),
            None => (self.entries.len(), typed.to_owned()),
        };
        let older = index.checked_sub(1);
        if index < self.entries.len() || older.is_some() {
            self.position = Some((older.unwrap_or(index), typed));
        }
        self.entries.get(older?).map(String::as_str)
    }

    /// Entry after the current one; after the newest, the draft.
    pub(crate) fn newer(&mut self) -> Option<String> {
        let (index, typed) = self.position.take()?;
        match self.entries.get(index + 1) {
            Some(entry) => {
                self.position = Some((index + 1, typed));
                Some(entry.clone())
            }
            None => Some(typed),
        }
    }

    /// Newest entry before `before` that contains the query, and its index. Case matters only if the query has capital
    /// letters.
    pub(crate) fn find(&self, query: &str, before: Option<usize>) -> Option<(usize, &str)> {
        let has_capitals = query.chars().any(char::is_uppercase);
        let is_found = |entry: &str| match has_capitals {
            true => entry.contains(query),
            false => entry.to_lowercase().contains(query),
        };
        let until = before.unwrap_or(self.entries.len()).min(self.entries.len());
        let at = self.entries[..until].iter().rposition(|entry| is_found(entry))?;
        Some((at, self.entries[at].as_str()))
    }

    /// Resets the position after the line was edited.
    pub(crate) fn reset_position(&mut self) {
        self.position = None;
    }
}

fn read(file: &PathBuf) -> std::io::Result<String> {
    let mut opened = File::open(file)?;
    let length = opened.metadata()?.len();
    opened.seek(SeekFrom::Start(length.saturating_sub(MAX_FILE_BYTES)))?;
    let mut bytes = Vec::new();
    opened.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn line(entry: &str) -> std::io::Result<String> {
    Ok(serde_json::to_string(entry)? + "\n")
}

fn append(file: &PathBuf, entry: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        private_files::create_directory(folder)?;
    }
    let mut opened = private_files::options().create(true).append(true).open(file)?;
    opened.set_permissions(Permissions::from_mode(0o600))?;
    opened.write_all(line(entry)?.as_bytes())
}

fn rewrite(file: &PathBuf, entries: &[String]) -> std::io::Result<()> {
    let lines: Vec<String> = entries.iter().map(|entry| line(entry)).collect::<Result<_, _>>()?;
    let folder = file.parent().unwrap_or(file);
    // Only the owner can read a temporary file.
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    temporary.write_all(lines.concat().as_bytes())?;
    temporary.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_and_newer_return_to_the_draft() {
        let mut history = History::default();
        assert_eq!(history.older("draft"), None);
        assert_eq!(history.newer(), None);
        history.add("one");
        history.add("two\nlines");
        assert_eq!(history.older("draft"), Some("two\nlines"));
        assert_eq!(history.older("two\nlines"), Some("one"));
        assert_eq!(history.older("one"), None);
        assert_eq!(history.newer().as_deref(), Some("two\nlines"));
        assert_eq!(history.newer().as_deref(), Some("draft"));
        assert_eq!(history.newer(), None);
    }

    #[test]
    fn find_returns_entries_that_contain_the_query() {
        let mut history = History::default();
        ["fix the Tests", "other", "run the tests"].iter().for_each(|entry| history.add(entry));
        assert_eq!(history.find("tests", None), Some((2, "run the tests")));
        assert_eq!(history.find("tests", Some(2)), Some((0, "fix the Tests")));
        assert_eq!(history.find("tests", Some(0)), None);
        assert_eq!(history.find("Tests", None), Some((0, "fix the Tests")));
        assert_eq!(history.find("nothing", None), None);
    }

    #[test]
    fn add_skips_indented_repeated_and_long_entries() {
        let mut history = History::default();
        for entry in ["one", "one", " secret", "", "  ", &"x".repeat(MAX_ENTRY_BYTES + 1)] {
            history.add(entry);
        }
        assert_eq!(history.entries, ["one"]);
    }

    #[test]
    fn history_file_is_private_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/history");
        let mut history = History::load(file.clone());
        history.add("one\n\u{1b}two");
        history.add("three");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(History::load(file).entries, ["one\n\u{1b}two", "three"]);
    }

    #[test]
    fn load_trims_a_long_file_and_skips_invalid_lines() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history");
        let mut text: String = (0..2 * MAX_ENTRIES + 1).map(|n| line(&n.to_string()).unwrap()).collect();
        text.insert_str(0, "half a line\n");
        std::fs::write(&file, &text).unwrap();
        assert_eq!(History::load(file.clone()).entries.len(), MAX_ENTRIES);
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), MAX_ENTRIES);
        let again = History::load(file);
        assert_eq!(again.entries.last(), Some(&(2 * MAX_ENTRIES).to_string()));
    }
}
