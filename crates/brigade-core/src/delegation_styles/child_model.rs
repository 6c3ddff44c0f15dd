//! Model of a child: from its definition, with the caller's as the default.

use crate::agent::Agent;

/// Prefix of the name of a pass-through model; the rest names the model for children.
pub const PASSTHROUGH_PREFIX: &str = "relay/";

/// Resolves the models of an agent to full names, with the caller's model as the default.
pub fn resolve_model(agent: &mut Agent, parent: &Agent) {
    if agent.model.is_none() && agent.provider.is_none() && agent.fallbacks.is_empty() {
        agent.fallbacks.clone_from(&parent.fallbacks);
    }
    agent.model = choose_model(agent, parent);
    agent.provider = None;
    let usual = Agent { model: agent.model.clone(), ..Agent::default() };
    for fallback in &mut agent.fallbacks {
        let named = Agent { model: Some(std::mem::take(fallback)), ..Agent::default() };
        *fallback = choose_model(&named, &usual).unwrap_or_default();
    }
}

/// Combines the definition and the caller's model into `provider/model`.
pub(super) fn choose_model(agent: &Agent, parent: &Agent) -> Option<String> {
    // A pass-through model cannot serve a child, which uses the model behind it.
    let inherited = parent.model.as_deref().map(|name| name.strip_prefix(PASSTHROUGH_PREFIX).unwrap_or(name));
    // A name such as `script:/path` consists of the provider only, whatever its path looks like.
    let parts = |name: &str| {
        let parts = name.split_once('/').filter(|(provider, _)| !provider.contains(':'));
        parts.map(|(provider, model)| (provider.to_owned(), model.to_owned()))
    };
    let model_of = |name: &str| parts(name).map_or_else(|| name.to_owned(), |(_, model)| model);
    let provider_of = |name: &str| parts(name).map(|(provider, _)| provider);
    match (&agent.provider, &agent.model) {
        (None, None) => inherited.map(str::to_owned),
        (Some(provider), Some(model)) if !model.starts_with(&format!("{provider}/")) => {
            Some(format!("{provider}/{model}"))
        }
        (Some(provider), None) => Some(match inherited.map(model_of) {
            Some(model) if model != *provider => format!("{provider}/{model}"),
            _ => provider.clone(),
        }),
        // A model without a provider belongs to the caller's provider, if that has a name of its own.
        (None, Some(model)) if !model.contains('/') => match inherited.and_then(provider_of) {
            Some(provider) => Some(format!("{provider}/{model}")),
            None => Some(model.clone()),
        },
        (_, Some(model)) => Some(model.clone()),
    }
}

/// Returns the provider in the name of an agent's model.
pub(super) fn provider(agent: &Agent) -> Option<&str> {
    agent.model.as_deref().map(|model| model.split_once('/').map_or(model, |(provider, _)| provider))
}
