//! Runtime for agents that delegate to sub-agents.
//!
//! A lead agent splits a task, delegates the parts to specialists and combines their results. Each agent is a session
//! with its own prompt, tools, budget and depth limit. Each session is an append-only log in a [`Store`]. Budgets are
//! reserved before they are spent, and a child never holds more than its parent lent it. A tree that was killed at any
//! moment resumes from its last event.
//!
//! ```
//! use brigade::model::script::Script;
//! use brigade::{Models, Runtime, Settings, Task, Workspace};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let script = Script::parse("[[reply]]\ntext = 'Four.'")?;
//! let folder = std::env::temp_dir();
//! let settings = Settings::new("script", Workspace::open(&folder)?);
//! let runtime = Runtime::in_memory(settings, Models::default().with("script", script));
//! let result = runtime.start(Task::new("What is two and two?")).await?.await?;
//! assert_eq!(result.outcome.text.as_str(), "Four.");
//! # Ok(()) }
//! ```
//!
//! The library never prints, and it does not read the environment or the home directory.

pub mod agents;
mod builder;
mod clock;
mod concurrency;
mod environment;
pub mod event_stream;
pub mod external;
mod fast_map;
mod follow;
mod jitter;
pub mod lifecycle;
pub mod mcp;
pub mod model;
pub mod observer;
pub mod open_sessions;
pub mod process;
pub mod provider;
mod remote;
mod resolved_agent;
mod runtime;
mod schema;
mod secret;
mod session;
mod settings;
pub mod skills;
pub mod store;
mod task;
pub mod tool;
mod tree;
mod undo;
mod writes;

#[doc(inline)]
pub use agents::AgentCatalog;
pub use brigade_core as core;
#[doc(inline)]
pub use brigade_core::event::Effect;
#[doc(inline)]
pub use brigade_core::permission::{Mode, Permissions};
#[doc(inline)]
pub use brigade_core::{Agent, Budget, Event, SessionId, Status, ToolOutput};
pub use builder::{Brigade, BrigadeBuilder, BuildError, TaskRun, known_tools};
#[doc(inline)]
pub use event_stream::{RunEvent, RunEvents};
#[doc(inline)]
pub use external::ExternalAgents;
pub use follow::Follow;
#[doc(inline)]
pub use lifecycle::{SubagentCallbacks, SubagentInfo, SubagentResult, SubagentToolCall, SubagentToolResult};
#[doc(inline)]
pub use model::{Model, Models};
#[doc(inline)]
pub use observer::{Observation, Observer, Observers};
pub use open_sessions::{OpenSession, OpenSessions};
#[doc(inline)]
pub use provider::Provider;
pub use runtime::{Detached, ResumeOptions, Run, RunError, RunResult, Runtime, SessionInfo, Task};
pub use schema::{ResultSchema, SchemaError};
pub use schemars;
pub use secret::Secret;
pub use settings::{ApprovalPolicy, DEFAULT_BUDGET, Limits, ModeOrigin, Settings};
#[doc(inline)]
pub use skills::Skills;
#[doc(inline)]
pub use store::{Store, StoreError};
#[doc(inline)]
pub use tool::{Tool, ToolContext, Toolbox, Workspace};
pub use undo::{UndoResult, UndoneFile, undo};
