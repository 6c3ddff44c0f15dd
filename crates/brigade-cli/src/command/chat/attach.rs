//! Files that a message names after `@`: completes their paths, and attaches their content.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Component, Path};

use brigade::tool::{FileError, Files};

use crate::sanitize;
use crate::units;

/// Size limit of an attached file. Agents read larger files in parts themselves.
const MAX_ATTACHED_BYTES: u64 = 64 * 1024;
/// Punctuation that ends a sentence rather than a path.
const PUNCTUATION: [char; 8] = [',', '.', ';', ':', '!', '?', ')', '\''];

/// Minimum length of a search text.
const MIN_SEARCH_BYTES: usize = 2;
/// Maximum number of names that a search visits, and of files that it returns.
const MAX_SEARCHED_NAMES: usize = 20_000;
const MAX_FOUND: usize = 20;
/// Folders with generated files.
const BUILD_FOLDERS: [&str; 3] = ["target", "node_modules", "__pycache__"];

/// Message with the content of its files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ComposedMessage {
    pub(super) text: String,
    /// Notes for the user, one per file.
    pub(super) notes: Vec<String>,
}

/// Completion of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// Number of bytes after `@` that it replaces.
    pub(super) typed: usize,
    /// Completed path, as far as it is unambiguous.
    pub(super) whole: String,
    /// Candidates, if there are several.
    pub(super) choices: Vec<String>,
}

/// Adds the content of the files that a message names. A word that is no file stays a word; the user is told if it looks
/// like a path.
pub(super) fn attach(message: &str, files: &Files) -> ComposedMessage {
    let mut attached = ComposedMessage { text: message.to_owned(), notes: Vec::new() };
    let mut known = BTreeSet::new();
    for named in mentions(message) {
        let Some((path, read)) = read(named, files).or_else(|| missing(named, files)) else { continue };
        if !known.insert(path) {
            continue;
        }
        let shown = sanitize::line(path);
        match read {
            Ok(content) => {
                attached.text.push_str(&format!("\n\nFile {path}:\n{}", fenced(&content)));
                let lines = units::count(content.lines().count(), "line");
                attached.notes.push(format!("attached {shown} ({lines})"));
            }
            Err(cause) => attached.notes.push(format!("cannot attach {shown}: {cause}")),
        }
    }
    attached
}

/// Fenced code block. The fence is longer than any in the text.
pub(super) fn fenced(text: &str) -> String {
    let longest = text.lines().map(|line| line.trim_start().chars().take_while(|c| *c == '`').count()).max();
    let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

/// Paths after an `@` at the beginning of a word. A path with spaces is quoted.
fn mentions(message: &str) -> impl Iterator<Item = &str> {
    mention_starts(message).filter_map(|at| {
        let rest = &message[at..];
        match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').map(|(path, _)| path),
            None => rest.split(char::is_whitespace).next(),
        }
    })
}

/// Positions after each `@` that begins a word.
fn mention_starts(text: &str) -> impl Iterator<Item = usize> {
    let begins = |at: usize| text[..at].chars().next_back().is_none_or(|c| c.is_whitespace() || c == '(');
    text.match_indices('@').map(|(at, _)| at).filter(move |at| begins(*at)).map(|at| at + 1)
}

/// File that a mention names, and its content or the error; none if it does not exist.
fn read<'a>(named: &'a str, files: &Files) -> Option<(&'a str, Result<String, String>)> {
    let trimmed = named.trim_end_matches(PUNCTUATION);
    for path in [named, trimmed] {
        let read = match files.read(path, MAX_ATTACHED_BYTES) {
            Ok(content) => String::from_utf8(content).map_err(|_| "it is not UTF-8 text.".to_owned()),
            Err(FileError::NotFound { .. } | FileError::NotAFile { .. } | FileError::BadPath { .. }) => {
                continue;
            }
            Err(FileError::TooLarge { .. }) => {
                Err(format!("it is larger than {} KiB. Ask the agent to read it.", MAX_ATTACHED_BYTES / 1024))
            }
            Err(error) => Err(sanitize::line(&error.to_string())),
        };
        return Some((path, read));
    }
    None
}

