//! Diagnostics of the library, for `BRIGADE_LOG`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, writer::BoxMakeWriter};
use tracing_subscriber::layer::SubscriberExt;

use crate::error::CliError;
use crate::settings::{Environment, LogVariables};

/// Prefix of the targets that are shown. Other libraries log messages and addresses, which may contain secrets.
const TARGET_PREFIX: &str = "brigade";

/// Levels by name, as `BRIGADE_LOG` names them.
const LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Writes diagnostics from now on, if the environment asks for them.
pub(crate) fn install() -> Result<(), CliError> {
    let Some(LogVariables { level, file }) = Environment::log_variables() else { return Ok(()) };
    let Some((_, level)) = LEVELS.iter().find(|(name, _)| level.eq_ignore_ascii_case(name)) else {
        let names: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
        return Err(CliError::usage(format!(
            "cannot use BRIGADE_LOG={level}: unknown log level. Choose one of {}.",
            names.join(", ")
        )));
    };
    let writer = match file {
        Some(path) => BoxMakeWriter::new(Arc::new(open(&path).map_err(|error| {
            let path = path.display();
            CliError::usage(format!(
                "cannot write diagnostics to {path}: {error}. Set BRIGADE_LOG_FILE to another path."
            ))
        })?)),
        None => BoxMakeWriter::new(io::stderr),
    };
    // An error would be reported on standard error, and fail if that is closed.
    let lines = fmt::layer().with_writer(writer).with_ansi(false).log_internal_errors(false);
    let filter = Targets::new().with_target(TARGET_PREFIX, *level);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(filter).with(lines))
        .map_err(|error| CliError::failed(format!("cannot start the diagnostics: {error}")))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
