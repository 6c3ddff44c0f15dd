//! Redaction of secrets in everything that is shown.

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use brigade::mcp::Transport;
use brigade::{Redactor, RunEvent, Secret};
use brigade_core::{Event, Record};
use serde_json::Value;

use crate::settings::{Settings, is_secret_variable};
use crate::setup;

/// Redactor of this process. Output goes to one terminal, whichever settings a part of the command uses.
static REDACTOR: RwLock<Option<Redactor>> = RwLock::new(None);

/// Uses these secrets for all output from now on.
pub(crate) fn set(redactor: Redactor) {
    *REDACTOR.write().unwrap_or_else(PoisonError::into_inner) = Some(redactor);
}

fn redactor() -> Redactor {
    REDACTOR.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

/// Text without secrets.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    redactor().redact(text)
}

/// JSON without secrets.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    redactor().redact_json(text)
}

/// Event without secrets, arguments of calls included. An approval request is redacted when it is rendered, because its
/// effect is computed from the exact arguments.
fn event(event: &Event) -> Cow<'_, Event> {
    if matches!(event, Event::Asked { .. }) {
        return Cow::Borrowed(event);
    }
    match redactor().shown(event) {
        Cow::Borrowed(_) => Cow::Borrowed(event),
        Cow::Owned(shown) => Cow::Owned(shown),
    }
}

/// Removes the secrets from records that are shown.
pub(crate) fn records(records: &mut [Record]) {
    for record in records {
        if let Cow::Owned(shown) = event(&record.event) {
            record.event = shown;
        }
    }
}

/// Event of a stream without secrets. Deltas were redacted when they were sent.
pub(crate) fn run_event(live: RunEvent) -> RunEvent {
    match &live {
        RunEvent::Record(record) => match event(&record.event) {
            Cow::Borrowed(_) => live,
            Cow::Owned(event) => RunEvent::Record(Arc::new(Record { event, ..(**record).clone() })),
        },
        RunEvent::Delta { .. } | RunEvent::Waiting { .. } | RunEvent::Discarded { .. } => live,
    }
}

/// Redactor of the secrets that the configuration and the environment contain.
pub(crate) fn of_settings(settings: &Settings) -> Redactor {
    let mut secrets = settings.environment_secrets();
    secrets.extend(stored_logins(&settings.logins));
    secrets.extend(server_secrets(settings));
    secrets.retain(|secret| secret.is_distinctive() && !is_path(secret.expose()));
    Redactor::default().with_secrets(secrets)
}

/// Whether a value is a path and no secret. Variables such as `GOOGLE_APPLICATION_CREDENTIALS` name a file.
fn is_path(value: &str) -> bool {
    value.starts_with('/') && Path::new(value).parent().is_some_and(Path::is_dir)
}

/// Secrets that MCP servers and external agents are given.
fn server_secrets(settings: &Settings) -> Vec<Secret> {
    let Ok(guard) = setup::guard_command() else { return Vec::new() };
    let mut secrets = Vec::new();
    let is_secret = |(name, value): &(String, Secret)| is_secret_variable(name, value.expose());
    for server in settings.mcp_definitions(&guard).0 {
        match server.transport {
            Transport::Stdio(program) => {
                secrets.extend(program.environment.into_iter().filter(is_secret).map(|(_, value)| value));
            }
            Transport::Http(endpoint) => {
                // The value may start with the name of a scheme.
                let words = |(_, value): &(String, Secret)| {
                    value.expose().split_whitespace().map(Secret::new).collect::<Vec<_>>()
                };
                secrets.extend(endpoint.headers.iter().flat_map(words));
                secrets.extend(endpoint.login.client.and_then(|client| client.secret));
            }
        }
    }
    for server in settings.acp_servers(&guard).0 {
        secrets.extend(server.environment.into_iter().filter(is_secret).map(|(_, value)| value));
        secrets.extend(server.expanded_secrets);
    }
    secrets
}

/// Tokens of the stored logins.
fn stored_logins(folder: &Path) -> Vec<Secret> {
    let mut secrets = Vec::new();
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for file in files.filter(|file| file.extension().is_some_and(|ending| ending == "json")) {
        let login = std::fs::read(file).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        tokens(&login.unwrap_or_default(), &mut secrets);
    }
    secrets
}

fn tokens(value: &Value, secrets: &mut Vec<Secret>) {
    let Value::Object(fields) = value else { return };
    for (name, value) in fields {
        match value {
            Value::String(text)
                if ["access_token", "refresh_token", "client_secret"].contains(&name.as_str()) =>
            {
                secrets.push(Secret::new(text));
            }
            value => tokens(value, secrets),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_of_a_stored_login_are_found_at_any_depth() {
        let login = json!({
            "credentials": { "client_id": "id", "token_response": { "access_token": "a", "refresh_token": "b", "scope": "c" } },
            "client_secret": "d",
        });
        let mut found = Vec::new();
        tokens(&login, &mut found);
        let mut found: Vec<&str> = found.iter().map(Secret::expose).collect();
        found.sort_unstable();
        assert_eq!(found, ["a", "b", "d"]);
    }
}
