//! Model-specific behaviour, inferred from model names. OpenRouter prefixes names with the vendor.

/// Differences between servers that have an API of OpenAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// OpenAI itself: newer parameter names, encrypted reasoning and a prompt cache key.
    OpenAi,
    /// Other servers: the names and features that all of them support.
    Compatible,
}

/// Name prefixes of OpenAI's reasoning models.
const REASONING_PREFIXES: [&str; 5] = ["o1", "o3", "o4", "gpt-5", "codex"];
/// A member of the family that does not reason.
const NON_REASONING_PREFIX: &str = "gpt-5-chat";
/// The first Claude version that does not accept a temperature.
const CLAUDE_WITHOUT_TEMPERATURE: (u32, u32) = (4, 7);
/// Larger numbers in a name are dates.
const MAX_VERSION: u32 = 99;

/// Whether a model is a reasoning model of OpenAI.
pub(super) fn is_reasoning_model(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !name.starts_with(NON_REASONING_PREFIX)
        && REASONING_PREFIXES.iter().any(|family| name.starts_with(family))
}

/// Whether a model accepts a temperature. Other models reject the whole request if it contains one.
pub(super) fn accepts_temperature(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let numbers = name.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse().ok());
    let mut versions = numbers.take_while(|number: &u32| *number <= MAX_VERSION);
    let version = (versions.next().unwrap_or(u32::MAX), versions.next().unwrap_or_default());
    if name.contains("claude") { version < CLAUDE_WITHOUT_TEMPERATURE } else { !is_reasoning_model(model) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperature_support_is_derived_from_the_model_name() {
        let accepting = [
            "qwen3",
            "gpt-4.1",
            "gpt-5-chat-latest",
            "openai/gpt-4o",
            "claude-3-5-sonnet-20241022",
            "claude-2.1",
            "claude-opus-4-20250514",
            "claude-sonnet-4-5",
            "anthropic/claude-opus-4.6",
            "claude-opus-4-1-20250805",
        ];
        for model in accepting {
            assert!(accepts_temperature(model), "{model}");
        }
        let refusing = [
            "o3",
            "openai/gpt-5.4",
            "codex-mini-latest",
            "claude-opus-4-7",
            "anthropic/claude-opus-4.8",
            "claude-sonnet-5-20270101",
            "claude-latest",
        ];
        for model in refusing {
            assert!(!accepts_temperature(model), "{model}");
        }
    }
}
