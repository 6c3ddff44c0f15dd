//! Where the token of a server comes from, and where it is kept.

use std::path::{Path, PathBuf};

use brigade_mcp::http::Token;

use crate::failure::Failure;
use crate::settings::{Environment, Settings};

/// A file with a token, which goes with the server.
pub(super) struct Kept(PathBuf);

impl Kept {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Where it cannot be removed, it is a token of nothing any more.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The token that a variable holds.
pub(super) fn of_variable(environment: &Environment, name: &str) -> Result<Token, Failure> {
    let secret = environment.secret(name).ok_or_else(|| {
        let state = if environment.variable(name).is_some() { "empty" } else { "not set" };
        Failure::usage(format!("{name} is {state}; put the token for clients there"))
    })?;
    Token::new(secret.expose()).map_err(|error| Failure::usage(format!("{name}: {error}")))
}

/// A new token, in a file beside the sessions that only its owner can read.
pub(super) fn made(settings: &Settings, port: u16) -> Result<(Token, Kept), Failure> {
    use std::io::Write;
    let folder = settings.store.parent().unwrap_or(Path::new("."));
    let path = folder.join(format!("mcp-{port}.token"));
    let (token, text) = Token::make().map_err(Failure::failed)?;
    // It is written under another name first: nobody else's file, and never one with wider permissions.
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.persist(&path).map_err(|error| error.error)
    });
    let refused =
        |error| Failure::failed(format!("the token cannot be written to {}: {error}", path.display()));
    written.map_err(refused)?;
    Ok((token, Kept(path)))
}
