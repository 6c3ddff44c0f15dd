//! Providers and models, as text and as JSON.

use std::collections::BTreeMap;

use brigade::model::About;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::{Asked, Found, State};
use crate::render::{fit, layout, pad};
use crate::safe;
use crate::settings::{Key, Settings};
use crate::terminal::Colour;
use crate::units;

/// How many models of a server are shown where nobody asked for it by name.
const SHOWN: usize = 20;
const LONGEST_NAME: usize = 52;
/// The columns of models that are left out first where there is little room: cache write, cache read, most output.
const LEFT_OUT: [usize; 3] = [4, 3, 6];

/// All of it for people, in at most so many columns.
pub(super) fn text(settings: &Settings, found: &[Found], asked: Asked, room: usize) -> String {
    let mut text = providers(found, room);
    let shown = |found: &&Found| found.state.is_usable() || asked == Asked::ByName;
    let shown: Vec<&Found> = found.iter().filter(shown).collect();
    let models = models(settings, &shown, asked, room);
    if !models.is_empty() {
        let date = settings.prices.date().unwrap_or_default();
        let head = format!("Dollars for a million tokens, at the dearest, as of {date}; - is not known.");
        text.push_str(&format!("\n{head}\n\n{models}"));
    }
    text.push('\n');
    text.push_str(&in_force(settings));
    if asked == Asked::AtAGlance {
        text.push_str("brigade models PROVIDER asks a provider for all its models.\n");
    }
    text
}

/// The providers: a line each where there is room, otherwise two.
fn providers(found: &[Found], room: usize) -> String {
    let cells = |found: &Found| {
        let offer = &found.offer;
        [safe::line(&offer.name), state(found), offer.speaks.to_owned(), safe::line(&offer.base_url)]
    };
    let mut lines = vec![["provider", "state", "speaks", "address"].map(str::to_owned)];
    lines.extend(found.iter().map(cells));
    let whole = layout(&lines, Colour::Off, usize::MAX, 4, &[]);
    if whole.lines().all(|line| line.width() <= room) {
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

fn state(found: &Found) -> String {
    let offer = &found.offer;
    match &found.state {
        State::Ready => match &offer.key {
            Key::Set(variable) => format!("ready ({variable} is set)"),
            Key::Unneeded | Key::Missing(_) => "ready (no key is needed)".to_owned(),
        },
        State::Running(0) => "running, no models".to_owned(),
        State::Running(1) => "running, 1 model".to_owned(),
        State::Running(count) => format!("running, {count} models"),
        State::NotRunning => format!("not running at {}", safe::line(&offer.base_url)),
        State::NoKey(variable) => format!("no key: set {variable}"),
        State::Failed(cause) => format!("no list of models: {}", safe::line(cause)),
        State::Wrong(cause) => format!("cannot be used: {}", safe::line(cause)),
    }
}

fn models(settings: &Settings, shown: &[&Found], asked: Asked, room: usize) -> String {
    let head = ["  model", "input", "output", "cache read", "cache write", "window", "reply"];
    let mut lines = vec![head.map(str::to_owned)];
    for found in shown {
        let most = if asked == Asked::ByName { usize::MAX } else { SHOWN };
        for (model, about) in found.models.iter().take(most) {
            lines.push(cells(settings, &format!("{}/{model}", found.offer.name), about));
        }
        if found.models.len() > most {
            let more = found.models.len() - most;
            let mut cells = std::array::from_fn(|_| String::new());
            cells[0] = format!("  … and {more} more: brigade models {}", found.offer.name);
            lines.push(cells);
        }
    }
    if lines.len() == 1 { String::new() } else { layout(&lines, Colour::Off, room, 1, &LEFT_OUT) }
}

fn cells(settings: &Settings, name: &str, about: &About) -> [String; 7] {
    let mark = if settings.model.as_deref() == Some(name) { '*' } else { ' ' };
    let [input, output, read, write] = match about.price {
        None => ["-"; 4].map(str::to_owned),
        Some(price) if price.input == 0 && price.output == 0 => ["free"; 4].map(str::to_owned),
        Some(price) => {
            [price.input, price.output, price.cache_read, price.cache_write].map(units::shown_price)
        }
    };
    let tokens = |tokens: Option<u64>| tokens.map_or_else(|| "-".to_owned(), units::short);
    let name = format!("{mark} {}", fit(&safe::line(name), LONGEST_NAME));
    [name, input, output, read, write, tokens(about.window), tokens(about.max_output)]
}

/// Which model runs have that name none.
fn in_force(settings: &Settings) -> String {
    match &settings.model {
        Some(model) => format!("* Runs use {} where nothing else is said.\n", safe::line(model)),
        None => format!(
            "No model is set: name one with --model, or write model = \"PROVIDER/MODEL\" into\n{}\n",
            safe::line(&settings.config_file.display().to_string())
        ),
    }
}

/// All of it for programs.
pub(super) fn json(settings: &Settings, found: &[Found]) -> Value {
    let providers: Vec<Value> = found.iter().map(|found| provider(settings, found)).collect();
    json!({ "prices_of": settings.prices.date(), "model": settings.model, "providers": providers })
}

fn provider(settings: &Settings, found: &Found) -> Value {
    let offer = &found.offer;
    let (word, cause) = match &found.state {
        State::Ready => ("ready", None),
        State::Running(_) => ("running", None),
        State::NotRunning => ("not_running", None),
        State::NoKey(_) => ("no_key", None),
        State::Failed(cause) => ("failed", Some(cause)),
        State::Wrong(cause) => ("wrong", Some(cause)),
    };
    let key = match &offer.key {
        Key::Unneeded => None,
        Key::Set(variable) | Key::Missing(variable) => Some(variable),
    };
    let models = found.models.iter().map(|(model, about)| {
        let name = format!("{}/{model}", offer.name);
        let price = about.price.map(|price| {
            BTreeMap::from([
                ("input", units::float_dollars(price.input)),
                ("output", units::float_dollars(price.output)),
                ("cache_read", units::float_dollars(price.cache_read)),
                ("cache_write", units::float_dollars(price.cache_write)),
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
        "speaks": offer.speaks,
        "address": offer.base_url,
        "state": word,
        "is_usable": found.state.is_usable(),
        "cause": cause,
        "key_variable": key,
        "models": models.collect::<Vec<_>>(),
    })
}
