//! What an agent is, apart from any run of it.

use serde::{Deserialize, Serialize};

use crate::grant::Budget;
use crate::id::Hash;
use crate::permission::{Mode, Rule};

/// A definition: prompt, model, tools and limits. It is stored once, by its hash.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agent {
    /// The id that people and models name it by.
    pub id: String,
    /// What is shown.
    pub name: String,
    /// When to use it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The system prompt.
    pub prompt: String,
    /// Sentences about its tools that the runtime adds to a built-in prompt.
    #[serde(skip_serializing_if = "Guidance::is_none")]
    pub guidance: Guidance,
    /// `provider/model`, or a model of the provider below; inherited where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Models that take over, one after the other, where the one before fails for good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// The provider, where the model's name does not carry it; inherited where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Another address of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_base: Option<String>,
    /// The id of the agent whose file carries the key to the provider. The key itself is never part of a definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_of: Option<String>,
    /// How freely the model chooses its words; the provider's own default where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Tools that it may use; the caller's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools that it may lend; its own where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lend: Option<Vec<String>>,
    /// The most model calls of one round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// The most output tokens of one reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The most that one round may use up, children included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// How long one round may take, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// How many sessions of it may be active at once in a tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u32>,
    /// A mode that it works in where its parent's is wider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Calls that it never makes, beside those that its parent may not make.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Rule>,
    /// Whether it is offered the skills there are.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_skills: bool,
    /// Whether it works without the instructions of the project.
    #[serde(skip_serializing_if = "is_false")]
    pub ignore_instructions: bool,
    /// Where it runs.
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
    /// A role of `delegate` without a prompt of its own.
    Role,
    /// A helper of `subagent` or `subagent_spawn`.
    Helper,
}

impl Guidance {
    fn is_none(&self) -> bool {
        *self == Guidance::None
    }
}

/// The longest id of an agent.
const MAX_ID_LENGTH: usize = 64;

/// The id that a name stands for: lower-case letters and digits, with `-` for what is between them. Empty if the name
/// has neither.
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
            // C# and C++ are two languages.
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

/// The id that a name stands for, if nothing but letter case, blanks and punctuation has to change.
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

/// Where an agent runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// In this runtime.
    #[default]
    Here,
    /// In an external agent of this name that speaks the Agent Client Protocol.
    Acp(String),
    /// On another machine.
    Remote,
}

impl Agent {
    /// The bytes that stand for this definition in a store.
    pub fn encoded(&self) -> String {
        // A struct of strings and numbers always serialises; an empty text would only fail to be found again.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The hash that facts name it by.
    pub fn hash(&self) -> Hash {
        Hash::of(self.encoded().as_bytes())
    }
}
