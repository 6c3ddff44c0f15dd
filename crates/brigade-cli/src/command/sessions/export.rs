//! `brigade sessions export`: a tree as lines of JSON, as Markdown or as a page.

use std::io::Write;
use std::path::Path;

use crate::args::{ExportFormat, SessionsExport};
use crate::error::CliError;

/// The format that is meant: what was said, or what the end of the file's name says.
pub(super) fn format(export: &SessionsExport) -> ExportFormat {
    let named = || match file(export)?.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "md" | "markdown" => Some(ExportFormat::Md),
        "html" | "htm" => Some(ExportFormat::Html),
        _ => None,
    };
    export.format.or_else(named).unwrap_or(ExportFormat::Jsonl)
}

/// The file that is meant, if it is one.
pub(super) fn file(export: &SessionsExport) -> Option<&Path> {
    export.output.as_deref().filter(|file| file.as_os_str() != "-")
}

/// Refuses before anything is read what could not be written in the end.
pub(super) fn check(export: &SessionsExport) -> Result<(), CliError> {
    let Some(file) = file(export) else { return Ok(()) };
    let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let known = ["", "jsonl", "ndjson", "json", "txt", "log", "md", "markdown", "html", "htm"];
    if export.format.is_none() && !known.contains(&ending.as_str()) {
        return Err(CliError::usage(format!(
            "{} could be anything: end the name with .html, .md or .jsonl, or say --format",
            file.display()
        )));
    }
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => Err(CliError::usage(format!(
            "{} is no file that could be replaced; for a pipe or a device, leave --output out",
            file.display()
        ))),
        Ok(_) if !export.force => Err(exists(file)),
        _ => Ok(()),
    }
}

/// Writes a file that only its owner can read: it holds all that was said. It is there as a whole or not at all.
pub(super) fn write(file: &Path, text: &str, export: &SessionsExport) -> Result<(), CliError> {
    let unwritable =
        |error: std::io::Error| CliError::failed(format!("{} cannot be written: {error}", file.display()));
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut partial =
        tempfile::Builder::new().prefix(".brigade-export-").tempfile_in(folder).map_err(unwritable)?;
    partial.write_all(text.as_bytes()).and_then(|()| partial.as_file().sync_all()).map_err(unwritable)?;
    let persisted = if export.force { partial.persist(file) } else { partial.persist_noclobber(file) };
    match persisted {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(exists(file)),
        Err(error) => Err(unwritable(error.error)),
    }
}

fn exists(file: &Path) -> CliError {
    CliError::usage(format!("{} is there already; --force replaces it", file.display()))
}
