//! Token of the HTTP server: read from a variable, or generated.

use std::path::{Path, PathBuf};

use brigade_http::Token;

use crate::error::{CliError, without_temporary_path};
use crate::settings::{Environment, Settings};

/// File with a token, which is removed with the server.
pub(super) struct TokenFile(PathBuf);

impl TokenFile {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // If it cannot be removed, the token is not valid any more anyway.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Token from an environment variable.
pub(super) fn from_variable(environment: &Environment, name: &str) -> Result<Token, CliError> {
    let secret = environment.secret(name).ok_or_else(|| {
        let state = if environment.variable(name).is_some() { "empty" } else { "not set" };
        CliError::usage(format!(
            "cannot use --token-env {name}: the variable is {state}. Set it to the token for clients."
        ))
    })?;
    Token::new(secret.expose()).map_err(|error| CliError::usage(format!("{name}: {error}")))
}

/// Generates a token in a file next to the session store. Only its owner can read the file.
pub(super) fn generate(settings: &Settings, port: u16) -> Result<(Token, TokenFile), CliError> {
    use std::io::Write;
    let folder = settings.store.folder();
    let path = folder.join(format!("mcp-{port}.token"));
    let (token, text) = Token::generate().map_err(CliError::failed)?;
    // It is written under another name first, so that no existing file with wider permissions is used.
    let persisted = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.persist(&path).map_err(|error| error.error)
    });
    let refused = |error| {
        let cause = without_temporary_path(&error);
        CliError::failed(format!("cannot write the token to {}: {cause}", path.display()))
    };
    persisted.map_err(refused)?;
    Ok((token, TokenFile(path)))
}
