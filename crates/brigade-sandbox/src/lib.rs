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
//! Limits of the guard: a command without a sandbox has the rights of its user, so it can kill the guard with SIGKILL. Its main
//! process then dies with the guard and [`run`] returns [`GuardError::Died`], but processes that it had
//! detached before keep running. Systems other than Linux have no subreaper. There the guard kills only the
//! command's process group, and [`end_stale`] finds nothing.
//!
//! A job with a [`Sandbox`] also confines its command. If neither namespaces nor Landlock are available, the job is refused.
//! [`JobResult::enforcement`] says how the command was confined, and [`KernelFeatures`] what the kernel offers.

mod ancestors;
mod confinement;
#[cfg(target_os = "linux")]
mod descriptors;
mod error;
mod guard;
mod job;
mod kernel_features;
mod launch;
mod layers;
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
#[cfg(target_os = "linux")]
mod remove;
mod runner;
#[cfg(any(target_os = "macos", test))]
mod seatbelt;
mod stale;
#[cfg(target_os = "linux")]
mod usage;

pub use ancestors::guards_above;
pub use confinement::{Confinement, Enforcement, Network, Sandbox, SandboxLimits};
pub use error::GuardError;
pub use guard::guard_main;
pub use job::{
    ExitReason, GuardCommand, Job, JobResult, OutputPiece, ProxyHandler, ResourceLimits, SandboxLimit,
    shell_quoted, single_quoted,
};
pub use kernel_features::{Cgroups, KernelFeatures, Namespaces, namespaces_work};
pub use layers::Layers;
#[cfg(target_os = "linux")]
pub use linux::placeholders::is_placeholder;
pub use os::stop_at_terminal;
#[cfg(target_os = "linux")]
pub use remove::remove_tree;
pub use runner::{run, serve};
pub use stale::end_stale;

/// Whether a path is a placeholder. Only sandboxes on Linux create some.
#[cfg(not(target_os = "linux"))]
pub fn is_placeholder(_path: &std::path::Path) -> bool {
    false
}

/// Removes a directory and everything in it, without following links. A missing one is removed already.
#[cfg(not(target_os = "linux"))]
pub fn remove_tree(path: &std::path::Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
