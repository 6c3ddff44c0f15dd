//! Redaction of the secrets that a program was given.

use brigade::Secret;

use super::{AgentServer, sanitize};

/// Shorter values, such as numbers, occur everywhere and are not secrets.
const MIN_SECRET_BYTES: usize = 6;
/// Variables that every program has. They are not secrets.
const PUBLIC_VARIABLES: [&str; 2] = ["PATH", "HOME"];

/// Secrets of a program.
#[derive(Clone)]
pub(super) struct Redactor {
    /// Longest first, because one secret may contain another.
    secrets: Vec<Secret>,
}

impl Redactor {
    /// Collects the values of a server's environment and of the secrets in its arguments.
    pub(super) fn of(server: &AgentServer) -> Redactor {
        let variables =
            server.environment.iter().filter(|(name, _)| !PUBLIC_VARIABLES.contains(&name.as_str()));
        let secrets = variables.map(|(_, value)| value).chain(&server.expanded_secrets);
        let mut secrets: Vec<Secret> =
            secrets.filter(|secret| secret.expose().len() >= MIN_SECRET_BYTES).cloned().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        Redactor { secrets }
    }

    /// Redacts the secrets in a text.
    pub(super) fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.expose()) {
                text = text.replace(secret.expose(), "(hidden)");
            }
        }
        text
    }

    /// Redacts and sanitizes a text of the program. Redaction comes first, because shortening could leave a
    /// part of a secret.
    pub(super) fn sanitize(&self, text: &str) -> String {
        sanitize(&self.redact(text))
    }
}
