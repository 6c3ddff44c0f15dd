//! Built-in tools, called through the same interface as the driver uses.

mod editing;
mod paths;
mod policy;
mod private;
mod reading;
mod schemas;
mod searching;
mod shell;
mod single_call;
mod support;
