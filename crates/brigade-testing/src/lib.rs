//! Helpers for tests of agents, tools and programs that use Brigade.
//!
//! * [`Script`] builds scripts for the scripted model: which agent replies what in which turn.
//! * [`HttpServer`] is a local server that speaks the wire formats of the model APIs, and can send delayed, truncated or endless
//!   responses.
//! * [`ToolTest`] makes single tool calls, with a workspace in a temporary directory.
//! * [`TestProgram`] and [`guard_entry!`] start the test binary again as a program of its own, such as the guard of
//!   the `shell` tool.
//!
//! ```
//! use brigade::{Models, Runtime, Settings, Task, Workspace};
//! use brigade_testing::{Script, delegate, reply};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let script = Script::new()
//!     .agent("lead", [delegate("Adder", "2 + 2"), reply("Done. {result:0}")])
//!     .agent("Adder", [reply("four.")]);
//! let settings = Settings::new("script", Workspace::open(&std::env::temp_dir())?);
//! let runtime = Runtime::in_memory(settings, Models::default().with("script", script.model()));
//! let result = runtime.start(Task::new("What is two and two?")).await?.await?;
//! assert_eq!(result.outcome.text.as_str(), "Done. [Adder]: four.");
//! # Ok(()) }
//! ```
//!
//! The helpers panic on incorrect use or if a resource is unavailable; see the `# Panics` sections.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test helper reports a failure by failing the test"
)]

mod http;
mod http_server;
mod program;
mod script;
mod tool_test;
mod wire;

pub use brigade::core::Purpose;
pub use brigade_sandbox::GuardCommand;
pub use http::{AfterResponse, HttpRequest, HttpResponse};
pub use http_server::HttpServer;
pub use program::TestProgram;
pub use script::{Fault, Reply, Script, call, delegate, fault, reply};
pub use tool_test::ToolTest;
pub use wire::{ModelReply, WireFormat};
