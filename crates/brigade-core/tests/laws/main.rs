//! Laws of the core: grants only shrink, books balance, requests are valid whatever the log, facts survive JSON.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use std::collections::{BTreeMap, BTreeSet};

use brigade_core::delegation::{Environment, Waiting, Which};
use brigade_core::event::{Answer, CallFault, Effect, Speaker, TYPES, VERSION};
use brigade_core::faces::delegate::{SwarmConfig, SwarmRole};
use brigade_core::faces::{DELEGATION_TOOLS, delegate};
use brigade_core::grant::{Access, Names, Refusal, Wish};
use brigade_core::message::Stop;
use brigade_core::permission::{Mode, Permissions};
use brigade_core::state::{CallProgress, Round};
use brigade_core::text::{Aside, cut};
use brigade_core::view::Tree;
use brigade_core::{
    Amount, Authority, Budget, CallId, Delegation, Event, Extent, Face, Grant, Hash, Hop, Limit, Message,
    Outcome, Price, Purpose, Record, Reply, SeenFile, SessionId, Spent, State, Status, Step, Text, ToolCall,
    ToolOutput, Usage, json,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

mod books;
mod facts;
mod golden;
mod grants;
mod requests;

use books::*;
use grants::*;
use requests::*;

pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}
