//! Suggestions for users without a usable model.

use crate::error::CliError;
use crate::sanitize;
use crate::settings::{ApiKey, SCRIPT_PREFIX, Settings};
use crate::summary::shell_quoted;

/// Suggested model of each provider: good at tool calls, and not the most expensive. All are in the price list, except
/// those of local servers.
const MODELS: [(&str, &str); 8] = [
    ("anthropic", "claude-sonnet-5"),
    ("openai-responses", "gpt-5.4"),
    ("openai", "gpt-5.4"),
    ("gemini", "gemini-3.6-flash"),
    ("openrouter", "openai/gpt-5.2-chat"),
    ("deepseek", "deepseek-v4-pro"),
    ("groq", "openai/gpt-oss-120b"),
    (LOCAL_PROVIDER, "qwen3"),
];
/// Local server that is easiest to install.
const LOCAL_PROVIDER: &str = "ollama";
/// Longer tasks are not repeated in a suggested command.
const MAX_TASK_BYTES: usize = 60;

/// Providers with a suggested model, in the order in which they are offered.
pub(crate) fn providers() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|(provider, _)| *provider)
}

/// Suggested model of a provider.
pub(crate) fn suggested_model(provider: &str) -> Option<String> {
    let found = MODELS.iter().find(|(name, _)| *name == provider);
    found.map(|(provider, model)| format!("{provider}/{model}"))
}

/// Suggested model of the first provider whose key is set, and the variable with the key.
pub(crate) fn ready_model(settings: &Settings) -> Option<(String, String)> {
    let offers = settings.providers.list(&settings.environment);
    MODELS.iter().find_map(|(provider, _)| {
        let offer = offers.iter().find(|offer| offer.name == *provider)?;
        match &offer.key {
            ApiKey::Set(variable) => Some((suggested_model(provider)?, variable.clone())),
            ApiKey::NotNeeded | ApiKey::Missing(_) => None,
        }
    })
}

/// Error for a task without a model. Suggests commands, the shortest first.
pub(crate) fn no_model(settings: &Settings, task: &str) -> CliError {
    let task = if task.len() > MAX_TASK_BYTES || task.contains('\n') { "TASK" } else { task };
    without_model(settings, "brigade run", &shell_quoted(&sanitize::line(task)))
}

/// Error for a command without a task and without a model.
pub(crate) fn no_model_for(settings: &Settings, command: &str) -> CliError {
    without_model(settings, command, "")
}

fn without_model(settings: &Settings, command: &str, rest: &str) -> CliError {
    let typed = |model: &str| format!("{command} --model {model} {rest}").trim_end().to_owned();
    let first = match ready_model(settings) {
        Some((model, variable)) => {
            format!("{variable} is set, so you can use: {}", typed(&model))
        }
        None => format!(
            "Cloud: export ANTHROPIC_API_KEY=..., then {}",
            typed(&suggested_model("anthropic").unwrap_or_default())
        ),
    };
    CliError::usage(format!(
        "no model is set. {first}\n\
         Local: ollama pull qwen3, then {}\n\
         To set a default model: brigade init. To try Brigade without a model: brigade demo",
        typed("ollama/qwen3"),
    ))
}

const SEE_ALSO: &str =
    "List available models with: brigade models. To try Brigade without a model: brigade demo";

/// Error for a model that cannot be used, with a hint if its name or its key is the cause.
pub(crate) fn unusable_model(settings: &Settings, name: &str, error: CliError) -> CliError {
    let offers = settings.providers.list(&settings.environment);
    let offer =
        name.split_once('/').and_then(|(provider, _)| offers.iter().find(|offer| offer.name == provider));
    match offer.map(|offer| &offer.key) {
        // The error names the problem: the provider is known, and so is its key.
        Some(ApiKey::Set(_) | ApiKey::NotNeeded) => error,
        _ if name.starts_with(SCRIPT_PREFIX) => error,
        Some(ApiKey::Missing(_)) | None => error.hint(hint_for_name(settings, name)),
    }
}

/// Hint for a name that is not that of a usable model.
pub(crate) fn hint_for_name(settings: &Settings, name: &str) -> String {
    let offers = settings.providers.list(&settings.environment);
    let key = |provider: &str| offers.iter().find(|offer| offer.name == provider).map(|offer| &offer.key);
    let suggestion = match name.split_once('/') {
        Some((provider, model)) => match key(provider) {
            Some(ApiKey::Missing(variable)) => {
                return format!("Set your key with: export {variable}=...\n{SEE_ALSO}");
            }
            Some(ApiKey::Set(_) | ApiKey::NotNeeded) => None,
            None => settings.providers.did_you_mean(provider).map(|near| format!("{near}/{model}")),
        },
        None if key(name).is_some() => suggested_model(name),
        None => {
            providers().map(|provider| format!("{provider}/{name}")).find(|full| is_priced(settings, full))
        }
    };
    match suggestion {
        Some(model) => format!("Did you mean {}? {SEE_ALSO}", sanitize::line(&model)),
        None => format!("Use PROVIDER/MODEL, such as ollama/qwen3, or script:FILE. {SEE_ALSO}"),
    }
}

fn is_priced(settings: &Settings, name: &str) -> bool {
    settings.prices.model_info(name).price.is_some()
}

#[cfg(test)]
mod tests {
    use brigade::model::PriceList;

    use super::*;

    #[test]
    fn suggested_models_are_in_the_price_list() {
        let prices = PriceList::built_in();
        for (provider, model) in MODELS {
            let provider = if provider == "openai-responses" { "openai" } else { provider };
            let info = prices.model_info(&format!("{provider}/{model}"));
            assert!(info.price.is_some() || provider == LOCAL_PROVIDER, "{provider}/{model}");
        }
    }
}
