//! The steps that have no safe interface: signal dispositions, what a child does between fork and exec, and the question
//! which Landlock there is.
//!
//! The closures given to `pre_exec` run in a forked copy of a process that may have had threads. They call
//! only functions that are safe there: plain system calls, no allocation, no lock.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Resource, Rlimit, getppid, setrlimit, setsid};

/// Set when the guard was asked by a signal to end.
static TERMINATION_REQUESTED: AtomicBool = AtomicBool::new(false);

/// Gives the guard its own session, so that Ctrl-C at the terminal reaches neither it nor the command.
pub(crate) fn detach(guard: &mut Command) {
    // SAFETY: the closure only makes system calls that are safe between fork and exec.
    unsafe {
        guard.pre_exec(|| {
            reset_signals();
            keep_only_standard_streams();
            setsid()?;
            Ok(())
        });
    }
}

/// Sets up the command: its own session, its limits, no way to more rights, and death with the guard.
pub(crate) fn confine(command: &mut Command, guard: Pid, limits: Vec<(Resource, Rlimit)>) {
    // SAFETY: the closure only makes system calls that are safe between fork and exec. The vector was
    // allocated before the fork and is only read.
    unsafe {
        command.pre_exec(move || {
            reset_signals();
            keep_only_standard_streams();
            setsid()?;
            die_with_parent(guard)?;
            for (resource, limit) in &limits {
                setrlimit(*resource, *limit)?;
            }
            Ok(())
        });
    }
}

/// The main process must not outlive a guard that was killed; without new privileges, no descendant can become
/// another user whom the guard may not kill.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if getppid() != Some(parent) {
        // The guard died before the line above took effect, so nobody would send the signal any more.
        return Err(io::Error::from(io::ErrorKind::BrokenPipe));
    }
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(parent: Pid) -> io::Result<()> {
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
}

/// Undoes ignored signals, which a program inherits from whoever started it and which survive exec. An ignored
/// SIGCHLD would hide exit codes from the guard. The standard library clears the signal mask itself.
fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: restoring the default disposition runs no code of ours; it is refused for SIGKILL,
        // SIGSTOP and the two that the C library keeps for itself, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Marks every other descriptor as closed at exec, also those that were opened without that mark.
fn keep_only_standard_streams() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the call changes descriptor flags only. It goes through `syscall` because older C
        // libraries do not have the function.
        let answer =
            unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        if answer == 0 {
            return;
        }
    }
    let open_files = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(65_536).min(65_536);
    for descriptor in 3..open_files as libc::c_int {
        // SAFETY: the call changes a descriptor flag, or fails when there is no such descriptor.
        unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

extern "C" fn on_termination_signal(_signal: libc::c_int) {
    TERMINATION_REQUESTED.store(true, Ordering::SeqCst);
}

/// From now on, a signal that asks the guard to end lets it end its descendants first, and a report to a runner
/// that is gone does not kill it.
pub(crate) fn catch_termination_signals() {
    let handler = on_termination_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, handler) };
    }
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// The version of Landlock that the kernel speaks; none where it has no Landlock, or has it switched off.
pub(crate) fn landlock_version() -> Option<u32> {
    #[cfg(target_os = "linux")]
    {
        const ASK_FOR_VERSION: libc::c_uint = 1;
        // SAFETY: with this flag, no attributes and no size the call makes nothing and only answers with a number.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                std::ptr::null::<libc::c_void>(),
                0 as libc::size_t,
                ASK_FOR_VERSION,
            )
        };
        u32::try_from(answer).ok().filter(|version| *version > 0)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Stops this process as Ctrl-Z at a terminal does, also if the process handles that signal itself, and returns when it
/// was resumed. A process whose shell does not know of jobs is not stopped, because nobody could resume it.
pub fn stop_at_terminal() {
    // SAFETY: the structures are plain data that the calls fill in; the default disposition runs no code of ours, and
    // the old one is put back.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGTSTP, &default, &mut before) == 0 {
            libc::raise(libc::SIGTSTP);
            libc::sigaction(libc::SIGTSTP, &before, std::ptr::null_mut());
        }
    }
}

/// Whether a signal asked the guard to end.
pub(crate) fn termination_requested() -> bool {
    TERMINATION_REQUESTED.load(Ordering::SeqCst)
}
