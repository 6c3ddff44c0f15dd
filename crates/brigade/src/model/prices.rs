//! What models cost and how much they read and write: a table that comes with the library, and what people add to it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use brigade_core::Price;
use serde::Deserialize;
use url::Url;

use super::ModelInfo;
use super::http::{Locality, locality};

const TABLE_TOML: &str = include_str!("prices.toml");
const NANO_DIGITS: usize = 9;
/// Words that OpenRouter lets one put behind a model and that never make it dearer.
const OPENROUTER_VARIANTS: [&str; 4] = ["beta", "floor", "free", "thinking"];
/// Whose models OpenRouter passes on for the price of their maker. Open models cost there what one of many hosts takes.
const OPENROUTER_VENDORS: [(&str, &str); 3] =
    [("anthropic", "anthropic"), ("google", "gemini"), ("openai", "openai")];

/// Providers that run models themselves, whatever is sent to them.
const LOCAL_PROVIDERS: [&str; 4] = ["ollama", "lmstudio", "llamacpp", "vllm"];

/// What is known of models by their names, `provider/model`.
///
/// An entry answers for its own name and for that name with a date behind it: `anthropic/claude-opus-4-5` also for
/// `anthropic/claude-opus-4-5-20251101`, but `openai/gpt-4o` not for `openai/gpt-4o-mini`. The table is read when it
/// is first asked.
///
/// ```
/// use brigade::model::{ModelOverrides, PriceList};
///
/// let prices = PriceList::built_in()
///     .with("work/large", ModelOverrides { input: Some(3_000_000_000), output: Some(15_000_000_000), ..ModelOverrides::default() });
/// assert!(prices.model_info("work/large").price.is_some());
/// assert!(prices.model_info("openai/gpt-4o").window.is_some());
/// assert!(prices.model_info("openai/no-such-model").price.is_none());
/// ```
#[derive(Debug, Clone, Default)]
pub struct PriceList {
    table: TableSource,
    overrides: Arc<BTreeMap<String, ModelOverrides>>,
}

/// Which table is looked into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TableSource {
    #[default]
    None,
    BuiltIn,
}

/// Whether requests to a provider carry a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// They carry none.
    Keyless,
    /// They carry one.
    Keyed,
}

/// What somebody says about a model. Whatever is absent is as the table has it.
///
/// Prices are nano-dollars per million tokens. Where `input` is given and the price of a cache is not, it is set so
/// high that it is not below the real one: reading costs as much as input, writing a quarter more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelOverrides {
    /// Input tokens.
    pub input: Option<u64>,
    /// Output tokens.
    pub output: Option<u64>,
    /// Input tokens read from a cache.
    pub cache_read: Option<u64>,
    /// Input tokens written to a cache.
    pub cache_write: Option<u64>,
    /// How many tokens a request and its reply may have together.
    pub window: Option<u64>,
    /// How many tokens a reply may have.
    pub max_output: Option<u64>,
}

impl PriceList {
    /// The table that comes with the library.
    pub fn built_in() -> PriceList {
        PriceList { table: TableSource::BuiltIn, overrides: Arc::default() }
    }

    /// The same list, where this is said about a model.
    pub fn with(mut self, name: impl Into<String>, overrides: ModelOverrides) -> PriceList {
        Arc::make_mut(&mut self.overrides).insert(name.into(), overrides);
        self
    }

    /// The day of the table, such as `2026-08-05`; `None` for a list without one.
    pub fn date(&self) -> Option<&'static str> {
        self.rows().map(|rows| rows.date.as_str())
    }

    /// What is known of a model.
    pub fn model_info(&self, name: &str) -> ModelInfo {
        self.lookup(name, Some(name))
    }

    /// What is known of the model of a provider at an address. People speak of the provider by its name; the table
    /// holds at the addresses that it was made for. On this machine a model costs nothing, unless somebody says
    /// otherwise. A server here that is sent a key may pass requests on for money: its price is not known, unless the
    /// provider is known to run models itself.
    pub fn model_info_at(&self, base_url: &str, provider: &str, model: &str, auth: Auth) -> ModelInfo {
        match Url::parse(base_url.trim()) {
            Ok(base) => self.model_info_for(&base, provider, model, auth),
            Err(_) => self.lookup(&format!("{provider}/{model}"), None),
        }
    }

    pub(super) fn model_info_for(&self, base: &Url, provider: &str, model: &str, auth: Auth) -> ModelInfo {
        let name = format!("{provider}/{model}");
        match locality(base) {
            Locality::Local => {
                let info = self.lookup(&name, None);
                let is_free = auth == Auth::Keyless || LOCAL_PROVIDERS.contains(&provider);
                ModelInfo { price: info.price.or_else(|| is_free.then(Price::default)), ..info }
            }
            Locality::Remote => {
                let vendor = base.host_str().and_then(|host| self.rows()?.hosts.get(host));
                let model = model.strip_prefix("models/").unwrap_or(model);
                self.lookup(&name, vendor.map(|vendor| format!("{vendor}/{model}")).as_deref())
            }
        }
    }

    /// The names of a provider's models that the table or somebody else speaks of. One may come twice.
    pub fn models<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = &'a str> {
        let table = self.rows().into_iter().flat_map(|rows| rows.models.keys());
        let names = table.chain(self.overrides.keys()).map(String::as_str);
        names.filter(move |name| name.strip_prefix(provider).is_some_and(|rest| rest.starts_with('/')))
    }

    fn lookup(&self, name: &str, in_table: Option<&str>) -> ModelInfo {
        let table = in_table.and_then(|name| self.rows()?.find(name));
        let overridden = longest_match(&self.overrides, name);
        match (overridden, table) {
            (None, None) => ModelInfo::default(),
            (None, Some(row)) => row.of.model_info(),
            (Some(overridden), None) => overridden.of.apply_to(&ModelInfo::default()),
            // What people say of `gpt-4o` they do not say of a dated version that has a price of its own.
            (Some(overridden), Some(row)) if row.rest < overridden.rest => row.of.model_info(),
            (Some(overridden), Some(row)) => overridden.of.apply_to(&row.of.model_info()),
        }
    }

    fn rows(&self) -> Option<&'static PriceTable> {
        match self.table {
            TableSource::None => None,
            TableSource::BuiltIn => Some(built_in()),
        }
    }
}