/// A path that does not exist, and the cause. None for a word that does not look like a path, such as a user name.
fn missing<'a>(named: &'a str, files: &Files) -> Option<(&'a str, Result<String, String>)> {
    let path = named.trim_end_matches(PUNCTUATION);
    let looks_like_path = path.contains(['.', '/']) || path.contains(char::is_whitespace);
    let is_missing = matches!(files.read(path, MAX_ATTACHED_BYTES), Err(FileError::NotFound { .. }));
    (looks_like_path && is_missing).then(|| (path, Err("it does not exist.".to_owned())))
}

/// Completes the path that is typed at the end of a text, if one is. A name that no file of the folder begins with is
/// looked for below it.
pub(super) fn complete(before: &str, folder: &Path) -> Option<Completion> {
    let typed = &before[mention_starts(before).last()?..];
    let path = typed.strip_prefix('"').unwrap_or(typed);
    let is_quoted = path.len() < typed.len();
    let ends = if is_quoted { path.contains('"') } else { path.contains(char::is_whitespace) };
    let mut parts = Path::new(path).components();
    if ends || !parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return None;
    }
    let (parent, prefix) = path.rsplit_once('/').map_or(("", path), |(parent, prefix)| (parent, prefix));
    let names = list_names(&folder.join(parent), prefix);
    let (whole, choices) = match names.as_slice() {
        [] if parent.is_empty() && prefix.len() >= MIN_SEARCH_BYTES => {
            match search(folder, prefix).as_slice() {
                [] => return None,
                [one] => (one.clone(), Vec::new()),
                several => (path.to_owned(), several.to_vec()),
            }
        }
        [] => return None,
        [one] => (format!("{}{one}", &path[..path.len() - prefix.len()]), Vec::new()),
        several => (format!("{}{}", &path[..path.len() - prefix.len()], common_prefix(several)), names),
    };
    let is_file = choices.is_empty() && !whole.ends_with('/');
    let whole = match (is_quoted || whole.contains(char::is_whitespace), is_file) {
        (false, _) => whole,
        (true, false) => format!("\"{whole}"),
        (true, true) => format!("\"{whole}\""),
    };
    Some(Completion { typed: typed.len(), whole, choices })
}

/// Prefix that all names share.
pub(super) fn common_prefix<T: AsRef<str>>(names: &[T]) -> &str {
    let first = names.first().map_or("", T::as_ref);
    let shared = |name: &T| {
        let same = first.char_indices().zip(name.as_ref().chars()).take_while(|((_, a), b)| a == b);
        same.last().map_or(0, |((at, c), _)| at + c.len_utf8())
    };
    &first[..names.iter().map(shared).min().unwrap_or(0)]
}

/// Files below a folder whose names contain a text, those in upper folders first.
fn search(folder: &Path, letters: &str) -> Vec<String> {
    let letters = letters.to_lowercase();
    let (mut found, mut looked_at) = (Vec::new(), 0);
    let mut folders = VecDeque::from([String::new()]);
    while let Some(parent) = folders.pop_front() {
        for name in list_names(&folder.join(&parent), "") {
            looked_at += 1;
            if looked_at > MAX_SEARCHED_NAMES || found.len() == MAX_FOUND {
                return found;
            }
            let path = format!("{parent}{name}");
            match name.strip_suffix('/') {
                Some(name) if !BUILD_FOLDERS.contains(&name) => folders.push_back(path),
                Some(_) => {}
                None if name.to_lowercase().contains(&letters) => found.push(path),
                None => {}
            }
        }
    }
    found
}

