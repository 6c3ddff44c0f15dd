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

//!
//! This crate only names the parts: it re-exports the crates of the runtime, the stores, the models and the tools. Its
//! features choose the parts that are compiled. All are on by default. Without default features, and with the feature
//! of one model API, it has the runtime, the in-memory store, the file tools and `shell`.

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
    #[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
    pub use brigade_models::*;
    #[cfg(any(
        feature = "anthropic",
        feature = "gemini",
        feature = "mcp",
        feature = "openai",
        feature = "web"
    ))]
    pub use brigade_proxies::Proxies;
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
        AnyTool, ECHO, EditFile, EditPlan, EditTool, FileError, Files, ListDir, LoadedFile, ProgressReporter,
        ReadFile, RemoteLoan, SeenSlot, Shell, ShellSettings, Tool, ToolChange, ToolContext, Toolbox,
        Workspace, WriteFile,
    };
    #[cfg(feature = "search")]
    pub use brigade_tools::{Glob, Grep};
    #[cfg(feature = "memory")]
    pub use brigade_tools::{Memory, MemoryError, memory};
    #[cfg(feature = "web")]
    pub use brigade_tools::{SearchEngine, SearchError, WebFetch, WebSearch, WebSettings};
}

pub use agents::AgentCatalog;
pub use brigade_base::process;
#[cfg(feature = "store-testing")]
pub use brigade_base::store_laws;
pub use brigade_base::{Follow, Secret};
pub use brigade_core as core;
#[cfg(feature = "mcp")]
pub use brigade_mcp::client as mcp;
pub use brigade_runtime::{
    ApprovalPolicy, DEFAULT_BUDGET, Detached, Limits, ModeOrigin, Observation, Observer, Observers,
    OpenSession, OpenSessions, ResultSchema, ResumeOptions, Run, RunError, RunResult, Runtime, SchemaError,
    SessionInfo, Settings, Task, UndoResult, UndoneFile, external, lifecycle, observer, open_sessions, undo,
};
pub use brigade_runtime::{UnpricedModel, ValidationError};
pub use brigade_tools::skills;
pub use event_stream::{RunEvent, RunEvents};
pub use external::ExternalAgents;
pub use lifecycle::{SubagentCallbacks, SubagentInfo, SubagentResult, SubagentToolCall, SubagentToolResult};
pub use model::{Model, Models};
pub use skills::Skills;
pub use store::{Store, StoreError};
pub use tool::{Tool, ToolContext, Toolbox, Workspace};
