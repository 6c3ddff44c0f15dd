//! The key `model`, in the spellings of other programs.

use super::format::Format;
use super::problem::KeyStatus;

/// Selected model (`None` for the parent's model), the status of the key and a note about it.
pub(super) type ModelChoice = (Option<String>, KeyStatus, String);

/// Name prefixes of the models of each provider.
const PROVIDERS: [(&str, &str); 8] = [
    ("claude-", "anthropic"),
    ("gpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("codex-", "openai"),
    ("gemini-", "gemini"),
    ("chatgpt-", "openai"),
];

/// Resolves a model name. A name without a provider is used as it is if the file names its provider.
pub(super) fn resolve_model(name: &str, format: Format, names_provider: bool) -> ModelChoice {
    if matches!(name, "" | "inherit" | "default") {
        return (None, KeyStatus::Honoured, "the parent's model".to_owned());
    }
    let as_it_is = || (Some(name.to_owned()), KeyStatus::Honoured, String::new());
    if names_provider || format.is_native() {
        return as_it_is();
    }
    let is_plain = name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '|' | '\'' | '"' | '(' | '['));
    if is_plain && name.contains('/') {
        return as_it_is();
    }
    if let Some((provider, model)) = name.split_once(':')
        && is_plain
        && !provider.is_empty()
        && !model.is_empty()
    {
        let model = format!("{provider}/{model}");
        return (Some(model.clone()), KeyStatus::Translated, model);
    }
    let lower = name.to_ascii_lowercase();
    match PROVIDERS.iter().find(|(prefix, _)| is_plain && lower.starts_with(prefix)) {
        Some((_, provider)) => {
            let model = format!("{provider}/{lower}");
            (Some(model.clone()), KeyStatus::Translated, model)
        }
        None => (
            None,
            KeyStatus::Ignored,
            "is a model alias of another program; the parent's model is used. To choose a model, write `PROVIDER/MODEL`."
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_model_accepts_names_of_other_programs() {
        let model = |name: &str| resolve_model(name, Format::Claude, false).0;
        assert_eq!(model("inherit"), None);
        assert_eq!(model("sonnet"), None);
        assert_eq!(model("anthropic/claude-sonnet-4-5").as_deref(), Some("anthropic/claude-sonnet-4-5"));
        assert_eq!(model("openai:gpt-5").as_deref(), Some("openai/gpt-5"));
        assert_eq!(model("claude-sonnet-4-20250514").as_deref(), Some("anthropic/claude-sonnet-4-20250514"));
        assert_eq!(model("GPT-4.1").as_deref(), Some("openai/gpt-4.1"));
        assert_eq!(model("GPT-4.1 | 'gpt-5'"), None);
        assert_eq!(resolve_model("any", Format::Brigade, false).0.as_deref(), Some("any"));
        assert_eq!(
            resolve_model("script:x.toml", Format::Brigade, false).0.as_deref(),
            Some("script:x.toml")
        );
    }
}
