//! `brigade tools login` and `logout`.

use std::time::Duration;

use brigade::mcp::START_TIME;
use brigade::mcp::login::{Attempt, LoginError, logout as forget};

use crate::engine;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::safe;
use crate::settings::Settings;

/// How long a person may take in the browser.
const PATIENCE: Duration = Duration::from_secs(600);

/// Logs in to a server.
pub(super) fn login(settings: &Settings, server: &str) -> Result<Exit, Failure> {
    let address = settings.mcp_address(server, &engine::guard()?)?;
    let shown = safe::line(server);
    let failed = |error: LoginError| Failure::failed(safe::line(&format!("no login to {server}: {error}")));
    engine::one_thread()?.block_on(async {
        let begun = tokio::time::timeout(START_TIME, Attempt::begin(&address)).await;
        let late = || format!("{shown} did not answer within {} seconds", START_TIME.as_secs());
        let attempt = begun.map_err(|_| Failure::failed(late()))?.map_err(failed)?;
        output::note(&format!("Open this address in a browser to log in to {shown}:"));
        output::note("");
        output::note(&format!("  {}", safe::line(attempt.url())));
        output::note("");
        match tokio::time::timeout(PATIENCE, attempt.finish()).await {
            Ok(done) => done.map_err(failed)?,
            Err(_) => {
                let minutes = PATIENCE.as_secs() / 60;
                return Err(Failure::failed(format!("nobody logged in to {shown} within {minutes} minutes")));
            }
        }
        output::text(&format!("You are logged in to {shown}."))?;
        Ok(Exit::Done)
    })
}

/// Forgets a login.
pub(super) fn logout(settings: &Settings, server: &str) -> Result<Exit, Failure> {
    let address = settings.mcp_address(server, &engine::guard()?)?;
    let had = engine::one_thread()?.block_on(forget(&address));
    let had = had.map_err(|error| Failure::failed(error.to_string()))?;
    let shown = safe::line(server);
    output::text(&match had {
        true => format!("The login to {shown} is forgotten."),
        false => format!("There was no login to {shown}."),
    })?;
    Ok(Exit::Done)
}
