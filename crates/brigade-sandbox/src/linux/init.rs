//! First process of a sandbox: it sets up the namespaces, starts the command, and reaps until the command has exited.
//!
//! The kernel kills every process of the sandbox when the first one exits. The command cannot kill it, trace it or see the
//! guard.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::Command;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, WaitOptions, getpid, set_dumpable_behavior, wait,
};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use super::failure::{Failure, at};
use super::landlock_rules;
use super::mounts;
use super::placeholders::Placeholders;
use super::syscalls::SyscallFilters;
use crate::protocol::PROXY;
use crate::{Network, Sandbox, os};

/// The first process, as its guard sees it.
pub(crate) struct Init {
    /// Its process id.
    pub(crate) pid: Pid,
    messages: PipeReader,
}

/// First bytes of the messages from the first process to its guard.
const STARTED: u8 = b'S';
const FAILED: u8 = b'F';
const UNSUPPORTED: u8 = b'U';
const DIRECTORY: u8 = b'D';
const COMMAND: u8 = b'C';

/// Reason why a command did not start.
pub(crate) enum StartError {
    /// The sandbox could not be set up.
    Sandbox(Failure),
    /// Its working directory cannot be used.
    Directory(String),
    /// The command could not be started.
    Command(String),
}

impl Init {
    /// Starts the command in namespaces of its own. Returns when it runs.
    pub(crate) fn start(
        sandbox: &Sandbox,
        placeholders: &Placeholders,
        directory: &Path,
        limits: Vec<(Resource, Rlimit)>,
        mut command: Command,
    ) -> Result<Init, StartError> {
        let failed = |step| move |error: io::Error| StartError::Sandbox(Failure::unsupported(step, error));
        let filters =
            SyscallFilters::compile(sandbox, true).map_err(failed("compile the system call filter"))?;
        let (mut messages, mut writer) = io::pipe().map_err(failed("create a pipe"))?;
        let (mut alive, guard) = io::pipe().map_err(failed("create a pipe"))?;
        let user = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let child = os::fork_into(namespaces(sandbox)).map_err(failed("create namespaces"))?;
        let Some(pid) = child else {
            drop((messages, guard));
            let result = set_up(&mut alive, user, sandbox, placeholders)
                .map_err(StartError::Sandbox)
                .and_then(|()| enter(directory))
                .and_then(|()| provide_proxy(&mut command, sandbox))
                .and_then(|()| start(&mut command, sandbox, filters, limits));
            // The pipes of the command would stay open in this process.
            drop(command);
            let code = match result {
                Ok(main) => supervise(main, &mut writer),
                Err(error) => report(&error, &mut writer),
            };
            os::exit_now(code);
        };
        drop((writer, alive, command));
        // The pipe tells the child that the guard was alive after the child had asked to die with it.
        let _ = (&guard).write_all(b"G");
        drop(guard);
        let mut kind = [0];
        match messages.read_exact(&mut kind) {
            Ok(()) if kind[0] == STARTED => return Ok(Init { pid, messages }),
            Ok(()) | Err(_) => {}
        }
        let mut reason = String::new();
        let _ = messages.take(64 << 10).read_to_string(&mut reason);
        let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        Err(match kind[0] {
            DIRECTORY => StartError::Directory(reason),
            COMMAND => StartError::Command(reason),
            FAILED => StartError::Sandbox(Failure { reason, is_unsupported: false }),
            UNSUPPORTED => StartError::Sandbox(Failure { reason, is_unsupported: true }),
            _ => StartError::Sandbox(Failure {
                reason: "the first process of the sandbox was killed".into(),
                is_unsupported: false,
            }),
        })
    }

    /// The wait status of the command, after the first process has exited. `None` if it was killed before it could send it.
    pub(crate) fn command_status(mut self) -> Option<i32> {
        let mut status = [0; 4];
        self.messages.read_exact(&mut status).ok()?;
        Some(i32::from_le_bytes(status))
    }
}

fn namespaces(sandbox: &Sandbox) -> libc::c_int {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    match sandbox.network {
        Network::Off | Network::Proxy => always | libc::CLONE_NEWNET,
        Network::On => always,
    }
}

fn set_up(
    alive: &mut PipeReader,
    user: (u32, u32),
    sandbox: &Sandbox,
    placeholders: &Placeholders,
) -> Result<(), Failure> {
    os::reset_signals();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(at("tie the sandbox to its guard"))?;
    alive.read_exact(&mut [0]).map_err(at("reach the guard"))?;
    map_user(user)?;
    if sandbox.network != Network::On {
        os::enable_loopback().map_err(at("enable the loopback interface"))?;
    }
    mounts::build(sandbox, placeholders)
}

