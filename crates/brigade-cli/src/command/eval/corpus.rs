//! The tasks of `brigade eval`, which are part of the executable.

use std::path::Path;
use std::time::Duration;

use brigade_core::Limit;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::checks::Check;
use crate::error::CliError;
use crate::units;

/// Files of a task: its definition and its project.
struct Source {
    name: &'static str,
    definition: &'static str,
    project: &'static [(&'static str, &'static str)],
}

/// Embeds the definition and the project of a task.
macro_rules! source {
    ($name:literal, [$($file:literal),* $(,)?]) => {
        Source {
            name: $name,
            definition: include_str!(concat!("../../../eval/", $name, "/task.toml")),
            project: &[
                $(($file, include_str!(concat!("../../../eval/", $name, "/project/", $file)))),*
            ],
        }
    };
}

const SOURCES: [Source; 8] = [
    source!("quick-answer", ["server.ini"]),
    source!(
        "three-services",
        [
            "services/auth/admin.py",
            "services/auth/app.py",
            "services/billing/main.go",
            "services/billing/reports.go",
            "services/search/server.js",
        ]
    ),
    source!("fix-test", ["duration.sh", "test.sh"]),
    source!("read-only-review", ["account.py"]),
    source!(
        "find-invoice",
        [
            "archive/README.txt",
            "archive/deliveries-1.txt",
            "archive/deliveries-2.txt",
            "archive/deliveries-3.txt",
            "archive/deliveries-4.txt",
            "archive/invoices-01.txt",
            "archive/invoices-02.txt",
            "archive/invoices-03.txt",
            "archive/invoices-04.txt",
            "archive/invoices-05.txt",
            "archive/invoices-06.txt",
            "archive/invoices-07.txt",
            "archive/invoices-08.txt",
            "archive/orders-1.txt",
            "archive/orders-2.txt",
            "archive/orders-3.txt",
            "archive/orders-4.txt",
        ]
    ),
    source!("brief-writer", ["changes.txt"]),
    source!("two-writers", ["data/hours.txt", "data/menu.csv"]),
    source!(
        "small-budget",
        [
            "interviews/1-amara.txt",
            "interviews/2-bruno.txt",
            "interviews/3-celine.txt",
            "interviews/4-dmitri.txt",
            "interviews/5-elif.txt",
            "interviews/6-farid.txt",
            "interviews/7-greta.txt",
            "interviews/8-hugo.txt",
        ]
    ),
];

/// Names of all tasks, in the order in which they run.
pub(super) fn task_names() -> [&'static str; SOURCES.len()] {
    std::array::from_fn(|index| SOURCES[index].name)
}

/// Task with its project and its checks.
pub(super) struct EvalTask {
    pub(super) name: &'static str,
    /// Files of the project, with paths relative to its folder.
    pub(super) project: &'static [(&'static str, &'static str)],
    pub(super) definition: Definition,
    pub(super) limits: TaskLimits,
}

/// Content of `task.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Definition {
    pub(super) description: String,
    pub(super) prompt: String,
    pub(super) delegation: Expectation,
    #[serde(default)]
    pub(super) status: ExpectedStatus,
    limits: RawLimits,
    /// Configuration of the run, such as roles.
    #[serde(default)]
    pub(super) config: Table,
    #[serde(rename = "check")]
    pub(super) checks: Vec<Check>,
}

/// Whether the lead is expected to delegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Expectation {
    /// At least one sub-agent.
    Should,
    /// No sub-agent.
    ShouldNot,
    /// Not checked.
    Either,
}

impl Expectation {
    /// Text for tables.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Expectation::Should => "should",
            Expectation::ShouldNot => "should not",
            Expectation::Either => "either",
        }
    }
}

/// Status with which the run is expected to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ExpectedStatus {
    #[default]
    Done,
    Incomplete,
}

impl ExpectedStatus {
    /// Status as reports have it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            ExpectedStatus::Done => "done",
            ExpectedStatus::Incomplete => "incomplete",
        }
    }
}

/// Limits as the file has them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    turns: u32,
    tokens: String,
    usd: Option<String>,
    timeout: String,
    #[serde(default)]
    fixed_tokens: bool,
}

