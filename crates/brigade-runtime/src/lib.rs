//! The runtime: drives the sessions of a tree of agents over a store.

mod concurrency;
mod environment;
pub mod external;
pub mod lifecycle;
pub mod observer;
pub mod open_sessions;
mod remote;
mod resolved_agent;
mod runtime;
mod schema;
mod session;
mod settings;
mod tree;
mod undo;
mod writes;

use brigade_agents as agents;
use brigade_base::{clock, event_stream, fast_map, jitter, model, process, redactor, sandbox, store, task};
use brigade_tools as tool;
use brigade_tools::skills;

pub use observer::{Observation, Observer, Observers};
pub use open_sessions::{OpenSession, OpenSessions};
pub use resolved_agent::UnpricedModel;
pub use runtime::{Detached, ResumeOptions, Run, RunError, RunResult, Runtime, SessionInfo, Task};
pub use schema::{ResultSchema, SchemaError, ValidationError};
pub use settings::{ApprovalPolicy, DEFAULT_BUDGET, Limits, ModeOrigin, Settings};
pub use undo::{UndoResult, UndoneFile, undo};
