//! Prices and limits of models: a built-in table, and overrides by the user.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use brigade_core::Price;
use serde::Deserialize;
use url::Url;

use super::ModelInfo;
use super::http::{Locality, locality};

const TABLE_TOML: &str = include_str!("prices.toml");
const NANO_DIGITS: usize = 9;
/// OpenRouter model suffixes that never raise the price.
const OPENROUTER_VARIANTS: [&str; 4] = ["beta", "floor", "free", "thinking"];
/// Vendors whose models OpenRouter sells at the vendor's price. Prices of open models depend on the host.
const OPENROUTER_VENDORS: [(&str, &str); 3] =
    [("anthropic", "anthropic"), ("google", "gemini"), ("openai", "openai")];

/// Providers that run models locally, even if requests carry a key.
const LOCAL_PROVIDERS: [&str; 4] = ["ollama", "lmstudio", "llamacpp", "vllm"];

/// Prices and limits of models by name, `provider/model`.
///
/// An entry matches its own name and that name with a date appended: `anthropic/claude-opus-4-5` matches
/// `anthropic/claude-opus-4-5-20251101`, but `openai/gpt-4o` does not match `openai/gpt-4o-mini`. The
/// built-in table is parsed on first use.
///
/// ```
/// use brigade_models::{ModelOverrides, PriceList};
///
/// let overrides =
///     ModelOverrides { input: Some(3_000_000_000), output: Some(15_000_000_000), ..ModelOverrides::default() };
/// let prices = PriceList::built_in().with("work/large", overrides);
/// assert!(prices.model_info("work/large").price.is_some());
/// assert!(prices.model_info("openai/gpt-4o").window.is_some());
/// assert!(prices.model_info("openai/no-such-model").price.is_none());
/// ```
#[derive(Debug, Clone, Default)]
pub struct PriceList {
    table: TableSource,
    overrides: Arc<BTreeMap<String, ModelOverrides>>,
}

/// The table used for lookups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TableSource {
    #[default]
    None,
    BuiltIn,
}

/// Whether requests to a provider carry a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Requests carry no key.
    Keyless,
    /// Requests carry a key.
    Keyed,
}

/// Overrides for a model. Absent values come from the table.
///
/// Prices are in nano-dollars per million tokens. If `input` is set and a cache price is not, the cache price
/// is an upper bound: reading costs as much as input, and writing a quarter more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelOverrides {
    /// Price of input tokens.
    pub input: Option<u64>,
    /// Price of output tokens.
    pub output: Option<u64>,
    /// Price of input tokens read from a cache.
    pub cache_read: Option<u64>,
    /// Price of input tokens written to a cache.
    pub cache_write: Option<u64>,
    /// Maximum number of tokens in a request and its reply together.
    pub window: Option<u64>,
    /// Maximum number of tokens in a reply.
    pub max_output: Option<u64>,
}

impl PriceList {
    /// Returns the built-in table.
    pub fn built_in() -> PriceList {
        PriceList { table: TableSource::BuiltIn, overrides: Arc::default() }
    }

    /// Adds overrides for a model.
    pub fn with(mut self, name: impl Into<String>, overrides: ModelOverrides) -> PriceList {
        Arc::make_mut(&mut self.overrides).insert(name.into(), overrides);
        self
    }

    /// Returns the date of the table, such as `2026-08-05`, or `None` for a list without a table.
    pub fn date(&self) -> Option<&'static str> {
        self.rows().map(|rows| rows.date.as_str())
    }

    /// Returns the price and limits of a model.
    pub fn model_info(&self, name: &str) -> ModelInfo {
        self.lookup(name, Some(name))
    }

    /// Returns the price and limits of a provider's model at an address. Overrides apply by provider name.
    /// The table applies only at the addresses it was made for. A model on this machine is free unless an
    /// override sets a price. A local server that receives a key may forward requests to a paid service, so
    /// its price is unknown unless the provider is known to run models locally.
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

    /// Returns the provider's model names in the table and the overrides. A name may occur twice.
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
            // An override for `gpt-4o` does not apply to a dated version that has its own price.
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

/// Returns the price plus a quarter, rounded up. No provider charges more for writing to a short-lived cache.
fn cache_write_price(price: u64) -> u64 {
    price.saturating_add(price.div_ceil(4))
}

/// The parsed table.
#[derive(Debug, Default, Deserialize)]
struct PriceTable {
    date: String,
    hosts: BTreeMap<String, String>,
    models: BTreeMap<String, Row>,
}

fn built_in() -> &'static PriceTable {
    static ROWS: OnceLock<PriceTable> = OnceLock::new();
    // A test ensures that the table parses. If it did not, prices would be unknown, and runs with a cost
    // limit would be refused.
    ROWS.get_or_init(|| toml::from_str(TABLE_TOML).unwrap_or_default())
}

impl PriceTable {
    fn find(&self, name: &str) -> Option<Match<'_, Row>> {
        longest_match(&self.models, name).or_else(|| longest_match(&self.models, &vendor_name(name)?))
    }
}

/// Returns the vendor's name for a model that OpenRouter resells.
fn vendor_name(name: &str) -> Option<String> {
    let (maker, model) = name.strip_prefix("openrouter/")?.split_once('/')?;
    let (_, provider) = OPENROUTER_VENDORS.iter().find(|(known, _)| *known == maker)?;
    let model = if maker == "anthropic" { model.replace('.', "-") } else { model.to_owned() };
    Some(format!("{provider}/{model}"))
}

/// An entry that matches a name.
struct Match<'a, T> {
    of: &'a T,
    /// Length of the part of the name that the entry does not cover.
    rest: usize,
}

/// Returns the longest entry that matches a name.
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

/// Whether a text is a date: `20250929` or `2025-09-29`.
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

/// A row of the table. Prices are decimal strings, to avoid rounding by floats.
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
        let refuse = || format!("'{text}' is not a price");
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
