//! Events and decisions of Brigade.
//!
//! A session is an append-only log of [`Event`]s. [`State`] folds that log and determines the next step. A
//! delegation is an event in the parent's log that lends a child a smaller [`Grant`]. Nothing in this crate does
//! I/O, reads a clock, draws random numbers or awaits, and nothing in it panics on input.

pub mod agent;
pub mod amount;
pub mod approval;
pub mod cursor;
pub mod delegation;
pub mod delegation_styles;
pub mod event;
pub mod external_limits;
pub mod grant;
pub mod host_question;
pub mod id;
pub mod json;
pub mod message;
pub mod money;
pub mod network;
pub mod permission;
pub mod project_files;
pub mod remote_context;
pub mod sandbox;
pub mod seen;
pub mod state;
pub mod text;
pub mod tool_names;
pub mod usage_report;
pub mod view;

pub use agent::{Agent, Backend};
pub use cursor::Cursor;
pub use delegation::{Delegation, DelegationStyle, Outcome, Status};
pub use event::{Event, Record};
pub use grant::{Authority, Budget, Grant, Limit};
pub use host_question::QuestionId;
pub use id::{CallId, Hash, SessionId};
pub use message::{Message, Reply, ToolCall, ToolOutput, ToolSpec};
pub use money::{Price, Resources, Spent, Usage};
pub use remote_context::RemoteContext;
pub use seen::{Extent, SeenFile};
pub use state::{Purpose, State, Step};
pub use text::Text;
