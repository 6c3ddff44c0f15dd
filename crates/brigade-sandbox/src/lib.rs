//! Runs a command under a *guard process* and leaves no process behind.
//!
//! The runner never starts a command itself. It starts a guard, and the guard starts the command. The guard
//! is a child subreaper, so every process that the command starts stays a descendant of the guard, even if it
//! detaches itself. The guard holds a pipe to the runner. It kills all of its descendants when the command's
//! main process exits, when the time limit is reached, or when the pipe closes. The pipe closes when the
//! future is dropped or the runner dies, even by `kill -9`. The guard reports only after the kernel says that
//! it has no child left.
//!
//! The order of events makes it safe to close an interrupted call:
//!
//! 1. The runner starts the guard with the job's tag as its last argument.
//! 2. The guard reports that it is ready. From here on [`end_stale`] can find it by its tag.
//! 3. Only then does the runner send the job. An incomplete job is not run.
//! 4. The guard runs the command, kills every descendant, and sends one report with the bounded output.
//!
//! Limits of the guard: a command has the rights of its user, so it can kill the guard with SIGKILL. Its main
//! process then dies with the guard and [`run`] returns [`GuardError::Died`], but processes that it had
//! detached before keep running. Systems other than Linux have no subreaper. There the guard kills only the
//! command's process group, and [`end_stale`] finds nothing.
//!
//! A command is guarded, not confined: it has the rights of its user. A job with a [`Confinement`] other than
//! none is refused. [`KernelFeatures`] reports what the kernel would offer.

mod ancestors;
mod confinement;
mod error;
mod guard;
mod job;
mod kernel_features;
mod launch;
#[cfg(target_os = "linux")]
mod linux;
#[expect(
    unsafe_code,
    reason = "signal dispositions, the steps between fork and exec, namespaces and the version of Landlock have no safe interface"
)]
mod os;
mod output;
mod processes;
mod protocol;
mod runner;
mod stale;
mod usage;

pub use ancestors::guards_above;
pub use confinement::{Confinement, Enforcement, Network, Sandbox, SandboxLimits};
pub use error::GuardError;
pub use guard::guard_main;
pub use job::{
    ExitReason, GuardCommand, Job, JobResult, OutputPiece, ProxyHandler, ResourceLimits, SandboxLimit,
    shell_quoted, single_quoted,
};
pub use kernel_features::{Cgroups, KernelFeatures, Namespaces};
pub use os::stop_at_terminal;
pub use runner::{run, serve};
pub use stale::end_stale;
