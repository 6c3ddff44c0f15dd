//! Whole trees on the scripted model: a script, the run, and what its log says.

mod budget;
mod cancel;
mod concurrency;
mod crash;
mod delegate;
mod examples;
mod fence;
mod support;
mod tell;
