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
//!     .agent(Agent::new("reviewer", "Reviews a file and lists its defects.").tools(["read_file", "grep"]))
//!     .budget(Budget::usd(2.50))
//!     .build()?
//!     .run("Review src/lib.rs")
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
//!
//! Apart from the builder, this crate re-exports the crates of the runtime, the stores, the models and the tools. Features
//! select what is compiled; all but `store-kit` and `store-testing` are on by default. With `default-features = false`
//! and one model API, it contains the runtime, the in-memory store, the file tools and `shell`.

mod builder;

/// Agent definitions and their sources.
pub mod agents {
    pub use brigade_agents::*;
    pub use brigade_base::Secret;
}

/// Event stream of a running tree: events once they are durable, and provisional deltas that are never stored.
pub mod event_stream {
    pub use brigade_base::event_stream::{RunEvent, RunEvents};
}

/// Models: the `Model` trait, its requests and its streamed replies.
pub mod model {
    pub use brigade_base::model::*;
    #[cfg(any(feature = "mcp", feature = "models", feature = "web"))]
    pub use brigade_http_client::Proxies;
    #[cfg(feature = "models")]
    pub use brigade_models::*;
}

/// Storage of session logs. The store is also the message bus: a message to a session is an append to its log.
pub mod store {
    #[cfg(feature = "store-kit")]
    pub use brigade_base::store::backend;
    #[cfg(feature = "store-testing")]
    pub use brigade_base::store::testing;
    pub use brigade_base::store::{
        Append, Appended, Blocker, BlockerState, BrokenKind, DecodeError, Expect, Followers, ImportError,
        ImportReport, ImportedRound, Lease, Liveness, Loans, MemoryStore, Owner, PendingCall, Prefix,
        ReturnedChild, RootSummary, Store, StoreError, Totals, TreeTotals, Truncation, export, import,
        memory,
    };
    #[cfg(feature = "sqlite")]
    pub use brigade_sqlite as sqlite;
    #[cfg(feature = "sqlite")]
    pub use brigade_sqlite::{HealthCheck, Integrity, SqliteStore};
}

/// Tools: the actions available to agents besides messages and delegation.
pub mod tool {
    pub use brigade_tools::{
        AnyTool, CallTitle, ECHO, EditFile, EditPlan, EditTool, FileError, FileGuard, Files, HostAsker,
        ListDir, LoadedFile, OpenRequest, ProgressReporter, ReadFile, RemoteLoan, SandboxedShell, SeenSlot,
        Shell, ShellSettings, Tool, ToolChange, ToolContext, Toolbox, Workspace, WriteFile, known_arguments,
    };
    #[cfg(feature = "search")]
    pub use brigade_tools::{Glob, Grep};
    #[cfg(feature = "memory")]
    pub use brigade_tools::{Memory, MemoryError, memory};
    #[cfg(feature = "web")]
    pub use brigade_tools::{SearchEngine, SearchError, WebFetch, WebSearch, WebSettings};
}

pub use agents::AgentCatalog;
pub use brigade_base::redactor::Redactor;
#[cfg(feature = "store-testing")]
pub use brigade_base::store_laws;
pub use brigade_base::{Follow, Secret};
pub use brigade_base::{pinned_files, process, redactor, sandbox};
pub use brigade_core as core;
pub use brigade_core::event::Effect;
pub use brigade_core::permission::{Mode, Permissions};
pub use brigade_core::project_files;
pub use brigade_core::{Agent, Budget, Event, SessionId, Status, ToolOutput};
#[cfg(feature = "mcp")]
pub use brigade_mcp::client as mcp;
#[cfg(feature = "models")]
pub use brigade_models::provider::{self, Provider};
pub use brigade_runtime::{
    ApprovalPolicy, DEFAULT_BUDGET, Detached, Limits, ModeOrigin, Observation, Observer, Observers,
    OpenSession, OpenSessions, ResultSchema, ResumeOptions, Run, RunError, RunResult, Runtime, SchemaError,
    SessionInfo, Settings, Task, UndoResult, UndoneFile, UnpricedModel, ValidationError, external, lifecycle,
    observer, open_sessions, undo,
};
pub use brigade_tools::skills;
pub use builder::{Brigade, BrigadeBuilder, BuildError, TaskRun, known_tools, unmatched_rule};
pub use event_stream::{RunEvent, RunEvents};
pub use external::ExternalAgents;
pub use lifecycle::{SubagentCallbacks, SubagentInfo, SubagentResult, SubagentToolCall, SubagentToolResult};
pub use model::{Model, Models};
pub use schemars;
pub use skills::Skills;
pub use store::{Store, StoreError};
pub use tool::{Tool, ToolContext, Toolbox, Workspace};
