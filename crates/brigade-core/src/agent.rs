//! Agent definitions, independent of any run.

mod builder;

use serde::{Deserialize, Serialize};

use crate::grant::Budget;
use crate::id::Hash;
use crate::permission::{Mode, Rule};
use crate::sandbox::SandboxMode;

/// Agent definition: prompt, model, tools and limits. It is stored once, by its hash.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agent {
    /// Id that users and models refer to.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Description of when to use the agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// System prompt.
    pub prompt: String,
    /// Sentences about its tools that the runtime adds to a built-in prompt.
    #[serde(skip_serializing_if = "Guidance::is_none")]
    pub guidance: Guidance,
    /// `provider/model`, or a model of the provider below; inherited if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Fallback models, in order, for when the previous model fails permanently.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// Provider, if the model's name does not include it; inherited if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Base URL of the provider, if it is not the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_base: Option<String>,
    /// Id of the agent whose file contains the API key of the provider. The key itself is never part of a
    /// definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_of: Option<String>,
    /// Sampling temperature; the provider's default if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Tools that the agent may use; the caller's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools that the agent may lend; its own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lend: Option<Vec<String>>,
    /// Maximum number of model calls in one round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Maximum number of output tokens in one reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Budget of one round, children included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Maximum duration of one round, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Maximum number of active sessions of the agent in a tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u32>,
    /// Permission mode, if it is narrower than the parent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Sandbox of its commands, if it is narrower than the parent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxMode>,
    /// Deny rules, in addition to the parent's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Rule>,
    /// Whether the agent is offered the available skills.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_skills: bool,
    /// Whether the agent works without the instructions of the project.
    #[serde(skip_serializing_if = "is_false")]
    pub ignore_instructions: bool,
    /// Backend that runs the agent.
    #[serde(rename = "place")]
    pub backend: Backend,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// Kind of a built-in prompt. Its sentences about tools are written when the tools of the agent are known; see
/// [`delegation_styles::guidance`](fn@crate::delegation_styles::guidance).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guidance {
    /// The prompt is complete, as for every prompt that the user wrote.
    #[default]
    None,
    /// The built-in lead.
    Lead,
    /// Role of `delegate` without a prompt of its own.
    Role,
    /// Helper of `subagent` or `subagent_spawn`.
    Helper,
}

impl Guidance {
    fn is_none(&self) -> bool {
        *self == Guidance::None
    }
}

/// Maximum length of an agent id.
const MAX_ID_LENGTH: usize = 64;

/// Derives an id from a name: lower-case letters and digits, with `-` between them. Empty if the name has neither.
///
/// ```
/// use brigade_core::agent::id_of_name;
/// assert_eq!(id_of_name("My Agent"), "my-agent");
/// ```
pub fn id_of_name(name: &str) -> String {
    let mut id = String::new();
    for c in name.chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' => id.push(c),
            '.' | '_' if !id.is_empty() => id.push(c),
            // C# and C++ are different languages.
            '#' if !id.is_empty() => id.push_str("sharp"),
            '+' if !id.is_empty() => id.push('p'),
            _ if !id.is_empty() && !id.ends_with('-') => id.push('-'),
            _ => {}
        }
        if id.len() >= MAX_ID_LENGTH {
            break;
        }
    }
    id.truncate(MAX_ID_LENGTH);
    id.trim_end_matches(['-', '.', '_']).to_owned()
}

/// Derives an id from a name if only letter case, spaces and punctuation have to change.
///
/// ```
/// use brigade_core::agent::normalised_id;
/// assert_eq!(normalised_id("Pickle"), Some("pickle".to_owned()));
/// assert_eq!(normalised_id("étude"), None);
/// ```
pub fn normalised_id(name: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '_' | '-');
    let id = Some(id_of_name(name)).filter(|id| !id.is_empty());
    id.filter(|_| name.len() <= MAX_ID_LENGTH && name.chars().all(is_plain))
}

/// Backend that runs an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// This runtime.
    #[default]
    Here,
    /// External agent of this name, over the Agent Client Protocol.
    Acp(String),
    /// Another machine.
    Remote,
}

impl Agent {
    /// Serialises the definition as it is stored.
    pub fn encoded(&self) -> String {
        // A struct of strings and numbers always serialises; an empty text would only fail to be found again.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the hash that events refer to.
    pub fn hash(&self) -> Hash {
        Hash::of(self.encoded().as_bytes())
    }
}

#[cfg(test)]
mod tests;
