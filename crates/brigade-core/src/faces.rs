//! The contracts for delegation, one file each: JSON to [`Delegation`](crate::Delegation),
//! [`Outcome`](crate::Outcome) to text.

pub mod delegate;

/// The names of all tools that delegate. An agent at its depth limit has none of them, whatever its whitelist says.
pub const DELEGATION_TOOLS: [&str; 6] =
    ["delegate", "subagent", "parallel_subagent", "subagent_dispatch", "subagent_spawn", "subagent_delegate"];

/// The tool that speaks to the person.
pub const MESSAGE: &str = "message";
