//! The subcommands, one module each.

pub(crate) mod acp;
pub(crate) mod agents;
pub(crate) mod answer;
pub(crate) mod cancel;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod init;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod models;
pub(crate) mod resume;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod tell;
pub(crate) mod tools;
pub(crate) mod trust;
