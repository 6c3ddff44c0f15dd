//! Discovery of skills in folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_base::pinned_files::PinnedFiles;
use brigade_core::Hash;
use brigade_core::permission::Permissions;
use serde::Deserialize;

use super::tool::{SkillTool, explain};
use super::{Skill, Skills};
use crate::{AnyTool, FileError, Files, Workspace};

/// Maximum number of skills that are offered.
pub const MAX_SKILLS: usize = 40;
/// Maximum size of a `SKILL.md`.
pub const MAX_SKILL_BYTES: u64 = 64 * 1024;
const MAX_NAME_BYTES: usize = 64;
/// Maximum number of entries that are read in one folder.
const MAX_ENTRIES: usize = 1_000;
const SKILL_FILE: &str = "SKILL.md";

/// Problem with a skill or a folder of skills.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct SkillProblem {
    /// Path of the file or folder.
    pub path: PathBuf,
    /// Description of the problem and its consequence.
    pub cause: String,
}

impl Skills {
    /// Finds the skills in these folders. If two have the same name, the earlier folder wins.
    pub fn discover(folders: &[PathBuf]) -> (Skills, Vec<SkillProblem>) {
        Skills::discover_pinned(folders, &PinnedFiles::default())
    }

    /// Finds the skills in these folders. Files in pinned directories are used only with their pinned content, now and
    /// when an agent reads them.
    pub fn discover_pinned(folders: &[PathBuf], pinned: &PinnedFiles) -> (Skills, Vec<SkillProblem>) {
        let mut found = BTreeMap::new();
        let mut problems = Vec::new();
        let all: Vec<PathBuf> = folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        let mut searched = BTreeSet::new();
        for folder in folders {
            // One folder may be a link to another one.
            if folder.canonicalize().is_ok_and(|root| !searched.insert(root)) {
                continue;
            }
            scan_folder(folder, &all, pinned, &mut found, &mut problems);
        }
        let left_out: Vec<String> = found.keys().skip(MAX_SKILLS).cloned().collect();
        for name in left_out {
            if let Some(skill) = found.remove(&name) {
                let cause = format!("skipped: the limit is {MAX_SKILLS} skills");
                problems.push(SkillProblem { path: skill.file(), cause });
            }
        }
        (Skills::new(found.into_values().collect()), problems)
    }

    fn new(list: Arc<[Skill]>) -> Skills {
        let tool: Option<Arc<dyn AnyTool>> =
            if list.is_empty() { None } else { Some(Arc::new(SkillTool::new(list.clone()))) };
        Skills { list, tool }
    }
}

impl Skill {
    fn file(&self) -> PathBuf {
        self.files.workspace().root().join(SKILL_FILE)
    }
}

/// Searches one of `all` folders for skills.
fn scan_folder(
    folder: &Path,
    all: &[PathBuf],
    pinned: &PinnedFiles,
    found: &mut BTreeMap<String, Skill>,
    problems: &mut Vec<SkillProblem>,
) {
    let mut problem =
        |path: &Path, cause: String| problems.push(SkillProblem { path: path.to_owned(), cause });
    let opened = Workspace::open(folder).map_err(explain);
    let listed = opened.and_then(|root| Ok((candidate_names(root.root())?, root)));
    let (names, root) = match listed {
        Ok(listed) => listed,
        Err(cause) => return problem(folder, cause),
    };
    if names.len() == MAX_ENTRIES {
        problem(folder, format!("too many entries; only the first {MAX_ENTRIES} were read"));
    }
    for name in names {
        let path = folder.join(&name);
        let skill = match read(&root, all, pinned, &name) {
            Ok(Some(skill)) => skill,
            Ok(None) => continue,
            Err(cause) => {
                problem(&path, format!("skill skipped: {cause}"));
                continue;
            }
        };
        if skill.name != name {
            let other = &skill.name;
            problem(
                &path,
                format!("the skill name `{other}` differs from the directory name; `{other}` is used"),
            );
        }
        match found.get(&skill.name) {
            Some(first) => {
                let first = first.file();
                problem(&path, format!("skill skipped: {} has the same name", first.display()));
            }
            None => drop(found.insert(skill.name.clone(), skill)),
        }
    }
}

