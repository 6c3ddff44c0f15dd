//! `brigade agents lint`: what becomes of each key.

use std::path::PathBuf;

use brigade::agents::{self, Class, Note, Problem, Report};
use serde_json::{Value, json};

use super::shown;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::render::pad;
use crate::safe;
use crate::settings::{Settings, agent_places};

/// Runs it.
pub(super) fn run(settings: &Settings, paths: &[PathBuf], is_text: bool) -> Result<Exit, Failure> {
    let mut reports = Vec::new();
    let mut problems = Vec::new();
    for path in places(settings, paths)? {
        let (of_path, wrong) = agents::lint(&path);
        reports.extend(of_path);
        problems.extend(wrong);
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

/// What was named, or else every place; looking at the files of a project needs no trust.
fn places(settings: &Settings, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    if paths.is_empty() {
        let folders = &settings.agent_folders;
        let mut all = agent_places(folders, Some(&settings.folder), &folders.paths);
        all.retain(|place| place.is_dir());
        return Ok(all);
    }
    for path in paths {
        if let Err(error) = path.symlink_metadata() {
            return Err(Failure::usage(format!("{} cannot be read: {error}", path.display())));
        }
    }
    Ok(paths.iter().map(|path| settings.environment.absolute(path).components().collect()).collect())
}

fn text(reports: &[Report], problems: &[Problem], refused: usize) -> String {
    let mut text = String::new();
    for report in reports {
        let (what, notes) = match &report.outcome {
            Ok(definition) => (definition.agent.id.as_str(), &definition.notes),
            Err(refusal) => ("refused", &refusal.notes),
        };
        text.push_str(&format!("{}: {what} ({})\n", shown(&report.file), report.format.word()));
        text.push_str(&lines(notes));
        if let Err(refusal) = &report.outcome
            && !notes.iter().any(|note| note.class == Class::Refused)
        {
            let place = refusal.problem.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            text.push_str(&line(Class::Refused, &format!("{place}{}", refusal.problem.cause)));
        }
    }
    for problem in problems {
        text.push_str(&format!("{}\n", safe::line(&problem.to_string())));
    }
    let count =
        |number: usize, thing: &str| format!("{number} {thing}{}", if number == 1 { "" } else { "s" });
    text.push_str(&format!(
        "{}: {} can be used, {refused} refused",
        count(reports.len(), "file"),
        reports.len() - refused
    ));
    if !problems.is_empty() {
        text.push_str(&format!(", {}", count(problems.len(), "other problem")));
    }
    text.push('\n');
    text
}

/// The notes of a file, each class apart; keys that are simply in force share a line.
pub(super) fn lines(notes: &[Note]) -> String {
    let mut text = String::new();
    let plain = |note: &&Note| note.class == Class::Honoured && note.text.is_empty();
    let simple: Vec<&str> = notes.iter().filter(plain).map(|note| note.key.as_str()).collect();
    if !simple.is_empty() {
        text.push_str(&line(Class::Honoured, &simple.join(", ")));
    }
    for class in [Class::Honoured, Class::Translated, Class::Ignored, Class::Refused] {
        for note in notes.iter().filter(|note| note.class == class && !plain(note)) {
            let place = note.line.map(|line| format!(" (line {line})")).unwrap_or_default();
            text.push_str(&line(class, &format!("{}{place}: {}", note.key, note.text)));
        }
    }
    text
}

fn line(class: Class, text: &str) -> String {
    format!("  {} {}\n", pad(class.word(), 10), safe::line(text))
}

fn entry(report: &Report) -> Value {
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
