//! The process of a server, under its guard.

use std::time::Duration;

use brigade::Secret;
use brigade_core::text;
use brigade_sandbox::{End, Finished, Job, ResourceLimits};
use tokio::net::UnixStream;

use super::Server;
use super::fate::Fate;
use super::mask::Mask;
use crate::task::{self, AbortOnDrop};

/// How much of what a program says on standard error is kept.
const ERRORS: usize = 4096;

/// Starts the program. It ends with the task, or when its fate is sealed.
pub(super) fn start(
    server: &Server,
    more: &[String],
    fate: &Fate,
    mask: Mask,
) -> Result<(UnixStream, AbortOnDrop), String> {
    let words = std::iter::once(&server.command).chain(&server.arguments).chain(more);
    let words: Vec<String> = words.map(|word| quoted(word)).collect();
    let exposed = |(name, value): &(String, Secret)| (name.clone(), value.expose().to_owned());
    let job = Job {
        command: format!("exec {}", words.join(" ")),
        directory: server.workspace.clone(),
        environment: server.environment.iter().map(exposed).collect(),
        time_limit: Duration::MAX,
        output_limit: ERRORS,
        limits: ResourceLimits::default(),
        mark: format!("acp:{}", server.name),
    };
    let doomed = fate.clone();
    let (stream, run) =
        brigade_sandbox::serve(server.guard.clone(), job, async move { doomed.sealed().await })
            .map_err(|error| format!("it cannot be started: {error}"))?;
    let ending = fate.clone();
    let process = task::spawn(async move {
        ending.seal(match run.await {
            Ok(finished) => end(&finished, &mask, ending.since_last_message()),
            Err(error) => error.to_string(),
        });
    });
    Ok((stream, process))
}

/// How a process ended, and what it said about it since it was sent its last message: older lines are no cause.
fn end(finished: &Finished, mask: &Mask, since: Option<Duration>) -> String {
    let how = match finished.end {
        End::Exited(127) => "its program was not found".to_owned(),
        End::Exited(code) => format!("it ended with exit code {code}"),
        End::Signalled(signal) => format!("it was ended by signal {signal}"),
        End::TimedOut | End::Cancelled => "it was ended".to_owned(),
    };
    let said = since.map_or(finished.output.as_slice(), |since| finished.output_within(since));
    let said = String::from_utf8_lossy(said);
    let Some(said) = text::complaint(&said) else { return how };
    format!("{how}: {}", mask.short(said))
}

/// A word that a shell takes as it is.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}
