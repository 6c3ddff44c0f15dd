//! Budget loans across processes: work for another Brigade over MCP, for external agents over ACP, and work that
//! another process passes on to this one.
//!
//! The sending side states its position in the tree and the resources that it lends ([`RemoteContext`]). The
//! receiving side stays within them and returns a usage report. Other modules know neither the keys in `_meta` nor
//! the rules for shares, charges and limits.
//!
//! [`RemoteContext`]: brigade_core::RemoteContext

mod received;
mod sent;

pub(crate) use received::{ancestors, cap, depth, for_next_round, max_mode, narrow};
pub(crate) use sent::{depth_of_work, lendable_rest, share};
