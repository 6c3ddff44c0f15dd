//! `brigade trust`: shows the files of a project, and trusts them if the user agrees.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use brigade_core::Hash;
use serde_json::{Value, json};

use crate::args::{Global, OutputFormat};
use crate::clock;
use crate::error::{CliError, Exit};
use crate::output;
use crate::render::{fit, pad};
use crate::sanitize;
use crate::settings::{Environment, ProjectConfig};
use crate::summary::shell_quoted;
use crate::terminal;
use crate::trust::instructions::{self, InstructionFile};
use crate::trust::{self, Acceptance, FileContent, ProjectFiles, TrustEntry, TrustStatus, TrustStore};
use crate::units;

/// Trust a project's configuration, agents, skills and instructions
#[derive(Debug, clap::Args)]
pub(crate) struct TrustArgs {
    /// Project directory, or a directory inside it (default: the current directory)
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Trust the project without confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Stop trusting the project
    #[arg(long, conflicts_with = "yes")]
    pub(crate) revoke: bool,
    /// List all trusted projects
    #[arg(long, conflicts_with_all = ["yes", "revoke", "folder"])]
    pub(crate) list: bool,
}

/// Maximum number of files that are shown.
const MAX_SHOWN_FILES: usize = 60;
/// Maximum number of settings lines that are shown.
const MAX_SHOWN_SETTINGS: usize = 200;
const MAX_LINE_COLUMNS: usize = 300;
/// Settings that extend what agents may do. They are shown last, next to the question.
const SENSITIVE_SECTIONS: [&str; 3] = ["mcpServers", "acp", "permissions"];

/// Runs the command.
pub(crate) fn run(global: &Global, trust: &TrustArgs) -> Result<Exit, CliError> {
    let environment = Environment::read()?;
    if trust.list {
        return list(global, &environment);
    }
    let folder = environment.absolute(trust.folder.as_deref().unwrap_or(Path::new(".")));
    if trust.revoke {
        return revoke(global, &environment, &folder);
    }
    let root = trust::find(&environment, &folder).or_else(|| trust::instructions_root(&folder));
    let Some(root) = root else {
        return Err(nothing_to_trust(&folder));
    };
    let record = TrustStore::read(&environment)?;
    let files = ProjectFiles::read(&root)
        .map_err(|problem| CliError::usage(format!("cannot trust {}: {problem}", root.display())))?;
    let instructions = instructions::all(&folder.canonicalize().unwrap_or(folder));
    let found = ProjectContents { config: ProjectConfig::read(&root, &files)?, root, files, instructions };
    if record.hash(&found.root) == Some(found.files.hash()) && found.is_accepted(&record) {
        return found.report(global, "is already trusted and has not changed");
    }
    if trust.yes {
        // With --yes, the user still sees what was trusted.
        if global.output_format == OutputFormat::Text {
            output::note(&found.text());
        }
    } else {
        output::note(&found.text());
        if !terminal::can_prompt() {
            let folder = found.root.display().to_string();
            return Err(CliError::usage(format!(
                "cannot ask for confirmation: there is no terminal. If you trust these files, run: brigade trust --yes {}",
                shell_quoted(&folder)
            )));
        }
        if !confirm()? {
            output::note("Nothing was changed.");
            return Ok(Exit::Cancelled);
        }
    }
    TrustStore::trust(&environment, &found.root, found.files.hash(), found.accepted())?;
    found.report(global, "is trusted, until one of these files changes")
}

fn nothing_to_trust(folder: &Path) -> CliError {
    if !folder.is_dir() {
        return CliError::usage(format!(
            "cannot trust {}: it does not exist or is not a directory.",
            folder.display()
        ));
    }
    CliError::usage(format!(
        "nothing to trust in {} or its parent directories. A project contains a .brigade directory, a .mcp.json or AGENTS.md file, or agents or skills of another tool, such as .claude/agents. Your home directory does not need to be trusted.",
        folder.display()
    ))
}

