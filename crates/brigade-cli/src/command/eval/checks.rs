//! Checks of a run: its status, its delegation and its result. Each is decided by code, from the log and the files.

use std::collections::BTreeMap;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use brigade_core::delegation_styles::delegate;
use brigade_core::view::Node;
use brigade_sandbox::{Confinement, ExitReason, Job, JobResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::corpus::{EvalTask, Expectation};
use crate::error::CliError;
use crate::follow::RunView;
use crate::render::truncate_at_word;
use crate::sanitize;
use crate::settings::Settings;
use crate::setup;

const SCRIPT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_SCRIPT_OUTPUT_BYTES: usize = 4096;
/// A larger file is not the result of any task.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Columns of an answer, a file or an output in a report.
const MAX_FOUND_COLUMNS: usize = 160;
/// Number of changed files in a report.
const MAX_SHOWN_CHANGES: usize = 5;

/// Check of a result, as `task.toml` has it. Texts are compared without regard to case.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Check {
    /// The answer is not empty.
    Answer,
    /// The answer contains these texts.
    AnswerContains { text: Vec<String> },
    /// A file contains these texts.
    FileContains { file: String, text: Vec<String> },
    /// A file contains these texts, each after the one before.
    FileContainsInOrder { file: String, text: Vec<String> },
    /// A file exists and contains none of these texts.
    FileLacks { file: String, text: Vec<String> },
    /// A file contains exactly this text, apart from blanks around it.
    FileEquals { file: String, text: String },
    /// A file contains this JSON value, in any layout.
    JsonEquals { file: String, json: String },
    /// A script of the project, restored from the corpus, exits with 0.
    Script { file: String },
    /// All files of the project are as they were, and there are no others, except for these.
    Unchanged {
        #[serde(default)]
        except: Vec<String>,
    },
    /// Sub-agents with this role were started.
    Role {
        role: String,
        #[serde(default = "one")]
        at_least: usize,
    },
    /// The task of a sub-agent with this role contains these texts.
    Briefed { role: String, text: Vec<String> },
}

fn one() -> usize {
    1
}

/// Result of a check.
#[derive(Debug, Serialize)]
pub(super) struct CheckResult {
    pub(super) name: String,
    pub(super) passed: bool,
    /// Expected and found values, if the check failed.
    pub(super) detail: String,
}

/// A run that has ended, as the checks see it.
pub(super) struct Evidence<'a> {
    pub(super) task: &'a EvalTask,
    pub(super) settings: &'a Settings,
    pub(super) view: &'a RunView,
    pub(super) status: &'a str,
    /// Limit or cause of a status other than `done`.
    pub(super) reason: String,
    pub(super) answer: &'a str,
}

/// Expected and found values of a failed check.
struct Mismatch {
    expected: String,
    found: String,
}

impl Mismatch {
    fn new(expected: impl Into<String>, found: impl Into<String>) -> Mismatch {
        Mismatch { expected: expected.into(), found: found.into() }
    }
}

