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
    pub place: Place,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// Where an agent runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
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