impl ModelOverrides {
    fn apply_to(&self, info: &ModelInfo) -> ModelInfo {
        ModelInfo {
            price: self.price(info.price),
            window: self.window.or(info.window),
            max_output: self.max_output.or(info.max_output),
            framing: info.framing,
        }
    }

    fn price(&self, table: Option<Price>) -> Option<Price> {
        let input = self.input.or_else(|| Some(table?.input))?;
        let output = self.output.or_else(|| Some(table?.output))?;
        let (read, write) = match (self.input, table) {
            (None, Some(table)) => (table.cache_read, table.cache_write),
            (Some(input), table) => {
                (input, cache_write_price(input).max(table.map_or(0, |table| table.cache_write)))
            }
            (None, None) => (input, cache_write_price(input)),
        };
        Some(Price {
            input,
            output,
            cache_read: self.cache_read.unwrap_or(read),
            cache_write: self.cache_write.unwrap_or(write),
        })
    }
}

/// A quarter more, rounded up: no provider takes more for writing to a cache that lasts minutes.
fn cache_write_price(price: u64) -> u64 {
    price.saturating_add(price.div_ceil(4))
}

/// The table, read.
#[derive(Debug, Default, Deserialize)]
struct PriceTable {
    date: String,
    hosts: BTreeMap<String, String>,
    models: BTreeMap<String, Row>,
}

fn built_in() -> &'static PriceTable {
    static ROWS: OnceLock<PriceTable> = OnceLock::new();
    // That it can be read is tested. If it ever could not, nothing would be known, which only refuses.
    ROWS.get_or_init(|| toml::from_str(TABLE_TOML).unwrap_or_default())
}

impl PriceTable {
    fn find(&self, name: &str) -> Option<Match<'_, Row>> {
        longest_match(&self.models, name).or_else(|| longest_match(&self.models, &vendor_name(name)?))
    }
}

/// The name that the maker of a model has for it, where OpenRouter passes it on.
fn vendor_name(name: &str) -> Option<String> {
    let (maker, model) = name.strip_prefix("openrouter/")?.split_once('/')?;
    let (_, provider) = OPENROUTER_VENDORS.iter().find(|(known, _)| *known == maker)?;
    let model = if maker == "anthropic" { model.replace('.', "-") } else { model.to_owned() };
    Some(format!("{provider}/{model}"))
}

/// An entry that answers for a name.
struct Match<'a, T> {
    of: &'a T,
    /// How much of the name it does not say.
    rest: usize,
}

/// The longest entry that answers for a name.
fn longest_match<'a, T>(entries: &'a BTreeMap<String, T>, name: &str) -> Option<Match<'a, T>> {
    let answering = entries.iter().filter(|(entry, _)| matches_name(entry, name));
    let (entry, of) = answering.max_by_key(|(entry, _)| entry.len())?;
    Some(Match { of, rest: name.len().saturating_sub(entry.len()) })
}

fn matches_name(entry: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(entry) else { return false };
    let (version, variant) =
        rest.split_once(':').map_or((rest, None), |(version, word)| (version, Some(word)));
    let is_dated = version.strip_prefix(['-', '@']).is_some_and(is_date);
    (version.is_empty() || is_dated) && variant.is_none_or(|word| OPENROUTER_VARIANTS.contains(&word))
}

/// Whether a text is a day: `20250929` or `2025-09-29`.
fn is_date(text: &str) -> bool {
    let digits =
        |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = text.split('-').collect();
    match parts.as_slice() {
        [day] => digits(day, 8),
        [year, month, day] => digits(year, 4) && digits(month, 2) && digits(day, 2),
        _ => false,
    }
}

/// A row as it is written. Prices are decimal text, so that none passes through a float.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    input: NanoDollars,
    output: NanoDollars,
    cache_read: Option<NanoDollars>,
    cache_write: Option<NanoDollars>,
    context_window: u64,
    max_output: u64,
}

impl Row {
    fn model_info(&self) -> ModelInfo {
        let input = self.input.0;
        let price = Price {
            input,
            output: self.output.0,
            cache_read: self.cache_read.as_ref().map_or(input, |price| price.0),
            cache_write: self.cache_write.as_ref().map_or(input, |price| price.0),
        };
        ModelInfo {
            price: Some(price),
            window: Some(self.context_window),
            max_output: Some(self.max_output),
            ..ModelInfo::default()
        }
    }
}

/// Nano-dollars, written as dollars.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
struct NanoDollars(u64);

impl TryFrom<String> for NanoDollars {
    type Error = String;

    fn try_from(text: String) -> Result<NanoDollars, String> {
        let refuse = || format!("'{text}' is no price");
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || fraction.len() > NANO_DIGITS || !is_number(whole) || !is_number(fraction) {
            return Err(refuse());
        }
        let digits = format!("{whole}{fraction:0<NANO_DIGITS$}");
        digits.parse().map(NanoDollars).map_err(|_| refuse())
    }
}

#[cfg(test)]
mod tests;
