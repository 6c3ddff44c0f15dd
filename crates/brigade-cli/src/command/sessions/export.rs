//! `brigade sessions export`: a tree as JSON lines, Markdown or HTML.

use std::io::Write;
use std::path::Path;

use crate::args::{ExportFormat, SessionsExport};
use crate::error::{CliError, unwritable};

/// Export format: from the flag, or from the file extension.
pub(super) fn format(export: &SessionsExport) -> ExportFormat {
    let named = || match file(export)?.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "md" | "markdown" => Some(ExportFormat::Md),
        "html" | "htm" => Some(ExportFormat::Html),
        _ => None,
    };
    export.format.or_else(named).unwrap_or(ExportFormat::Jsonl)
}

/// Output file; none for standard output.
pub(super) fn file(export: &SessionsExport) -> Option<&Path> {
    export.output.as_deref().filter(|file| file.as_os_str() != "-")
}

/// Rejects invalid outputs before anything is read.
pub(super) fn check(export: &SessionsExport) -> Result<(), CliError> {
    let Some(file) = file(export) else { return Ok(()) };
    let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    let known = ["", "jsonl", "ndjson", "json", "txt", "log", "md", "markdown", "html", "htm"];
    if export.format.is_none() && !known.contains(&ending.as_str()) {
        return Err(CliError::usage(format!(
            "cannot determine the format from the name {}. Use .html, .md or .jsonl, or pass --format.",
            file.display()
        )));
    }
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => Err(CliError::usage(format!(
            "cannot replace {}: it is not a regular file. Choose another name, or omit --output to write to standard output.",
            file.display()
        ))),
        Ok(_) if !export.force => Err(exists(file)),
        _ => Ok(()),
    }
}

/// Writes the file atomically. Only its owner can read it, because it contains all messages.
pub(super) fn write(file: &Path, text: &str, export: &SessionsExport) -> Result<(), CliError> {
    let unwritable = |error: std::io::Error| unwritable(file, &error);
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
    CliError::usage(format!("{} already exists. Use --force to overwrite it.", file.display()))
}