/// Variables that make programs use a proxy, and those that keep them from using it for themselves. The job can set the
/// latter.
const PROXY_VARIABLES: [&str; 6] =
    ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy"];
const NO_PROXY_VARIABLES: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Creates the listener of the proxy in this network namespace, gives it to the runner, and tells the command about it.
fn provide_proxy(command: &mut Command, sandbox: &Sandbox) -> Result<(), StartError> {
    if sandbox.network != Network::Proxy {
        return Ok(());
    }
    let failed = |error| StartError::Sandbox(Failure::unsupported("create the proxy", error));
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = format!("http://{}", listener.local_addr().map_err(failed)?);
    send_descriptor(rustix::stdio::stdin(), listener.as_fd()).map_err(failed)?;
    command.envs(PROXY_VARIABLES.map(|name| (name, address.as_str())));
    for name in NO_PROXY_VARIABLES {
        if !command.get_envs().any(|(set, _)| set == name) {
            command.env(name, "localhost,127.0.0.1,::1");
        }
    }
    Ok(())
}

/// Sends a descriptor over a UNIX socket.
fn send_descriptor(socket: impl AsFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("the descriptor does not fit into the message"));
    }
    sendmsg(socket, &[io::IoSlice::new(&[PROXY])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Keeps the ids of user and group. The files of a process that is not dumpable belong to root, so it is dumpable meanwhile.
fn map_user((user, group): (u32, u32)) -> Result<(), Failure> {
    let failed = || at::<io::Error>("map the user");
    let dumpable = |behavior| set_dumpable_behavior(behavior).map_err(io::Error::from).map_err(failed());
    dumpable(DumpableBehavior::Dumpable)?;
    // Kernels before 3.19 do not have this file.
    let _ = fs::write("/proc/self/setgroups", "deny");
    fs::write("/proc/self/uid_map", format!("{user} {user} 1")).map_err(failed())?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1")).map_err(failed())?;
    dumpable(DumpableBehavior::NotDumpable)
}

fn enter(directory: &Path) -> Result<(), StartError> {
    std::env::set_current_dir(directory).map_err(|error| StartError::Directory(error.to_string()))
}

/// Starts the command, which gives up everything that could undo the sandbox.
fn start(
    command: &mut Command,
    sandbox: &Sandbox,
    filters: SyscallFilters,
    limits: Vec<(Resource, Rlimit)>,
) -> Result<Pid, StartError> {
    let failed = |error| StartError::Sandbox(Failure::unsupported("restrict file access", error));
    // Landlock would refuse the mounts of a sandbox inside this one.
    let mut rules = if sandbox.nested_namespaces {
        None
    } else {
        landlock_rules::second_layer(sandbox).map_err(failed)?
    };
    os::set_up(command, getpid(), limits, move || {
        drop_capabilities()?;
        if let Some(rules) = rules.take() {
            rules.restrict_self().map_err(io::Error::other)?;
        }
        filters.apply()
    });
    let child = command.spawn().map_err(|error| StartError::Command(error.to_string()))?;
    let raw = child.id() as i32;
    Pid::from_raw(raw).ok_or_else(|| StartError::Command("the command has no process id".into()))
}

/// Drops all capabilities for good. A user 0 inside would get them back by starting a program.
fn drop_capabilities() -> io::Result<()> {
    for capability in 0..64 {
        let Some(capability) = CapabilitySet::from_bits(1 << capability) else { continue };
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    rustix::thread::set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    Ok(())
}

/// Reaps until the command has exited, and sends its status. Then this process exits, and the kernel kills the rest.
fn supervise(main: Pid, writer: &mut PipeWriter) -> i32 {
    os::forward_termination_to(main);
    let _ = writer.write_all(&[STARTED]);
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == main => {
                let _ = writer.write_all(&status.as_raw().to_le_bytes());
                return 0;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 1,
        }
    }
}

fn report(error: &StartError, writer: &mut PipeWriter) -> i32 {
    let (kind, reason) = match error {
        StartError::Sandbox(failure) if failure.is_unsupported => (UNSUPPORTED, &failure.reason),
        StartError::Sandbox(failure) => (FAILED, &failure.reason),
        StartError::Directory(reason) => (DIRECTORY, reason),
        StartError::Command(reason) => (COMMAND, reason),
    };
    let _ = writer.write_all(&[kind]).and_then(|()| writer.write_all(reason.as_bytes()));
    1
}