/// Limits of one run of a task.
pub(super) struct TaskLimits {
    pub(super) turns: u32,
    pub(super) timeout: Duration,
    pub(super) tokens: u64,
    /// In nano-dollars. Not used with models whose price is unknown.
    pub(super) usd: Limit,
    /// Whether the token budget is what the task tests, so that the user cannot change it.
    pub(super) has_fixed_tokens: bool,
}

impl RawLimits {
    fn resolve(&self) -> Result<TaskLimits, String> {
        let usd =
            self.usd.as_deref().map(units::parse_dollars).transpose().map_err(|error| error.to_string())?;
        Ok(TaskLimits {
            turns: self.turns,
            timeout: units::parse_duration(&self.timeout).map_err(|error| error.to_string())?,
            tokens: units::parse_count(&self.tokens).map_err(|error| error.to_string())?,
            usd: usd.map_or(Limit::Unlimited, Limit::AtMost),
            has_fixed_tokens: self.fixed_tokens,
        })
    }
}

impl EvalTask {
    fn load(source: &'static Source) -> Result<EvalTask, CliError> {
        let Source { name, definition, project } = *source;
        let wrong = |error: String| CliError::failed(format!("cannot read the task {name}: {error}"));
        let definition: Definition = toml::from_str(definition).map_err(|error| wrong(error.to_string()))?;
        let limits = definition.limits.resolve().map_err(wrong)?;
        Ok(EvalTask { name, project, definition, limits })
    }

    /// Writes the project into a new folder.
    pub(super) fn write_project(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        self.project.iter().try_for_each(|(name, content)| write_file(&folder.join(name), content))
    }

    /// Writes a file of the project again, in place of whatever has its name now.
    pub(super) fn restore(&self, folder: &Path, name: &str) -> std::io::Result<()> {
        let content = self.project.iter().find(|(file, _)| *file == name).map(|(_, content)| *content);
        let content = content.ok_or(std::io::ErrorKind::NotFound)?;
        let file = folder.join(name);
        match std::fs::symlink_metadata(&file) {
            Ok(entry) if entry.is_dir() => std::fs::remove_dir_all(&file)?,
            Ok(_) => std::fs::remove_file(&file)?,
            Err(_) => {}
        }
        write_file(&file, content)
    }
}

fn write_file(file: &Path, content: &str) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(parent) = file.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(file, content)?;
    if file.extension().is_some_and(|end| end == "sh") {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// The tasks with these names, or all of them if there is no name. Repeated names count once.
pub(super) fn select(names: &[String]) -> Result<Vec<EvalTask>, CliError> {
    let is_selected = |source: &&Source| names.is_empty() || names.iter().any(|name| name == source.name);
    SOURCES.iter().filter(is_selected).map(EvalTask::load).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Files below a folder, relative to it.
    fn files(folder: &Path, below: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(below).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(folder, &path, found);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn tables_name_every_file_of_the_eval_folder() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("eval");
        let mut found = BTreeSet::new();
        files(&folder, &folder, &mut found);
        let embedded = SOURCES.iter().flat_map(|source| {
            let project = source.project.iter().map(|(file, _)| format!("{}/project/{file}", source.name));
            project.chain([format!("{}/task.toml", source.name)])
        });
        assert_eq!(embedded.collect::<BTreeSet<_>>(), found);
    }

    #[test]
    fn every_task_has_limits_and_a_check_of_its_result() {
        for task in select(&[]).unwrap() {
            assert!(!task.definition.checks.is_empty(), "{}", task.name);
            assert!(task.limits.tokens <= 400_000 && task.limits.turns <= 30, "{}", task.name);
            assert!(task.limits.has_fixed_tokens || task.limits.usd != Limit::Unlimited, "{}", task.name);
        }
    }

    #[test]
    fn prompts_name_delegation_only_through_roles() {
        for task in select(&[]).unwrap() {
            let prompt = task.definition.prompt.to_lowercase();
            for word in ["delegat", "sub-agent", "subagent", "agent"] {
                assert!(!prompt.contains(word), "{}: {word}", task.name);
            }
        }
    }

    #[test]
    fn restored_file_replaces_links_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let task = select(&["fix-test".to_owned()]).unwrap().remove(0);
        task.write_project(folder.path()).unwrap();
        let (file, other) = (folder.path().join("test.sh"), folder.path().join("other"));
        let original = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&other, "mine").unwrap();
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        task.restore(folder.path(), "test.sh").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), original);
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        task.restore(folder.path(), "test.sh").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), original);
    }
}