impl Evidence<'_> {
    /// Runs all checks of the task.
    pub(super) async fn check_all(&self) -> Result<Vec<CheckResult>, CliError> {
        let mut results = vec![
            result("status".to_owned(), self.check_status()),
            result("delegation".to_owned(), self.check_delegation()),
        ];
        for check in &self.task.definition.checks {
            let outcome = match check {
                Check::Script { file } => self.check_script(file).await?,
                other => self.check_now(other),
            };
            results.push(result(check.name(), outcome));
        }
        Ok(results)
    }

    fn check_status(&self) -> Result<(), Mismatch> {
        let expected = self.task.definition.status.as_str();
        let Evidence { status, reason, .. } = self;
        let found = if reason.is_empty() { (*status).to_owned() } else { format!("{status}: {reason}") };
        require(*status == expected, expected, found)
    }

    fn check_delegation(&self) -> Result<(), Mismatch> {
        let count = self.sub_agents().count();
        let found = if count == 0 { "none".to_owned() } else { count.to_string() };
        match self.task.definition.delegation {
            Expectation::Either => Ok(()),
            Expectation::Should => require(count > 0, "at least one sub-agent", found),
            Expectation::ShouldNot => require(count == 0, "no sub-agent", found),
        }
    }

    /// Checks that need no process.
    fn check_now(&self, check: &Check) -> Result<(), Mismatch> {
        match check {
            Check::Answer => require(!self.answer.trim().is_empty(), "an answer", "an empty answer"),
            Check::AnswerContains { text } => contains(self.answer, text, "the answer"),
            Check::FileContains { file, text } => contains(&self.read(file)?, text, file),
            Check::FileContainsInOrder { file, text } => in_order(&self.read(file)?, text),
            Check::FileLacks { file, text } => lacks(&self.read(file)?, text),
            Check::FileEquals { file, text } => {
                let found = self.read(file)?;
                require(found.trim() == text.trim(), format!("`{}`", text.trim()), quoted(&found))
            }
            Check::JsonEquals { file, json } => json_equals(&self.read(file)?, json),
            Check::Unchanged { except } => self.check_unchanged(except),
            Check::Role { role, at_least } => {
                let count = self.with_role(role).count();
                let found = self.sub_agents().map(|node| sanitize::line(&node.label)).collect::<Vec<_>>();
                let found = if found.is_empty() { "no sub-agent".to_owned() } else { found.join(", ") };
                let noun = if *at_least == 1 { "sub-agent" } else { "sub-agents" };
                require(count >= *at_least, format!("at least {at_least} {noun} with the role {role}"), found)
            }
            Check::Briefed { role, text } => {
                let tasks: Vec<&str> = self.with_role(role).map(|node| node.task.as_str()).collect();
                if tasks.iter().any(|task| contains(task, text, "").is_ok()) {
                    return Ok(());
                }
                let expected = format!("{} in the task of {role}", text_list(text));
                Err(Mismatch::new(
                    expected,
                    tasks.first().map_or("no such task".to_owned(), |task| quoted(task)),
                ))
            }
            Check::Script { .. } => Ok(()),
        }
    }

    fn sub_agents(&self) -> impl Iterator<Item = &Node> {
        self.view.tree.walk(&self.view.root).into_iter().skip(1)
    }

    fn with_role(&self, role: &str) -> impl Iterator<Item = &Node> {
        self.sub_agents().filter(move |node| delegate::fold(&node.label) == delegate::fold(role))
    }

    fn read(&self, file: &str) -> Result<String, Mismatch> {
        read_text(&self.settings.folder.join(file))
            .map_err(|problem| Mismatch::new(format!("the file {file}"), problem))
    }

    /// Compares the folder with the corpus. Files that a check names are not compared.
    fn check_unchanged(&self, except: &[String]) -> Result<(), Mismatch> {
        let mut files = BTreeMap::new();
        collect_files(&self.settings.folder, "", &mut files);
        let mut changes: Vec<String> = Vec::new();
        for (name, content) in self.task.project {
            match files.remove(*name) {
                Some(Some(found)) if found == content.as_bytes() => {}
                Some(_) => changes.push(format!("{name} changed")),
                None => changes.push(format!("{name} removed")),
            }
        }
        changes.extend(files.keys().map(|name| format!("{} added", sanitize::line(name))));
        changes.retain(|change| !except.iter().any(|file| change.starts_with(&format!("{file} "))));
        let more = changes.len().saturating_sub(MAX_SHOWN_CHANGES);
        changes.truncate(MAX_SHOWN_CHANGES);
        if more > 0 {
            changes.push(format!("{more} more"));
        }
        require(changes.is_empty(), "no change", changes.join(", "))
    }

    async fn check_script(&self, file: &str) -> Result<Result<(), Mismatch>, CliError> {
        let folder = &self.settings.folder;
        if let Err(error) = self.task.restore(folder, file) {
            return Err(CliError::failed(format!("cannot restore {file} in {}: {error}", folder.display())));
        }
        let tag = format!("eval:{}", std::process::id());
        let job = Job::new(format!("sh {file}"), folder, tag, Confinement::None)
            .environment(self.settings.command_environment())
            .time_limit(SCRIPT_TIMEOUT)
            .output_limit(MAX_SCRIPT_OUTPUT_BYTES);
        let finished = brigade_sandbox::run(&setup::guard_command()?, job, pending()).await;
        let finished =
            finished.map_err(|error| CliError::failed(format!("cannot run the check {file}: {error}")))?;
        Ok(require(finished.end == ExitReason::Exited(0), "exit code 0", ending(&finished)))
    }
}

impl Check {
    /// Name in reports.
    fn name(&self) -> String {
        match self {
            Check::Answer => "answer".to_owned(),
            Check::AnswerContains { .. } => "answer_contains".to_owned(),
            Check::FileContains { file, .. } => format!("file_contains {file}"),
            Check::FileContainsInOrder { file, .. } => format!("file_contains_in_order {file}"),
            Check::FileLacks { file, .. } => format!("file_lacks {file}"),
            Check::FileEquals { file, .. } => format!("file_equals {file}"),
            Check::JsonEquals { file, .. } => format!("json_equals {file}"),
            Check::Script { file } => format!("script {file}"),
            Check::Unchanged { .. } => "unchanged".to_owned(),
            Check::Role { role, .. } => format!("role {role}"),
            Check::Briefed { role, .. } => format!("briefed {role}"),
        }
    }
}

fn result(name: String, outcome: Result<(), Mismatch>) -> CheckResult {
    let detail = outcome
        .as_ref()
        .err()
        .map(|mismatch| format!("expected {}; found {}", mismatch.expected, sanitize::line(&mismatch.found)));
    CheckResult { name, passed: outcome.is_ok(), detail: detail.unwrap_or_default() }
}

fn require(holds: bool, expected: impl Into<String>, found: impl Into<String>) -> Result<(), Mismatch> {
    if holds { Ok(()) } else { Err(Mismatch::new(expected, found)) }
}

