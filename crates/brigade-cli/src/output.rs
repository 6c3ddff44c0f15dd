//! Everything that is printed goes through here.
//!
//! Standard output carries results only, and a reader that has gone ends the command quietly. Standard error carries
//! everything else; nobody has to read it, so its failures are ignored.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::error::CliError;
use crate::render;
use crate::sanitize;
use crate::terminal;

/// Writes bytes to standard output as they are.
pub(crate) fn raw(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    let result = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    result.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::OutputClosed,
        _ => CliError::failed(format!("standard output cannot be written: {error}")),
    })
}

/// Writes text of any origin to standard output, made safe for a terminal, and ends the line.
pub(crate) fn text(text: &str) -> Result<(), CliError> {
    let mut text = sanitize::lines(text).into_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    raw(&text)
}

/// Writes one JSON value on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CliError> {
    raw(&json_line(value)?)
}

/// One JSON value as a line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, CliError> {
    let text = serde_json::to_string(value)
        .map_err(|error| CliError::failed(format!("this cannot be written as JSON: {error}")))?;
    let mut line = sanitize::json(&text).into_owned();
    line.push('\n');
    Ok(line)
}

/// Writes a line to standard error, made safe for a terminal and broken between words.
pub(crate) fn note(text: &str) {
    let mut line = render::wrap_text(&sanitize::lines(text), terminal::stderr_columns());
    line.push('\n');
    write_stderr(&line);
}

/// Writes to standard error what is safe already, with the control sequences that it is meant to have.
pub(crate) fn write_stderr(text: &str) {
    let mut stderr = std::io::stderr().lock();
    // Whoever closed standard error does not want to know.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