/// Returns the names of folders, and of links that may lead to a folder.
fn candidate_names(folder: &Path) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())?.take(MAX_ENTRIES) {
        let entry = entry.map_err(|error| error.to_string())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_file = entry.file_type().is_ok_and(|kind| !kind.is_dir() && !kind.is_symlink());
        if !name.starts_with('.') && !is_file {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Reads one skill. Returns `None` if the folder contains none, or if it links into another of the folders, where
/// the skill is found.
fn read(
    root: &Workspace,
    all: &[PathBuf],
    pinned: &PinnedFiles,
    name: &str,
) -> Result<Option<Skill>, String> {
    let workspace = match Workspace::open(&root.root().join(name)) {
        Ok(workspace) => workspace,
        Err(FileError::NotAFolder { .. }) => return Ok(None),
        Err(error) => return Err(explain(error)),
    };
    if !workspace.root().starts_with(root.root()) {
        if all.iter().any(|other| workspace.root().starts_with(other)) {
            return Ok(None);
        }
        return Err("it is a symbolic link to a directory outside the skills directory".to_owned());
    }
    let files = Files::new(workspace, Arc::new(Permissions::default()), BTreeSet::from([String::new()]));
    let content = match files.read(SKILL_FILE, MAX_SKILL_BYTES) {
        Ok(content) => content,
        Err(FileError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(format!("{SKILL_FILE}: {}", explain(error))),
    };
    pinned
        .check(&files.workspace().root().join(SKILL_FILE), Some(Hash::of(&content)))
        .map_err(|changed| format!("{SKILL_FILE} is not used: {changed}"))?;
    let text = String::from_utf8(content).map_err(|_| format!("{SKILL_FILE} is not UTF-8"))?;
    let (head, body) = parse(&text).map_err(|cause| format!("{SKILL_FILE}: {cause}"))?;
    let pinned = pinned.clone();
    Ok(Some(Skill { name: head.name, description: head.description, body: body.into(), files, pinned }))
}

#[derive(Debug, Deserialize)]
struct Frontmatter {
    name: String,
    description: String,
}

/// Parses a `SKILL.md`.
fn parse(text: &str) -> Result<(Frontmatter, &str), String> {
    let (head, body) = split(text)
        .ok_or("it has no frontmatter. Begin it with `name` and `description` between two `---` lines.")?;
    // The added first line replaces the opening `---`, so that errors have the line number of the file.
    let mut head: Frontmatter = serde_saphyr::from_str(&format!("\n{head}")).map_err(|error| {
        let error = error.to_string();
        let first = error.lines().next().unwrap_or_default();
        first.trim_start_matches("error: ").to_owned()
    })?;
    head.description = head.description.trim().to_owned();
    if !is_name(&head.name) {
        return Err(format!(
            "the name must consist of 1 to {MAX_NAME_BYTES} lowercase letters and digits, with single `-` between them"
        ));
    }
    if head.description.is_empty() {
        return Err("the description is empty".to_owned());
    }
    if body.is_empty() {
        return Err("it has no instructions after the frontmatter".to_owned());
    }
    Ok((head, body))
}

/// Splits a text into the part between the first two `---` lines and the rest.
fn split(text: &str) -> Option<(&str, &str)> {
    let is_rule = |line: &str| line.trim_end() == "---";
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.split_inclusive('\n').next().filter(|line| is_rule(line))?;
    let rest = &text[first.len()..];
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if is_rule(line) {
            return Some((&rest[..end], rest[end + line.len()..].trim()));
        }
        end += line.len();
    }
    None
}

fn is_name(name: &str) -> bool {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    name.len() <= MAX_NAME_BYTES && name.split('-').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn parse_splits_frontmatter_and_body() {
        let text = "---\nname: make-tea\ndescription: >\n  Makes tea,\n  and: serves it.\nlicense: MIT\nmetadata:\n  a: [1]\n\
                    ---\n\n# Tea\n\n---\nBoil.\n";
        let (head, body) = parse(text).unwrap();
        assert_eq!(
            (head.name.as_str(), head.description.as_str()),
            ("make-tea", "Makes tea, and: serves it.")
        );
        assert_eq!(body, "# Tea\n\n---\nBoil.");
        let crlf = "\u{feff}---\r\nname: a\r\ndescription: \"b: c\"\r\n---\r\nbody\r\n";
        let (head, body) = parse(crlf).unwrap();
        assert_eq!((head.name.as_str(), head.description.as_str(), body), ("a", "b: c", "body"));
    }

    #[test]
    fn parse_names_the_cause_of_an_invalid_skill() {
        assert!(problem("# Tea").contains("between two `---` lines"));
        assert!(problem("---\nname: a\ndescription: b\n").contains("between two `---` lines"));
        assert!(problem("---\nname: a\n---\nx").contains("description"));
        assert!(problem("---\nname: a\ndescription: when: then\n---\nx").starts_with("line 3 "));
        assert!(problem("---\nname: a\ndescription: ' '\n---\nx").contains("description is empty"));
        assert!(problem("---\nname: a\ndescription: b\n---\n \n").contains("no instructions"));
        assert!(problem("---\nname: a\nname: b\ndescription: b\n---\nx").contains("name"));
        for name in ["Tea", "a b", "-a", "a-", "a--b", "''", "../a", "\"a\\n\"", &"a".repeat(65)] {
            let text = format!("---\nname: {name}\ndescription: b\n---\nx");
            assert!(parse(&text).is_err(), "{name}");
        }
        let bomb =
            "a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\n"
                .to_owned()
                + "d: &d [*c, *c, *c, *c, *c, *c, *c, *c]\nname: [*d, *d, *d, *d, *d, *d, *d]";
        assert!(parse(&format!("---\n{bomb}\ndescription: b\n---\nx")).is_err());
    }
}
