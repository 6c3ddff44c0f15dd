//! Runtime for agents that delegate to sub-agents.
//!
//! A lead agent splits a task, delegates the parts to specialists and combines their results. Each agent is a session
//! with its own prompt, tools, budget and depth limit. Each session is an append-only log in a [`Store`]. Budgets are
//! reserved before they are spent, and a child never holds more than its parent lent it. A tree that was killed at any
//! moment resumes from its last event.
//!
//! A real model, a sub-agent and a budget in dollars:
//!
//! ```no_run
//! use brigade::provider::Anthropic;
//! use brigade::{Agent, Brigade, Budget};
//!
//! # async fn example(key: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let result = Brigade::builder()
//!     .model(Anthropic::new(key).model("claude-sonnet-4-5"))
//!     .workspace(".")
//!     .agent(Agent::new("reviewer", "Reviews a change and lists its defects.").tools(["read_file", "grep"]))
//!     .budget(Budget::usd(2.50))
//!     .build()?
//!     .run("Review the last change")
//!     .await?;
//! println!("{} (${:.2}, {} tokens)", result.text(), result.cost_usd(), result.tokens());
//! # Ok(()) }
//! ```
//!
//! A scripted model needs no key and no network:
//!
//! ```
//! use brigade::model::script::Script;
//! use brigade::{Brigade, Budget};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let directory = folder.path();
//! let script = Script::parse("[[reply]]\ntext = 'Four.'")?;
//! let result = Brigade::builder()
//!     .custom_model("script", script)
//!     .workspace(directory)
//!     .budget(Budget::tokens(10_000))
//!     .build()?
//!     .run("What is two and two?")
//!     .await?;
//! assert_eq!(result.text(), "Four.");
//! # Ok(()) }
//! ```
//!
//! | To | Use |
//! |---|---|
//! | choose a model | [`provider`]: Anthropic, OpenAI, Gemini, any compatible server |
//! | add a tool | [`Tool`] with a typed input |
//! | follow a run | [`TaskRun`] as a stream of [`RunEvent`], [`SubagentCallbacks`] |
//! | keep and resume sessions | [`BrigadeBuilder::store`] with a [`store::SqliteStore`], [`Brigade::resume`] |
//! | decide about approvals | [`BrigadeBuilder::approvals`], [`Run::answer`] |
//! | do anything else | [`Runtime`] and [`Settings`], which the builder fills |
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
