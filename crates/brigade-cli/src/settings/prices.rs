//! Section `prices`.

use std::collections::BTreeMap;

use brigade::model::{Auth, Locality, ModelOverrides, PriceList};
use serde::Deserialize;
use toml::Value;

use super::keys;
use super::layers::{Layers, quoted};
use super::providers::Providers;
use crate::error::CliError;

/// Raw entry of a model.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawPrice {
    input: Option<Value>,
    output: Option<Value>,
    cache_read: Option<Value>,
    cache_write: Option<Value>,
    context_window: Option<u64>,
    max_output: Option<u64>,
}

impl RawPrice {
    fn figures(&self) -> ModelOverrides {
        // Invalid prices were rejected when the file was checked.
        let price = |value: &Option<Value>| value.as_ref().and_then(keys::price);
        ModelOverrides {
            input: price(&self.input),
            output: price(&self.output),
            cache_read: price(&self.cache_read),
            cache_write: price(&self.cache_write),
            window: self.context_window,
            max_output: self.max_output,
        }
    }

    fn has_price(&self) -> bool {
        [&self.input, &self.output, &self.cache_read, &self.cache_write].iter().any(|value| value.is_some())
    }
}

/// Built-in price list with the entries of the configuration. An entry that can have no effect is an error.
pub(super) fn resolve(
    raw: &BTreeMap<String, RawPrice>,
    providers: &Providers,
    layers: &Layers,
) -> Result<PriceList, CliError> {
    let mut list = PriceList::built_in();
    for (name, raw) in raw {
        let wrong = |problem: String| {
            let origin = layers.origin(&["prices", name]);
            CliError::usage(format!("{origin}: prices.{}: {problem}", quoted(name)))
        };
        let (provider, model) = name.split_once('/').unwrap_or((name, ""));
        let Some(base_url) = providers.address(provider) else {
            return Err(wrong(providers.unknown(provider)));
        };
        let figures = raw.figures();
        let alone = PriceList::default().with(name, figures).model_info(name).price;
        let is_known = || {
            Locality::of(provider, base_url) == Ok(Locality::Remote)
                && PriceList::built_in().model_info_at(base_url, provider, model, Auth::Keyed).price.is_some()
        };
        if raw.has_price() && alone.is_none() && !is_known() {
            let missing = if raw.input.is_none() { "input" } else { "output" };
            return Err(wrong(format!(
                "`{missing}` is missing, and the built-in price list has no entry for this model. Set both `input` and \
                 `output`, in dollars per million tokens"
            )));
        }
        list = list.with(name, figures);
    }
    Ok(list)
}
