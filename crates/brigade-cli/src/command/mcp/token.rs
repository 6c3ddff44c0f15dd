//! Where the token of a server comes from, and where it is kept.

use std::path::{Path, PathBuf};

use brigade_mcp::http::Token;

use crate::error::CliError;
use crate::settings::{Environment, Settings};

/// A file with a token, which goes with the server.
pub(super) struct TokenFile(PathBuf);

impl TokenFile {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // Where it cannot be removed, it is a token of nothing any more.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The token that a variable holds.
pub(super) fn from_variable(environment: &Environment, name: &str) -> Result<Token, CliError> {
    let secret = environment.secret(name).ok_or_else(|| {
        let state = if environment.variable(name).is_some() { "empty" } else { "not set" };
        CliError::usage(format!("{name} is {state}; put the token for clients there"))
    })?;
    Token::new(secret.expose()).map_err(|error| CliError::usage(format!("{name}: {error}")))
}

/// A new token, in a file beside the sessions that only its owner can read.
pub(super) fn generate(settings: &Settings, port: u16) -> Result<(Token, TokenFile), CliError> {
    use std::io::Write;
    let folder = settings.store.parent().unwrap_or(Path::new("."));
    let path = folder.join(format!("mcp-{port}.token"));
    let (token, text) = Token::generate().map_err(CliError::failed)?;
    // It is written under another name first: nobody else's file, and never one with wider permissions.
    let persisted = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.persist(&path).map_err(|error| error.error)
    });
    let refused =
        |error| CliError::failed(format!("the token cannot be written to {}: {error}", path.display()));
    persisted.map_err(refused)?;
    Ok((token, TokenFile(path)))
}
