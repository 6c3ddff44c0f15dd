//! `brigade tools login` and `logout`.

use std::time::Duration;

use brigade::mcp::DEFAULT_START_TIMEOUT;
use brigade::mcp::oauth::{LoginError, LoginFlow, logout as forget};

use crate::error::{CliError, Exit};
use crate::output;
use crate::sanitize;
use crate::settings::Settings;
use crate::setup;

/// Time limit for the login in the browser.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(600);

/// Logs in to a server.
pub(super) fn login(settings: &Settings, server: &str) -> Result<Exit, CliError> {
    let address = settings.mcp_address(server, &setup::guard_command()?)?;
    let shown = sanitize::line(server);
    let failed =
        |error: LoginError| CliError::failed(sanitize::line(&format!("cannot log in to {server}: {error}")));
    setup::current_thread_runtime()?.block_on(async {
        let started = tokio::time::timeout(DEFAULT_START_TIMEOUT, LoginFlow::begin(&address)).await;
        let late = || format!("cannot log in to {shown}: no response within {} seconds. Check its `url`, or try again.", DEFAULT_START_TIMEOUT.as_secs());
        let attempt = started.map_err(|_| CliError::failed(late()))?.map_err(failed)?;
        output::note(&format!("Open this URL in a browser to log in to {shown}:"));
        output::note("");
        output::note(&format!("  {}", sanitize::line(attempt.url())));
        output::note("");
        match tokio::time::timeout(LOGIN_TIMEOUT, attempt.finish()).await {
            Ok(done) => done.map_err(failed)?,
            Err(_) => {
                let minutes = LOGIN_TIMEOUT.as_secs() / 60;
                return Err(CliError::failed(format!(
                    "cannot log in to {shown}: the login was not completed within {minutes} minutes. Try again."
                )));
            }
        }
        output::text(&format!("Logged in to {shown}."))?;
        Ok(Exit::Done)
    })
}

/// Removes a stored login.
pub(super) fn logout(settings: &Settings, server: &str) -> Result<Exit, CliError> {
    let address = settings.mcp_address(server, &setup::guard_command()?)?;
    let was_logged_in = setup::current_thread_runtime()?.block_on(forget(&address));
    let was_logged_in = was_logged_in.map_err(|error| CliError::failed(error.to_string()))?;
    let shown = sanitize::line(server);
    output::text(&match was_logged_in {
        true => format!("Logged out of {shown}."),
        false => format!("Not logged in to {shown}."),
    })?;
    Ok(Exit::Done)
}
