//! `brigade agents lint`: reports how each key of agent files is used.

use std::path::PathBuf;

use brigade::agents::{self, AgentProblem, FileReport, KeyNote, KeyStatus};
use serde_json::{Value, json};

use crate::error::{CliError, Exit};
use crate::output;
use crate::render::pad;
use crate::sanitize;
use crate::settings::{Settings, agent_dirs};
use crate::units;

/// Runs the command.
pub(super) fn run(settings: &Settings, paths: &[PathBuf], is_text: bool) -> Result<Exit, CliError> {
    let mut reports = Vec::new();
    let mut problems = Vec::new();
    for path in places(settings, paths)? {
        let (path_reports, path_problems) = agents::lint(&path);
        reports.extend(path_reports);
        problems.extend(path_problems);
    }
    let refused = reports.iter().filter(|report| report.outcome.is_err()).count();
    if is_text {
        output::raw(&text(&reports, &problems, refused))?;
    } else {
        let files: Vec<Value> = reports.iter().map(entry).collect();
        output::json(&json!({ "files": files, "problems": problems, "refused": refused }))?;
    }
    match refused == 0 && problems.is_empty() {
        true => Ok(Exit::Done),
        false => Ok(Exit::Failed),
    }
}

/// Given paths, or all agent folders. Linting the files of a project needs no trust.
fn places(settings: &Settings, paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    if paths.is_empty() {
        let folders = &settings.agent_folders;
        let mut all = agent_dirs(folders, Some(&settings.folder), &folders.paths);
        all.retain(|place| place.is_dir());
        return Ok(all);
    }
    for path in paths {
        if let Err(error) = path.symlink_metadata() {
            return Err(CliError::usage(format!("cannot read {}: {error}", path.display())));
        }
    }
    Ok(paths.iter().map(|path| settings.environment.absolute(path).components().collect()).collect())
}

fn text(reports: &[FileReport], problems: &[AgentProblem], refused: usize) -> String {
    let mut text = String::new();
    for report in reports {
        let (what, notes) = match &report.outcome {
            Ok(definition) => (definition.agent.id.as_str(), &definition.notes),
            Err(refusal) => ("refused", &refusal.notes),
        };
        text.push_str(&format!("{}: {what} ({})\n", sanitize::path(&report.file), report.format.word()));
        text.push_str(&lines(notes));
        if let Err(refusal) = &report.outcome
            && !notes.iter().any(|note| note.status == KeyStatus::Refused)
        {
            let place = refusal.problem.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            text.push_str(&line(KeyStatus::Refused, &format!("{place}{}", refusal.problem.cause)));
        }
    }
    for problem in problems {
        text.push_str(&format!("{}\n", sanitize::line(&problem.to_string())));
    }
    let (files, usable) = (units::count(reports.len(), "file"), reports.len() - refused);
    text.push_str(&format!("{files}: {usable} usable, {refused} refused"));
    if !problems.is_empty() {
        text.push_str(&format!(", {}", units::count(problems.len(), "other problem")));
    }
    text.push('\n');
    text
}

/// Notes about a file, grouped by status. Honoured keys without a remark share a line.
pub(super) fn lines(notes: &[KeyNote]) -> String {
    let mut text = String::new();
    let plain = |note: &&KeyNote| note.status == KeyStatus::Honoured && note.text.is_empty();
    let simple: Vec<&str> = notes.iter().filter(plain).map(|note| note.key.as_str()).collect();
    if !simple.is_empty() {
        text.push_str(&line(KeyStatus::Honoured, &simple.join(", ")));
    }
    for status in [KeyStatus::Honoured, KeyStatus::Translated, KeyStatus::Ignored, KeyStatus::Refused] {
        for note in notes.iter().filter(|note| note.status == status && !plain(note)) {
            let place = note.line.map(|line| format!(" (line {line})")).unwrap_or_default();
            text.push_str(&line(status, &format!("{}{place}: {}", note.key, note.text)));
        }
    }
    text
}

fn line(status: KeyStatus, text: &str) -> String {
    format!("  {} {}\n", pad(status.word(), 10), sanitize::line(text))
}

fn entry(report: &FileReport) -> Value {
    match &report.outcome {
        Ok(definition) => json!({
            "file": report.file,
            "format": report.format,
            "status": "used",
            "id": definition.agent.id,
            "notes": definition.notes,
        }),
        Err(refusal) => json!({
            "file": report.file,
            "format": report.format,
            "status": "refused",
            "line": refusal.problem.line,
            "cause": refusal.problem.cause,
            "notes": refusal.notes,
        }),
    }
}
