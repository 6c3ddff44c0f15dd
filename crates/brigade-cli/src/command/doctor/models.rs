//! Whether there is a model, and whether its provider can be reached.

use super::{Finding, wait_for};
use crate::command::models::{self, Asked, Found, State};
use crate::failure::Failure;
use crate::settings::{Key, SCRIPT, Settings};
use crate::suggest;

/// What there is to say of the model, and of all providers.
pub(super) fn look(settings: &Settings, offline: bool) -> Result<(Vec<Finding>, Vec<Finding>), Failure> {
    let asked = if offline { Asked::AtAGlance } else { Asked::Closely };
    let offers = settings.providers.offers(&settings.environment);
    let found = wait_for(models::look(settings, offers, asked))?;
    Ok((models(settings, &found, asked), providers(settings, &found, asked)))
}

/// The model and its fallbacks, in their order.
fn used(settings: &Settings) -> impl Iterator<Item = &String> {
    settings.model.iter().chain(&settings.fallbacks)
}

fn models(settings: &Settings, found: &[Found], asked: Asked) -> Vec<Finding> {
    if settings.model.is_none() {
        let now = suggest::ready(settings).map_or_else(String::new, |(model, variable)| {
            format!("; {variable} is set, so --model {model} works now")
        });
        return vec![Finding::warn("no model is set", format!("Choose one: brigade init{now}"))];
    }
    used(settings).map(|name| model(settings, name, found, asked)).collect()
}

fn model(settings: &Settings, name: &str, found: &[Found], asked: Asked) -> Finding {
    if name.starts_with(SCRIPT) {
        return Finding::ok(name);
    }
    let (provider, model) = name.split_once('/').unwrap_or((name, ""));
    let Some(found) = found.iter().find(|found| found.offer.name == provider) else {
        return Finding::problem(
            format!("{name}: there is no provider '{provider}'"),
            suggest::instead(settings, name),
        );
    };
    let has_list = match found.state {
        State::Running(_) => true,
        State::Ready => asked == Asked::Closely,
        _ => false,
    };
    if !found.state.is_usable() {
        return Finding::problem(
            format!("{name} cannot be used now"),
            format!("See {provider} among the providers below, or choose another: brigade models"),
        );
    }
    if has_list && !found.models.contains_key(model) {
        return Finding::warn(
            format!("{name} is not in the list that {provider} gives of its models"),
            format!("Compare: brigade models {provider}"),
        );
    }
    Finding::ok(name)
}

fn providers(settings: &Settings, found: &[Found], asked: Asked) -> Vec<Finding> {
    let configured = settings.layers.table().get("providers");
    let matters = |name: &str| {
        let is_used = used(settings).any(|model| model.split('/').next() == Some(name));
        let is_configured = configured.is_some_and(|providers| providers.get(name).is_some());
        match (is_used, is_configured) {
            (true, _) => Weight::Used,
            (false, true) => Weight::Configured,
            (false, false) => Weight::Offered,
        }
    };
    let (mut findings, mut without_key, mut not_running) = (Vec::new(), Vec::new(), Vec::new());
    for found in found {
        let name = &found.offer.name;
        match (&found.state, matters(name)) {
            (State::NoKey(variable), Weight::Offered) => without_key.push(format!("{name} ({variable})")),
            (State::NotRunning, Weight::Offered) => not_running.push(name.as_str()),
            (_, weight) => findings.push(provider(found, weight, asked)),
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

/// How much it matters that a provider can be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// A model of it is set.
    Used,
    /// The configuration speaks of it.
    Configured,
    /// It is just there.
    Offered,
}

fn provider(found: &Found, weight: Weight, asked: Asked) -> Finding {
    let (name, address) = (&found.offer.name, &found.offer.base_url);
    let amiss = |what: String, cure: String| match weight {
        Weight::Used => Finding::problem(what, cure),
        Weight::Configured | Weight::Offered => Finding::warn(what, cure),
    };
    match &found.state {
        State::Ready => {
            let key = match &found.offer.key {
                Key::Set(variable) => format!("{variable} is set"),
                Key::Unneeded | Key::Missing(_) => "no key is needed".to_owned(),
            };
            let reached = if asked == Asked::Closely { "it answers" } else { "it was not asked (--offline)" };
            Finding::ok(format!("{name}: {key}; {reached}"))
        }
        State::Running(0) => amiss(
            format!("{name}: it runs at {address}, but has no models"),
            format!(
                "Fetch one, such as: {}",
                if name == "ollama" { "ollama pull qwen3" } else { "brigade models" }
            ),
        ),
        State::Running(count) => Finding::ok(format!("{name}: it runs at {address} and has {count} models")),
        State::NotRunning => amiss(
            format!("{name}: nobody answers at {address}"),
            format!("Start it, or say where it is in providers.{name}.base_url"),
        ),
        State::NoKey(variable) => amiss(
            format!("{name}: {variable} is not set"),
            format!("export {variable}=..., or name another variable in providers.{name}.api_key_env"),
        ),
        // The cause says what to check.
        State::Failed(cause) => amiss(format!("{name}: {cause}"), format!("Its address is {address}")),
        State::Wrong(cause) => Finding::problem(
            format!("{name}: {cause}"),
            format!("Mend providers.{name} in your configuration"),
        ),
    }
}
