//! Reasoning and other data beside the text. Each server uses its own key for it and expects it back under
//! that key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Keys of text fragments that are joined although they arrive in many details.
const TEXT_KEYS: [&str; 2] = ["text", "summary"];

/// Data that a provider needs back with a reply.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct OpaqueBlock {
    /// The provider that it came from.
    pub(super) provider: String,
    #[serde(flatten)]
    pub(super) thought: Thought,
    /// Extra content of calls, by call number. Gemini puts signatures there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extra_content: BTreeMap<usize, Value>,
}

/// Reasoning of a model.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Thought {
    /// Used by DeepSeek, llama.cpp and vLLM.
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    /// Used by Ollama, Groq and newer servers.
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning: String,
    /// Used by OpenRouter. Some parts are encrypted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Value>,
}

/// A fragment of reasoning.
#[derive(Debug, Default)]
pub(super) struct ReasoningFragment {
    pub(super) reasoning_content: Option<String>,
    pub(super) reasoning: Option<String>,
    pub(super) reasoning_details: Option<Vec<Value>>,
}

impl Thought {
    pub(super) fn take(&mut self, fragment: ReasoningFragment) {
        let ReasoningFragment { reasoning_content, reasoning, reasoning_details } = fragment;
        for (known, more) in
            [(&mut self.reasoning_content, reasoning_content), (&mut self.reasoning, reasoning)]
        {
            known.push_str(&more.unwrap_or_default());
        }
        for detail in reasoning_details.unwrap_or_default() {
            if !self.reasoning_details.last_mut().is_some_and(|last| merge_detail(last, &detail)) {
                self.reasoning_details.push(detail);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Thought::default()
    }

    pub(super) fn bytes(&self) -> usize {
        self.reasoning_content.len().max(self.reasoning.len())
    }

    /// Keeps the one form that is sent back. Some servers send several.
    pub(super) fn deduplicated(mut self) -> Thought {
        if !self.reasoning_details.is_empty() {
            self.reasoning_content.clear();
        }
        if !self.reasoning_details.is_empty() || !self.reasoning_content.is_empty() {
            self.reasoning.clear();
        }
        self
    }
}

/// Merges a detail into the previous one if both are fragments of the same text.
fn merge_detail(last: &mut Value, more: &Value) -> bool {
    let grows = TEXT_KEYS.iter().any(|key| more.get(*key).is_some_and(Value::is_string));
    let (Value::Object(known), Value::Object(pieces)) = (last, more) else { return false };
    if !grows || !["type", "index", "format"].iter().all(|key| known.get(*key) == pieces.get(*key)) {
        return false;
    }
    for (key, value) in pieces {
        match (known.get_mut(key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(piece)) if TEXT_KEYS.contains(&key.as_str()) => {
                text.push_str(piece);
            }
            _ => {
                known.insert(key.clone(), value.clone());
            }
        }
    }
    true
}
