//! Operations without a safe interface: signal dispositions, the steps of a child between fork and exec, namespaces,
//! attributes of mounts, and the Landlock version.
//!
//! The closures given to `pre_exec` run in a forked copy of a process that may have had threads. They only
//! call functions that are safe there: plain system calls, no allocation, no lock.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Resource, Rlimit, getppid, setrlimit, setsid};

/// Set when a signal requested the guard to end.
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

/// Sets up the command: a separate session, its limits, no new privileges, and termination with the process that starts
/// it. `confine` is the last step.
///
/// The process that starts it has a single thread, so `confine` may allocate.
pub(crate) fn set_up(
    command: &mut Command,
    parent: Pid,
    limits: Vec<(Resource, Rlimit)>,
    mut confine: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the guard and the first process of a sandbox have a single thread, so no lock is held by a thread that
    // does not exist in the child.
    unsafe {
        command.pre_exec(move || {
            reset_signals();
            keep_only_standard_streams();
            setsid()?;
            die_with_parent(parent)?;
            for (resource, limit) in &limits {
                setrlimit(*resource, *limit)?;
            }
            confine()
        });
    }
}

/// Terminates the main process with its guard. Without new privileges, no descendant can become another user
/// whose processes the guard may not kill.
#[cfg(target_os = "linux")]
fn die_with_parent(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    if getppid() != Some(parent) {
        // The guard died before the line above took effect, so the signal would never be sent.
        return Err(io::Error::from(io::ErrorKind::BrokenPipe));
    }
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(parent: Pid) -> io::Result<()> {
    if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
}

/// Resets ignored signals, which a program inherits from its parent and which survive exec. An ignored
/// SIGCHLD would hide exit codes from the guard. The standard library clears the signal mask itself.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: restoring the default disposition runs no code of ours. It is refused for SIGKILL, SIGSTOP
        // and the two signals that the C library reserves, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Marks every other descriptor as close-on-exec, including those that were opened without that flag.
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

/// Lets the guard kill its descendants before it obeys a termination signal, and keeps SIGPIPE from killing
/// it when the runner has exited.
pub(crate) fn catch_termination_signals() {
    let handler = on_termination_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, handler) };
    }
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// The supported Landlock version, or `None` if Landlock is missing or disabled.
pub(crate) fn landlock_version() -> Option<u32> {
    #[cfg(target_os = "linux")]
    {
        const ASK_FOR_VERSION: libc::c_uint = 1;
        // SAFETY: with this flag, no attributes and no size, the call creates nothing and only returns a
        // number.
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

/// Stops this process as Ctrl-Z at a terminal does, even if it handles that signal itself, and returns when
/// it is resumed. A process whose shell has no job control is not stopped, because it could not be resumed.
pub fn stop_at_terminal() {
    // SAFETY: the structures are plain data that the calls fill in. The default disposition runs no code of
    // ours, and the old one is restored.
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

/// Whether a signal requested the guard to end.
pub(crate) fn termination_requested() -> bool {
    TERMINATION_REQUESTED.load(Ordering::SeqCst)
}

/// Process that gets the termination signal of this one.
static FORWARD_TO: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

extern "C" fn forward_termination(signal: libc::c_int) {
    let pid = FORWARD_TO.load(Ordering::SeqCst);
    if pid > 0 {
        // SAFETY: sending a signal is safe in a signal handler.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Passes SIGTERM on to this process, because the kernel does not deliver it to the first process of a namespace that has
/// no handler.
pub(crate) fn forward_termination_to(pid: Pid) {
    FORWARD_TO.store(pid.as_raw_nonzero().get(), Ordering::SeqCst);
    let handler = forward_termination as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler only reads an atomic and sends a signal.
    unsafe { libc::signal(libc::SIGTERM, handler) };
}

/// Exits without running anything that the parent registered.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: the call does not return and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Forks into new namespaces. Returns `None` in the child. If this process has several threads, the child may only make
/// system calls.
#[cfg(target_os = "linux")]
pub(crate) fn fork_into(namespaces: libc::c_int) -> io::Result<Option<Pid>> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: without a stack and without shared memory, `clone` behaves like `fork`. With a single thread, the child finds
    // all locks free. Otherwise the caller takes none in it.
    let answer = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match i32::try_from(answer) {
        Ok(pid) if pid >= 0 => Ok(Pid::from_raw(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Attributes of a mount that can be added.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy)]
pub(crate) struct MountAttributes(u64);

#[cfg(target_os = "linux")]
impl MountAttributes {
    pub(crate) const READ_ONLY: MountAttributes = MountAttributes(libc::MOUNT_ATTR_RDONLY);
    pub(crate) const NO_SETUID: MountAttributes = MountAttributes(libc::MOUNT_ATTR_NOSUID);
}

#[cfg(target_os = "linux")]
impl std::ops::BitOr for MountAttributes {
    type Output = MountAttributes;

    fn bitor(self, other: MountAttributes) -> MountAttributes {
        MountAttributes(self.0 | other.0)
    }
}

/// Adds attributes to a mount, or to all mounts below it. An empty path is the mount that `tree` refers to.
#[cfg(target_os = "linux")]
pub(crate) fn set_mount_attributes(
    tree: impl std::os::fd::AsFd,
    path: &str,
    attributes: MountAttributes,
    is_recursive: bool,
) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let path = std::ffi::CString::new(path)?;
    let mut flags = if path.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
    flags |= if is_recursive { libc::AT_RECURSIVE } else { 0 };
    let change = libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path and the structure outlive the call, which only reads them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
            std::ptr::from_ref(&change),
            size_of::<libc::mount_attr>(),
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Enables the loopback interface of this network namespace.
#[cfg(target_os = "linux")]
pub(crate) fn enable_loopback() -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: the structure is plain data, its name ends with a zero byte, and the call reads only the flags besides it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
            *slot = *byte as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, std::ptr::from_ref(&request)) == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}