/// Asks for confirmation. Only an explicit yes counts.
fn confirm() -> Result<bool, CliError> {
    output::write_stderr("Trust these files as they are now? [y/N] ");
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| CliError::failed(format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Files, instructions and settings of a project.
struct ProjectContents {
    root: PathBuf,
    files: ProjectFiles,
    config: Option<ProjectConfig>,
    /// Instruction files by path; none for a file that does not exist.
    instructions: BTreeMap<PathBuf, Option<InstructionFile>>,
}

impl ProjectContents {
    /// Instruction files as they are recorded. A path that is not UTF-8 cannot be recorded.
    fn accepted(&self) -> BTreeMap<String, Option<Hash>> {
        let entry = |(path, file): (&PathBuf, &Option<InstructionFile>)| {
            Some((path.to_str()?.to_owned(), file.as_ref().map(InstructionFile::hash)))
        };
        self.instructions.iter().filter_map(entry).collect()
    }

    /// Whether all instruction files match the record.
    fn is_accepted(&self, record: &TrustStore) -> bool {
        let is_accepted =
            |file: &InstructionFile| record.accepted(&file.path, file.hash()) == Acceptance::Yes;
        self.instructions.values().flatten().all(is_accepted)
    }

    fn text(&self) -> String {
        let mut lines = vec![sanitize::path(&self.root)];
        let files: Vec<String> = self.files.iter().map(|(path, content)| file_line(path, content)).collect();
        let instructions: Vec<&InstructionFile> = self.instructions.values().flatten().collect();
        if files.is_empty() && instructions.is_empty() {
            lines.push("  has no files yet".to_owned());
        } else if !files.is_empty() {
            lines.push("  has these files:".to_owned());
            lines.extend(files.iter().take(MAX_SHOWN_FILES).cloned());
        }
        if files.len() > MAX_SHOWN_FILES {
            lines.push(format!("    … and {} more", files.len() - MAX_SHOWN_FILES));
        }
        if !instructions.is_empty() {
            lines.push("  has these instructions for agents:".to_owned());
            lines.extend(instructions.iter().map(|file| instruction_line(file)));
        }
        if let Some(config) = &self.config {
            let settings = settings(config);
            lines.push("  has these settings:".to_owned());
            let hidden = settings.len().saturating_sub(MAX_SHOWN_SETTINGS);
            if hidden > 0 {
                let (hidden, file) = (units::count(hidden, "line"), sanitize::line(&config.file));
                lines.push(format!("    … {hidden} omitted; see {file}"));
            }
            lines.extend(settings.into_iter().skip(hidden));
        }
        lines.join("\n")
    }

    fn report(&self, global: &Global, message: &str) -> Result<Exit, CliError> {
        let text = format!("{} {message}.", sanitize::path(&self.root));
        let files: Vec<Value> = self.files.iter().map(|(path, content)| file_json(path, content)).collect();
        let json = json!({
                    "type": "trust",
                    "folder": self.root,
                    "status": "trusted",
                    "hash": self.files.hash(),
                    "config_file": self.config.as_ref().map(|config| &config.file),
                    "config": self.config.as_ref().map(|config| &config.table),
                    "files": files,
        "instructions": self.instructions.values().flatten().map(instruction_json).collect::<Vec<_>>(),
        });
        output::note_or_json(global.output_format, &text, &json)
    }
}

fn file_line(path: &Path, content: &FileContent) -> String {
    let path = sanitize::path(path);
    let line = match content {
        FileContent::File(_) => path,
        FileContent::Link(target) => format!("{path} (a link to {}, not followed)", sanitize::path(target)),
        FileContent::Other("unknown") => format!("{path} (a special file, not opened)"),
        FileContent::Other(kind) => format!("{path} (a {kind}, not opened)"),
    };
    format!("    {}", fit(&line, MAX_LINE_COLUMNS))
}

fn instruction_line(file: &InstructionFile) -> String {
    let line = format!("{} ({} bytes)", sanitize::path(&file.path), file.content.len());
    format!("    {}", fit(&line, MAX_LINE_COLUMNS))
}

fn instruction_json(file: &InstructionFile) -> Value {
    json!({ "path": file.path.display().to_string(), "bytes": file.content.len(), "hash": file.hash() })
}

fn file_json(path: &Path, content: &FileContent) -> Value {
    let path = path.display().to_string();
    match content {
        FileContent::File(bytes) => json!({ "path": path, "kind": "file", "bytes": bytes.len() }),
        FileContent::Link(target) => {
            json!({ "path": path, "kind": "link", "target": target.display().to_string() })
        }
        FileContent::Other(kind) => json!({ "path": path, "kind": kind }),
    }
}

/// One line per setting, and one per list item, so that nothing is hidden.
fn settings(config: &ProjectConfig) -> Vec<String> {
    let rank = |key: &str| {
        SENSITIVE_SECTIONS.iter().position(|section| key.starts_with(section)).map_or(0, |at| at + 1)
    };
    let mut values = config.values();
    values.sort_by_key(|(key, _)| rank(key));
    let line = |text: &str| format!("    {}", fit(&sanitize::line(text), MAX_LINE_COLUMNS));
    let mut lines = Vec::new();
    for (key, value) in values {
        match value.as_array() {
            Some(items) if !items.is_empty() => {
                lines.push(line(&format!("{key} =")));
                lines.extend(items.iter().map(|item| format!("  {}", line(&item.to_string()))));
            }
            _ => lines.push(line(&format!("{key} = {value}"))),
        }
    }
    lines
}

fn revoke(global: &Global, environment: &Environment, folder: &Path) -> Result<Exit, CliError> {
    let record = TrustStore::read(environment)?;
    // The folder itself is tried first: its project, or the folder, may no longer exist.
    let exact = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let repository = instructions::git_root(&exact);
    let candidates = [Some(exact), trust::find(environment, folder), repository];
    let Some(root) = candidates.into_iter().flatten().find(|root| record.hash(root).is_some()) else {
        return Err(CliError::usage(format!(
            "{} is not trusted. List trusted projects with: brigade trust --list",
            folder.display()
        )));
    };
    TrustStore::revoke(environment, &root)?;
    let text = format!("{} is no longer trusted.", sanitize::path(&root));
    let json = json!({ "type": "trust", "folder": root, "status": "revoked" });
    output::note_or_json(global.output_format, &text, &json)
}

fn list(global: &Global, environment: &Environment) -> Result<Exit, CliError> {
    let record = TrustStore::read(environment)?;
    let state = |folder: &str, entry: &TrustEntry| match trust::trust_status(&record, Path::new(folder)) {
        TrustStatus::Trusted(_) if entry.has_same_instructions() => "trusted",
        _ if !Path::new(folder).is_dir() => "gone",
        _ => "changed",
    };
    let entries: Vec<_> =
        record.iter().map(|(folder, entry)| (folder, entry, state(folder, entry))).collect();
    if global.output_format != OutputFormat::Text {
        let all: Vec<Value> = entries
            .iter()
            .map(|(folder, entry, state)| {
                json!({ "folder": folder, "status": state, "hash": entry.hash, "at": entry.at })
            })
            .collect();
        output::json(&all)?;
    } else if entries.is_empty() {
        output::note("No trusted projects. Trust one with: brigade trust DIR");
    } else {
        let lines = entries.iter().map(|(folder, entry, state)| {
            let age = units::format_age(clock::now().saturating_sub(entry.at));
            format!("{} {} {}", pad(state, 8), pad(&age, 4), sanitize::line(folder))
        });
        let lines: Vec<String> = lines.collect();
        output::text(&format!("{} {} directory\n{}", pad("state", 8), pad("age", 4), lines.join("\n")))?;
    }
    Ok(Exit::Done)
}
