//! Runs a command under a *guard process* and leaves nothing of it behind.
//!
//! The runner never starts a command itself. It starts a guard, and the guard starts the command. The guard
//! is a child subreaper, so every process that the command starts, however it detaches itself, stays a
//! descendant of the guard. The guard holds a pipe to the runner. When the command's main process ends, when
//! its time is up, or when the pipe closes (the future was dropped, or the runner died, even by `kill -9`), the
//! guard kills all of its descendants until the kernel says that it has no child left, and only then reports.
//!
//! The order of events makes an interrupted call safe to close:
//!
//! 1. The runner starts the guard with the job's mark as its last argument.
//! 2. The guard says that it is ready. From here on [`end_stale`] can find it by its mark.
//! 3. Only then the runner sends the job. A job that does not arrive whole is not run.
//! 4. The guard runs the command, ends every descendant, and sends one report with the bounded output.
//!
//! What the guard cannot do: a command has the rights of its user, so it can kill the guard with SIGKILL. Then
//! its main process dies with the guard, [`run`] answers [`GuardError::Died`], but processes that it had
//! detached before stay. On systems other than Linux there is no subreaper; there the guard ends the command's
//! process group only, and [`end_stale`] finds nothing.
//!
//! A command is guarded, not confined: it has the rights of its user. [`KernelFeatures`] says what the kernel would offer.

mod ancestors;
mod error;
mod guard;
mod job;
mod kernel_features;
#[expect(
    unsafe_code,
    reason = "signal dispositions, the steps between fork and exec and the version of Landlock have no safe interface"
)]
mod os;
mod output;
mod processes;
mod protocol;
mod runner;
mod stale;

pub use ancestors::runs_under;
pub use error::GuardError;
pub use guard::guard_main;
pub use job::{ExitReason, GuardCommand, Job, JobResult, OutputPiece, ResourceLimits};
pub use kernel_features::{Cgroups, KernelFeatures, Namespaces};
pub use os::stop_at_terminal;
pub use runner::{run, serve};
pub use stale::end_stale;