fn contains(found: &str, texts: &[String], place: &str) -> Result<(), Mismatch> {
    let lower = found.to_lowercase();
    let missing: Vec<String> =
        texts.iter().filter(|text| !lower.contains(&text.to_lowercase())).cloned().collect();
    require(missing.is_empty(), format!("{} in {place}", text_list(&missing)), quoted(found))
}

fn lacks(found: &str, texts: &[String]) -> Result<(), Mismatch> {
    let lower = found.to_lowercase();
    let unwanted: Vec<String> =
        texts.iter().filter(|text| lower.contains(&text.to_lowercase())).cloned().collect();
    require(unwanted.is_empty(), format!("no {}", text_list(&unwanted)), quoted(found))
}

fn in_order(found: &str, texts: &[String]) -> Result<(), Mismatch> {
    let lower = found.to_lowercase();
    let mut rest = lower.as_str();
    for text in texts {
        let wanted = text.to_lowercase();
        let Some(at) = rest.find(&wanted) else {
            return Err(Mismatch::new(format!("{} in this order", text_list(texts)), quoted(found)));
        };
        rest = &rest[at + wanted.len()..];
    }
    Ok(())
}

fn json_equals(found: &str, json: &str) -> Result<(), Mismatch> {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    let expected = parsed(json);
    let shown = expected.as_ref().map_or_else(|| json.to_owned(), Value::to_string);
    require(expected.is_some() && parsed(found) == expected, shown, quoted(found))
}

fn text_list(texts: &[String]) -> String {
    texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ")
}

/// Beginning of a text, on one line.
fn quoted(text: &str) -> String {
    match text.trim() {
        "" => "nothing".to_owned(),
        text => format!("`{}`", truncate_at_word(&sanitize::line(text), MAX_FOUND_COLUMNS)),
    }
}

fn ending(finished: &JobResult) -> String {
    let end = match finished.end {
        ExitReason::Exited(code) => format!("exit code {code}"),
        ExitReason::Signalled(signal) => format!("termination by signal {signal}"),
        ExitReason::TimedOut => format!("a timeout after {} seconds", SCRIPT_TIMEOUT.as_secs()),
        ExitReason::Cancelled => "a cancellation".to_owned(),
        ExitReason::OverLimit(limit) => format!("a kill: {limit}"),
    };
    match String::from_utf8_lossy(&finished.output).trim() {
        "" => end,
        output => format!("{end}, {}", quoted(output)),
    }
}

/// Content of a regular file.
fn read_text(file: &Path) -> Result<String, String> {
    match std::fs::symlink_metadata(file) {
        Ok(entry) if !entry.is_file() => Err("not a regular file".to_owned()),
        Ok(entry) if entry.len() > MAX_FILE_BYTES => {
            Err(format!("{} bytes, too large to check", entry.len()))
        }
        Ok(_) => std::fs::read(file)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err("no such file".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Files below a folder by their relative path. An entry that is not a regular file has no content.
fn collect_files(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Option<Vec<u8>>>) {
    // A folder that cannot be read counts as empty, so its files count as removed.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect_files(&entry.path(), &format!("{name}/"), files),
            Ok(kind) if kind.is_file() => {
                files.insert(name, std::fs::read(entry.path()).ok());
            }
            _ => {
                files.insert(name, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn failure(outcome: Result<(), Mismatch>) -> String {
        result("check".to_owned(), outcome).detail
    }

    #[test]
    fn contains_ignores_case_and_names_what_is_missing() {
        assert!(contains("It is LUMEN", &texts(&["lumen"]), "a.md").is_ok());
        let detail = failure(contains("one\nline", &texts(&["one", "two"]), "a.md"));
        assert_eq!(detail, "expected `two` in a.md; found `one line`");
        assert_eq!(
            failure(contains(" ", &texts(&["two"]), "the answer")),
            "expected `two` in the answer; found nothing"
        );
    }

    #[test]
    fn in_order_refuses_another_order() {
        assert!(in_order("a 1, b 2", &texts(&["A", "1", "B", "2"])).is_ok());
        assert!(in_order("b 2, a 1", &texts(&["a", "b"])).is_err());
        assert!(in_order("aa", &texts(&["aa", "a"])).is_err(), "a text counts once");
    }

    #[test]
    fn json_equals_ignores_the_layout_only() {
        assert!(json_equals("{ \"b\": null,\n\"a\": 1 }", r#"{"a": 1, "b": null}"#).is_ok());
        for wrong in ["", "{", r#"{"a": 1}"#, r#"{"a": "1", "b": null}"#, r#"{"a": 1, "b": null, "c": 1}"#] {
            assert!(json_equals(wrong, r#"{"a": 1, "b": null}"#).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lacks_names_the_unwanted_text() {
        assert!(lacks("Lumen 4.2", &texts(&["kestrel"])).is_ok());
        assert_eq!(failure(lacks("Kestrel", &texts(&["kestrel"]))), "expected no `kestrel`; found `Kestrel`");
    }

    #[test]
    fn read_text_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_text(&file), Ok("x".to_owned()));
        assert_eq!(read_text(&link), Err("not a regular file".to_owned()));
        assert_eq!(read_text(&folder.path().join("c")), Err("no such file".to_owned()));
    }
}
