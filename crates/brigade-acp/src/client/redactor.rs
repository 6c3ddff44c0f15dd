//! The keys that a program was given, and words that must not show them.

use brigade::Secret;

use super::{AgentServer, sanitize};

/// Values that are shorter, such as a number, are everywhere and no keys.
const MIN_SECRET_BYTES: usize = 6;
/// Variables that every program has, and that are no keys.
const PUBLIC_VARIABLES: [&str; 2] = ["PATH", "HOME"];

/// What a program was given and nobody else is shown.
#[derive(Clone)]
pub(super) struct Redactor {
    /// The longest first, since one may be a part of another.
    secrets: Vec<Secret>,
}

impl Redactor {
    /// The values of the variables of a server, and what was filled into its arguments.
    pub(super) fn of(server: &AgentServer) -> Redactor {
        let variables =
            server.environment.iter().filter(|(name, _)| !PUBLIC_VARIABLES.contains(&name.as_str()));
        let secrets = variables.map(|(_, value)| value).chain(&server.expanded_secrets);
        let mut secrets: Vec<Secret> =
            secrets.filter(|secret| secret.expose().len() >= MIN_SECRET_BYTES).cloned().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        Redactor { secrets }
    }

    /// The text without them.
    pub(super) fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.expose()) {
                text = text.replace(secret.expose(), "(hidden)");
            }
        }
        text
    }

    /// A few plain words of the program. Hidden first, since half a key is too much of it.
    pub(super) fn sanitize(&self, text: &str) -> String {
        sanitize(&self.redact(text))
    }
}
