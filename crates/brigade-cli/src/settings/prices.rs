//! Section `prices`.

use std::collections::BTreeMap;

use brigade::model::{Auth, Locality, ModelOverrides, PriceList};
use schemars::JsonSchema;
use serde::Deserialize;

use super::layers::{Layers, quoted};
use super::providers::Providers;
use super::values::{Price, Tokens};
use crate::error::CliError;

/// Name of a model: PROVIDER/MODEL.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ModelName(String);

/// Text that does not name a model.
#[derive(Debug, thiserror::Error)]
#[error("expected PROVIDER/MODEL in quotes, as in `[prices.\"openai/gpt-4.1\"]`")]
pub(super) struct InvalidModelName;

impl TryFrom<String> for ModelName {
    type Error = InvalidModelName;

    fn try_from(name: String) -> Result<ModelName, InvalidModelName> {
        match name.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => Ok(ModelName(name)),
            _ => Err(InvalidModelName),
        }
    }
}

/// Entry of a model.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawPrice {
    /// Dollars per million input tokens.
    input: Option<Price>,
    /// Dollars per million output tokens.
    output: Option<Price>,
    /// Dollars per million input tokens read from the cache.
    cache_read: Option<Price>,
    /// Dollars per million input tokens written to the cache.
    cache_write: Option<Price>,
    /// Maximum tokens of a request.
    context_window: Option<Tokens>,
    /// Maximum tokens of a reply.
    max_output: Option<Tokens>,
}

impl RawPrice {
    fn figures(self) -> ModelOverrides {
        let RawPrice { input, output, cache_read, cache_write, context_window, max_output } = self;
        let nano = |price: Option<Price>| price.map(|Price(nano)| nano);
        let tokens = |count: Option<Tokens>| count.map(|Tokens(count)| count);
        ModelOverrides {
            input: nano(input),
            output: nano(output),
            cache_read: nano(cache_read),
            cache_write: nano(cache_write),
            window: tokens(context_window),
            max_output: tokens(max_output),
        }
    }

    fn has_price(&self) -> bool {
        [self.input, self.output, self.cache_read, self.cache_write].iter().any(Option::is_some)
    }
}

/// Built-in price list with the entries of the configuration. An entry that can have no effect is an error.
pub(super) fn resolve(
    raw: &BTreeMap<ModelName, RawPrice>,
    providers: &Providers,
    layers: &Layers,
) -> Result<PriceList, CliError> {
    let mut list = PriceList::built_in();
    for (ModelName(name), raw) in raw {
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
                 `output`, in dollars per million tokens."
            )));
        }
        list = list.with(name, figures);
    }
    Ok(list)
}
