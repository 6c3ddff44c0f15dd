//! Providers and models, as text and as JSON.

use std::collections::BTreeMap;

use brigade::model::ModelInfo;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::{Availability, ProbeScope, ProviderStatus};
use crate::render::{fit, layout, pad};
use crate::sanitize;
use crate::settings::{ApiKey, Settings};
use crate::terminal::Colour;
use crate::units;

/// Maximum number of models of a server, unless the user names it.
const MAX_SHOWN_MODELS: usize = 20;
const MAX_NAME_COLUMNS: usize = 52;
/// Columns that are dropped first if space is limited: cache write, cache read, maximum output.
const DROPPED_COLUMNS: [usize; 3] = [4, 3, 6];

/// Table of providers and models of at most this width.
pub(super) fn text(
    settings: &Settings,
    found: &[ProviderStatus],
    probe_scope: ProbeScope,
    max_columns: usize,
) -> String {
    let mut text = providers(found, max_columns);
    let shown = |found: &&ProviderStatus| found.availability.is_usable() || probe_scope == ProbeScope::Named;
    let shown: Vec<&ProviderStatus> = found.iter().filter(shown).collect();
    let models = models(settings, &shown, probe_scope, max_columns);
    if !models.is_empty() {
        let date = settings.prices.date().unwrap_or_default();
        let head = format!("USD per million tokens (highest tier), as of {date}; \"-\" = unknown");
        text.push_str(&format!("\n{head}\n\n{models}"));
    }
    text.push('\n');
    text.push_str(&default_model_line(settings));
    if probe_scope == ProbeScope::LocalOnly {
        text.push_str("List all models of a provider with: brigade models PROVIDER\n");
    }
    text
}

/// Provider list: one line each, or two if space is limited.
fn providers(found: &[ProviderStatus], max_columns: usize) -> String {
    let cells = |found: &ProviderStatus| {
        let offer = &found.offer;
        [
            sanitize::line(&offer.name),
            state(found),
            offer.api_name.to_owned(),
            sanitize::line(&offer.base_url),
        ]
    };
    let mut lines = vec![["provider", "state", "API", "URL"].map(str::to_owned)];
    lines.extend(found.iter().map(cells));
    let whole = layout(&lines, Colour::Off, usize::MAX, 4, &[]);
    if whole.lines().all(|line| line.width() <= max_columns) {
        return whole;
    }
    let width = lines.iter().map(|line| line[0].width()).max().unwrap_or(0);
    let mut text = String::new();
    for [name, state, speaks, address] in lines.iter().skip(1) {
        text.push_str(&format!("{}  {state}\n", pad(name, width)));
        text.push_str(&format!("{}  {speaks} at {address}\n", " ".repeat(width)));
    }
    text
}

fn state(found: &ProviderStatus) -> String {
    let offer = &found.offer;
    match &found.availability {
        Availability::Ready => match &offer.key {
            ApiKey::Set(variable) => format!("ready ({variable} is set)"),
            ApiKey::NotNeeded | ApiKey::Missing(_) => "ready (no key is needed)".to_owned(),
        },
        Availability::Running(0) => "running, no models".to_owned(),
        Availability::Running(models) => format!("running, {}", units::count(*models, "model")),
        Availability::NotRunning => format!("not running at {}", sanitize::line(&offer.base_url)),
        Availability::NoKey(variable) => format!("no key: set {variable}"),
        Availability::Failed(cause) => format!("no model list: {}", sanitize::line(cause)),
        Availability::Misconfigured(cause) => format!("misconfigured: {}", sanitize::line(cause)),
    }
}

fn models(
    settings: &Settings,
    shown: &[&ProviderStatus],
    probe_scope: ProbeScope,
    max_columns: usize,
) -> String {
    let head = ["  model", "input", "output", "cache read", "cache write", "window", "reply"];
    let mut lines = vec![head.map(str::to_owned)];
    for found in shown {
        let max_models = if probe_scope == ProbeScope::Named { usize::MAX } else { MAX_SHOWN_MODELS };
        for (model, about) in found.models.iter().take(max_models) {
            lines.push(cells(settings, &format!("{}/{model}", found.offer.name), about));
        }
        if found.models.len() > max_models {
            let more = found.models.len() - max_models;
            let mut cells = std::array::from_fn(|_| String::new());
            cells[0] = format!("  … and {more} more: brigade models {}", found.offer.name);
            lines.push(cells);
        }
    }
    if lines.len() == 1 {
        String::new()
    } else {
        layout(&lines, Colour::Off, max_columns, 1, &DROPPED_COLUMNS)
    }
}

fn cells(settings: &Settings, name: &str, about: &ModelInfo) -> [String; 7] {
    let mark = if settings.model.as_deref() == Some(name) { '*' } else { ' ' };
    let [input, output, read, write] = match about.price {
        None => ["-"; 4].map(str::to_owned),
        Some(price) if price.input == 0 && price.output == 0 => ["free"; 4].map(str::to_owned),
        Some(price) => {
            [price.input, price.output, price.cache_read, price.cache_write].map(units::format_price)
        }
    };
    let tokens = |tokens: Option<u64>| tokens.map_or_else(|| "-".to_owned(), units::format_compact);
    let name = format!("{mark} {}", fit(&sanitize::line(name), MAX_NAME_COLUMNS));
    [name, input, output, read, write, tokens(about.window), tokens(about.max_output)]
}

/// Line with the default model.
fn default_model_line(settings: &Settings) -> String {
    match &settings.model {
        Some(model) => format!("* Default model: {}\n", sanitize::line(model)),
        None => format!(
            "No model is set. Pass one with --model, or set `model = \"PROVIDER/MODEL\"` in\n{}\n",
            sanitize::path(&settings.existing_config_file())
        ),
    }
}

/// Providers and models as JSON.
pub(super) fn json(settings: &Settings, found: &[ProviderStatus]) -> Value {
    let providers: Vec<Value> = found.iter().map(|found| provider(settings, found)).collect();
    json!({ "prices_of": settings.prices.date(), "model": settings.model, "providers": providers })
}

fn provider(settings: &Settings, found: &ProviderStatus) -> Value {
    let offer = &found.offer;
    let (word, cause) = match &found.availability {
        Availability::Ready => ("ready", None),
        Availability::Running(_) => ("running", None),
        Availability::NotRunning => ("not_running", None),
        Availability::NoKey(_) => ("no_key", None),
        Availability::Failed(cause) => ("failed", Some(cause)),
        Availability::Misconfigured(cause) => ("wrong", Some(cause)),
    };
    let key = match &offer.key {
        ApiKey::NotNeeded => None,
        ApiKey::Set(variable) | ApiKey::Missing(variable) => Some(variable),
    };
    let models = found.models.iter().map(|(model, about)| {
        let name = format!("{}/{model}", offer.name);
        let price = about.price.map(|price| {
            BTreeMap::from([
                ("input", units::dollars_as_f64(price.input)),
                ("output", units::dollars_as_f64(price.output)),
                ("cache_read", units::dollars_as_f64(price.cache_read)),
                ("cache_write", units::dollars_as_f64(price.cache_write)),
            ])
        });
        json!({
            "name": name,
            "is_default": settings.model.as_deref() == Some(name.as_str()),
            "usd_per_million_tokens": price,
            "context_window": about.window,
            "max_output": about.max_output,
        })
    });
    json!({
        "name": offer.name,
        "speaks": offer.api_name,
        "address": offer.base_url,
        "state": word,
        "is_usable": found.availability.is_usable(),
        "cause": cause,
        "key_variable": key,
        "models": models.collect::<Vec<_>>(),
    })
}