/// Names in a folder with a prefix, sorted. Those of folders end with a slash. Hidden files need a prefix with a dot.
fn list_names(folder: &Path, prefix: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let is_match = name.starts_with(prefix) && (prefix.starts_with('.') || !name.starts_with('.'));
            let is_folder = || entry.file_type().is_ok_and(|kind| kind.is_dir());
            is_match.then(|| if is_folder() { format!("{name}/") } else { name })
        })
        .filter(|name| !name.contains('"') && !name.contains(char::is_control))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brigade::Workspace;
    use brigade_core::permission::{Mode, Permissions};

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in [
            ("notes.txt", "one\ntwo\n"),
            ("novel.md", "```\ncode\n```"),
            (".env", "KEY=secret"),
            ("src/main.rs", "fn main() {}"),
            ("src/my file.txt", "x"),
        ] {
            std::fs::create_dir_all(folder.path().join(path).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(path), content).unwrap();
        }
        std::fs::write(folder.path().join("large"), vec![b'x'; 70_000]).unwrap();
        std::fs::write(folder.path().join("binary"), [0xff, 0xfe]).unwrap();
        folder
    }

    fn attached(message: &str) -> ComposedMessage {
        let folder = folder();
        let permissions = Permissions {
            mode: Mode::Plan,
            deny: vec!["read_file(.env)".parse().unwrap()],
            ..Permissions::default()
        };
        let workspace = Workspace::open(folder.path()).unwrap();
        attach(message, &Files::new(workspace, Arc::new(permissions), [String::new()].into()))
    }

    #[test]
    fn attach_appends_mentioned_files_to_the_message() {
        let message = "Compare @notes.txt, (@src/main.rs) and @notes.txt: @\"src/my file.txt\"!";
        let ComposedMessage { text, notes } = attached(message);
        let files = "\n\nFile notes.txt:\n```\none\ntwo\n```\n\nFile src/main.rs:\n```\nfn main() {}\n```\n\nFile src/my file.txt:\n```\nx\n```";
        assert_eq!(text, format!("{message}{files}"));
        assert_eq!(
            notes,
            [
                "attached notes.txt (2 lines)",
                "attached src/main.rs (1 line)",
                "attached src/my file.txt (1 line)"
            ]
        );
        assert!(attached("@novel.md").text.ends_with("\n````\n```\ncode\n```\n````"), "the fence is longer");
    }

    #[test]
    fn attach_leaves_words_that_are_not_files() {
        for message in ["ask @alice", "me@notes.txt", "@", "@src", "@ notes.txt"] {
            assert_eq!(attached(message), ComposedMessage { text: message.to_owned(), notes: Vec::new() });
        }
    }

    #[test]
    fn attach_reports_files_it_cannot_read() {
        for (message, cause) in [
            ("@large", "64 KiB"),
            ("@binary", "UTF-8"),
            ("@../x", "outside the workspace"),
            ("@.env", "is denied"),
            ("@nofile.txt", "it does not exist."),
            ("see @src/nofile.", "it does not exist."),
            ("@\"no file\"", "it does not exist."),
        ] {
            let ComposedMessage { text, notes } = attached(message);
            assert_eq!(text, message);
            assert!(
                notes.len() == 1 && notes[0].starts_with("cannot attach ") && notes[0].contains(cause),
                "{notes:?}"
            );
        }
    }

    #[test]
    fn complete_extends_mentioned_paths() {
        let folder = folder();
        let whole = |text: &str| {
            complete(text, folder.path()).map(|Completion { typed, whole, choices }| {
                (format!("{}{whole}", &text[..text.len() - typed]), choices)
            })
        };
        let one = |text: &str| Some((text.to_owned(), Vec::new()));
        assert_eq!(whole("see @not"), one("see @notes.txt"));
        assert_eq!(whole("@sr"), one("@src/"));
        assert_eq!(whole("@src/ma"), one("@src/main.rs"));
        assert_eq!(whole("@src/my"), one("@\"src/my file.txt\""));
        assert_eq!(whole("@\"src/my f"), one("@\"src/my file.txt\""));
        assert_eq!(whole("@.e"), one("@.env"));
        let several = vec!["notes.txt".to_owned(), "novel.md".to_owned()];
        assert_eq!(whole("@n"), Some(("@no".to_owned(), several)));
        assert_eq!(whole("@FILE"), one("@\"src/my file.txt\""), "found by name");
        let found = vec!["notes.txt".to_owned(), "src/my file.txt".to_owned()];
        assert_eq!(whole("@txt"), Some(("@txt".to_owned(), found)));
        for text in ["see not", "@nothing", "@../", "@/etc/pass", "a@not", "@notes.txt and", "/tr"] {
            assert_eq!(whole(text), None, "{text}");
        }
    }
}
