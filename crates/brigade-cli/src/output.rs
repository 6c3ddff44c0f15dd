//! Output to standard output and standard error.
//!
//! Standard output carries results only. If its reader has closed it, the command ends quietly. Standard error
//! carries everything else; failures to write to it are ignored.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::Value;

use crate::args::OutputFormat;
use crate::error::{CliError, Exit};
use crate::redaction;
use crate::render;
use crate::sanitize;
use crate::terminal;

/// Writes text to standard output unchanged.
pub(crate) fn raw(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    let result = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    result.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::OutputClosed,
        _ => CliError::failed(format!("cannot write to standard output: {error}")),
    })
}

/// Writes sanitized text without secrets to standard output, and ends the line.
pub(crate) fn text(text: &str) -> Result<(), CliError> {
    let mut text = sanitize::lines(&redaction::text(text)).into_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    raw(&text)
}

/// Writes one JSON value on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    raw(&json_line(value)?)
}

/// Reports what a command did: as a note, or as JSON if the user asked for it.
pub(crate) fn note_or_json(format: OutputFormat, text: &str, value: &Value) -> Result<Exit, CliError> {
    match format {
        OutputFormat::Text => note(text),
        OutputFormat::Json | OutputFormat::StreamJson => json(value)?,
    }
    Ok(Exit::Done)
}

/// Serializes a JSON value without secrets as one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CliError::failed(format!("cannot serialize the output as JSON: {error}")))?;
    let mut line = sanitize::json(&redaction::json(&text)).into_owned();
    line.push('\n');
    Ok(line)
}

/// Prints a warning once. A chat reads the same files again whenever a setting changes.
pub(crate) fn warn_once(text: &str) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_new = WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
    if is_new {
        note(&format!("warning: {}", sanitize::line(text)));
    }
}

/// Writes a sanitized line without secrets to standard error, wrapped between words.
pub(crate) fn note(text: &str) {
    let text = redaction::text(text);
    let mut line = render::wrap_text(&sanitize::lines(&text), terminal::stderr_columns());
    line.push('\n');
    write_stderr(&line);
}

/// Writes text that is already safe to standard error, including its control sequences.
pub(crate) fn write_stderr(text: &str) {
    let mut stderr = std::io::stderr().lock();
    // If standard error is closed, there is nowhere to report that.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
