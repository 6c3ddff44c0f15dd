//! Tests of the model adapters, against well-behaved and misbehaving local servers.

mod anthropic;
mod cut_runs;
mod cuts;
mod facade;
mod failures;
mod gemini;
mod hung;
mod limits;
mod model_info;
mod observer;
mod openai;
mod pool;
mod prompt_cache;
mod recorded;
mod responses;
pub(crate) mod server;
mod storm;
mod streams;
mod tree;
mod usage;
mod usage_law;
