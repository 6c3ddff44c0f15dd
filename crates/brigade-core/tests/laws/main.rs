//! Laws of the core: grants only shrink, ledgers balance, requests are valid for any log, events survive JSON.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use std::collections::{BTreeMap, BTreeSet};

use brigade_core::delegation::{Environment, Execution, LimitKind};
use brigade_core::delegation_styles::delegate::{SwarmConfig, SwarmRole};
use brigade_core::delegation_styles::{DELEGATION_TOOLS, delegate};
use brigade_core::event::{Answer, CallFault, Effect, Speaker, TYPES, VERSION};
use brigade_core::grant::{Access, AttenuateError, AuthorityRequest, Names};
use brigade_core::message::Stop;
use brigade_core::network::Target;
use brigade_core::permission::{Mode, Permissions};
use brigade_core::state::{CallProgress, RoundSpec};
use brigade_core::text::{BlobRef, truncate_bytes};
use brigade_core::view::Tree;
use brigade_core::{
    Authority, Budget, CallId, Cursor, Delegation, DelegationStyle, Event, Extent, Grant, Hash, Limit,
    Message, Outcome, Price, Purpose, Record, RemoteContext, Reply, Resources, SeenFile, SessionId, Spent,
    State, Status, Step, Text, ToolCall, ToolOutput, Usage, json,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

mod delegation;
mod events;
mod golden;
mod grants;
mod hosts;
mod ledgers;
mod requests;
mod trees;

use grants::*;
use hosts::*;
use ledgers::*;
use requests::*;

pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}
