//! Providers of models: adapters for their APIs over one HTTP transport, with rate limits and prices.

// Without some features, parts that only their adapters use are left over.
#![cfg_attr(
    not(all(feature = "anthropic", feature = "gemini", feature = "openai")),
    allow(dead_code, unused_imports)
)]

#[cfg(feature = "anthropic")]
pub mod anthropic;
#[cfg(all(feature = "anthropic", feature = "gemini", feature = "openai"))]
#[cfg(test)]
mod fuzz;
#[cfg(feature = "gemini")]
pub mod gemini;
mod http;
mod list;
#[cfg(feature = "openai")]
pub mod openai;
mod prices;
#[cfg(any(feature = "anthropic", feature = "openai"))]
mod quirks;
mod rate_limit;
#[cfg(feature = "openai")]
pub mod responses;
pub mod sse;
mod tool_cache;
mod usage_estimate;

#[cfg(test)]
use brigade_base::model::Ingest;
use brigade_base::model::{Chunk, Model, ModelError, ModelInfo, Request};

pub use http::{Endpoint, EndpointError, Locality, Timeouts};
pub use list::{Api, ListError, ListedModel, list, list_all};
pub use prices::{Auth, ModelOverrides, PriceList};
pub use rate_limit::RateLimits;
