//! Checks of the configured models and their providers.

use super::{Finding, block_on};
use crate::command::models::{self, Availability, ProbeScope, ProviderStatus};
use crate::error::CliError;
use crate::model_hints;
use crate::settings::{ApiKey, SCRIPT_PREFIX, Settings};
use crate::units;

/// Findings about the configured models, and about all providers.
pub(super) fn findings(settings: &Settings, offline: bool) -> Result<(Vec<Finding>, Vec<Finding>), CliError> {
    let probe_scope = if offline { ProbeScope::LocalOnly } else { ProbeScope::WithKeys };
    let offers = settings.providers.list(&settings.environment);
    let found = block_on(models::probe(settings, offers, probe_scope))?;
    Ok((models(settings, &found, probe_scope), providers(settings, &found, probe_scope)))
}

/// Configured model and its fallbacks, in order.
fn configured_models(settings: &Settings) -> impl Iterator<Item = &String> {
    settings.model.iter().chain(&settings.fallbacks)
}

fn models(settings: &Settings, found: &[ProviderStatus], probe_scope: ProbeScope) -> Vec<Finding> {
    if settings.model.is_none() {
        let now = model_hints::ready_model(settings).map_or_else(String::new, |(model, variable)| {
            format!(". {variable} is set, so you can also use --model {model}")
        });
        return vec![Finding::warn("no model is set", format!("Choose one with: brigade init{now}"))];
    }
    configured_models(settings).map(|name| model(settings, name, found, probe_scope)).collect()
}

fn model(settings: &Settings, name: &str, found: &[ProviderStatus], probe_scope: ProbeScope) -> Finding {
    if name.starts_with(SCRIPT_PREFIX) {
        return Finding::ok(name);
    }
    let (provider, model) = name.split_once('/').unwrap_or((name, ""));
    let Some(found) = found.iter().find(|found| found.offer.name == provider) else {
        return Finding::problem(
            format!("{name}: unknown provider '{provider}'"),
            model_hints::hint_for_name(settings, name),
        );
    };
    let has_list = match found.availability {
        Availability::Running(_) => true,
        Availability::Ready => probe_scope == ProbeScope::WithKeys,
        _ => false,
    };
    if !found.availability.is_usable() {
        return Finding::problem(
            format!("{name} is currently not available"),
            format!("See {provider} under `providers` below, or choose another model from: brigade models"),
        );
    }
    if has_list && !found.models.contains_key(model) {
        return Finding::warn(
            format!("{name} is not in the model list of {provider}"),
            format!("List its models with: brigade models {provider}"),
        );
    }
    Finding::ok(name)
}

fn providers(settings: &Settings, found: &[ProviderStatus], probe_scope: ProbeScope) -> Vec<Finding> {
    let configured = settings.layers.table().get("providers");
    let importance = |name: &str| {
        let is_used = configured_models(settings).any(|model| model.split('/').next() == Some(name));
        let is_configured = configured.is_some_and(|providers| providers.get(name).is_some());
        match (is_used, is_configured) {
            (true, _) => Importance::Used,
            (false, true) => Importance::Configured,
            (false, false) => Importance::Offered,
        }
    };
    let (mut findings, mut without_key, mut not_running) = (Vec::new(), Vec::new(), Vec::new());
    for found in found {
        let name = &found.offer.name;
        match (&found.availability, importance(name)) {
            (Availability::NoKey(variable), Importance::Offered) => {
                without_key.push(format!("{name} ({variable})"))
            }
            (Availability::NotRunning, Importance::Offered) => not_running.push(name.as_str()),
            (_, weight) => findings.push(provider(found, weight, probe_scope)),
        }
    }
    if !without_key.is_empty() {
        findings.push(Finding::note(format!("without a key: {}", without_key.join(", "))));
    }
    if !not_running.is_empty() {
        findings.push(Finding::note(format!("not running on this machine: {}", not_running.join(", "))));
    }
    findings
}

/// Importance of a provider.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Importance {
    /// It provides a configured model.
    Used,
    /// The configuration mentions it.
    Configured,
    /// It is only built in.
    Offered,
}

fn provider(found: &ProviderStatus, weight: Importance, probe_scope: ProbeScope) -> Finding {
    let (name, address) = (&found.offer.name, &found.offer.base_url);
    let problem = |what: String, fix: String| match weight {
        Importance::Used => Finding::problem(what, fix),
        Importance::Configured | Importance::Offered => Finding::warn(what, fix),
    };
    match &found.availability {
        Availability::Ready => {
            let key = match &found.offer.key {
                ApiKey::Set(variable) => format!("{variable} is set"),
                ApiKey::NotNeeded | ApiKey::Missing(_) => "no key is needed".to_owned(),
            };
            let reached =
                if probe_scope == ProbeScope::WithKeys { "it responds" } else { "not queried (--offline)" };
            Finding::ok(format!("{name}: {key}; {reached}"))
        }
        Availability::Running(0) => problem(
            format!("{name}: running at {address}, but has no models"),
            if name == "ollama" {
                "Install a model with: ollama pull qwen3".to_owned()
            } else {
                "Install a model as described in the server's documentation".to_owned()
            },
        ),
        Availability::Running(count) => {
            Finding::ok(format!("{name}: running at {address} with {}", units::count(*count, "model")))
        }
        Availability::NotRunning => problem(
            format!("{name}: no response from {address}"),
            format!("Start the server, or set its URL in `providers.{name}.base_url`"),
        ),
        Availability::NoKey(variable) => problem(
            format!("{name}: {variable} is not set"),
            format!("export {variable}=..., or set another variable in `providers.{name}.api_key_env`"),
        ),
        // The cause contains the fix.
        Availability::Failed(cause) => problem(format!("{name}: {cause}"), format!("Its URL is {address}")),
        Availability::Misconfigured(cause) => {
            Finding::problem(format!("{name}: {cause}"), format!("Its URL is {address}"))
        }
    }
}
