//! Starts the command of a job as its confinement requires.

use std::ffi::OsString;
use std::io::{self, PipeReader};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, WaitStatus, getpid, getrlimit};
use rustix::stdio::stderr;

#[cfg(target_os = "linux")]
use crate::linux::{
    SyscallFilters,
    cgroups::ControlGroups,
    init::{CommandExit, Init, Setup, StartError},
    layers::{LayerSources, Namespaces, OwnDirectory},
    only_layer,
    placeholders::Placeholders,
    planted::Planted,
};
use crate::os;
use crate::protocol::{JobMessage, Report, Streams};
use crate::{Confinement, Enforcement, ExitReason, ResourceLimits, Sandbox, SandboxLimit};

/// A started command.
pub(crate) struct Launched {
    /// The process whose exit ends the job.
    pub(crate) main: Pid,
    /// Its output.
    pub(crate) output: PipeReader,
    confined: Confined,
}

/// Confinement of a started command, with the data needed after its exit.
enum Confined {
    No,
    #[cfg(target_os = "linux")]
    Namespaces {
        init: Init,
        _placeholders: Placeholders,
        _layers: Option<OwnDirectory>,
        groups: ControlGroups,
        planted: Planted,
    },
    #[cfg(target_os = "linux")]
    Landlock {
        groups: ControlGroups,
        planted: Planted,
    },
    #[cfg(target_os = "macos")]
    Seatbelt,
}

impl Launched {
    /// Starts the command of a job, or returns the report that says why not.
    ///
    /// `descriptors` came with the job: the namespaces of its shared layers.
    pub(crate) fn start(job: &JobMessage, descriptors: Vec<OwnedFd>) -> Result<Launched, Report> {
        let socket = match job.streams {
            Streams::Reported => None,
            Streams::Carried => Some(take_socket().map_err(cannot_run)?),
        };
        match &job.confinement {
            Confinement::None => start_unconfined(job, socket.as_ref()),
            Confinement::Sandbox(sandbox) => start_in_sandbox(job, sandbox, descriptors, socket.as_ref()),
        }
    }

    pub(crate) fn enforcement(&self) -> Enforcement {
        match self.confined {
            Confined::No => Enforcement::None,
            #[cfg(target_os = "linux")]
            Confined::Namespaces { .. } => Enforcement::Namespaces,
            #[cfg(target_os = "linux")]
            Confined::Landlock { .. } => Enforcement::Landlock,
            #[cfg(target_os = "macos")]
            Confined::Seatbelt => Enforcement::Seatbelt,
        }
    }

    /// The first limit of the sandbox that its processes have reached together.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has sandboxes"))]
    pub(crate) fn exceeded_limit(&self, job: &JobMessage) -> Option<SandboxLimit> {
        match &self.confined {
            Confined::No => None,
            #[cfg(target_os = "linux")]
            Confined::Namespaces { groups, .. } | Confined::Landlock { groups, .. } => {
                let Confinement::Sandbox(sandbox) = &job.confinement else { return None };
                let layers = job.layers.as_ref().map(|layers| &layers.directory);
                // The guard counts only what no group counts.
                let mut limits = sandbox.limits;
                limits.processes.take_if(|_| groups.enforces(SandboxLimit::Processes));
                limits.memory_bytes.take_if(|_| groups.enforces(SandboxLimit::Memory));
                groups.reached().or_else(|| crate::usage::exceeded_limit(sandbox, &limits, layers))
            }
        }
    }

    /// The limit that the kernel enforced meanwhile.
    pub(crate) fn enforced_limit(&self) -> Option<SandboxLimit> {
        match &self.confined {
            Confined::No => None,
            #[cfg(target_os = "linux")]
            Confined::Namespaces { groups, .. } | Confined::Landlock { groups, .. } => groups.reached(),
        }
    }

    /// Cleans up after the last process has exited. Returns the exit of the command, if its main process exited by itself,
    /// and the protected paths that were removed.
    pub(crate) fn clean_up(self, status: Option<WaitStatus>) -> (Option<ExitReason>, Vec<OsString>) {
        let reason = status.map(exit_reason);
        match self.confined {
            Confined::No => (reason, Vec::new()),
            // The first process of the sandbox passes on the status of the command.
            #[cfg(target_os = "linux")]
            Confined::Namespaces { init, planted, .. } => {
                let reason = reason.map(|reason| init.command_exit().map_or(reason, raw_exit_reason));
                (reason, planted.remove())
            }
            #[cfg(target_os = "linux")]
            Confined::Landlock { planted, .. } => (reason, planted.remove()),
            #[cfg(target_os = "macos")]
            Confined::Seatbelt => (reason, Vec::new()),
        }
    }
}

fn start_unconfined(job: &JobMessage, socket: Option<&OwnedFd>) -> Result<Launched, Report> {
    enter(job)?;
    let (mut command, output) = command(job, socket).map_err(cannot_run)?;
    os::set_up(&mut command, getpid(), resource_limits(&job.limits), || Ok(()));
    let main = spawn(command).map_err(cannot_run)?;
    Ok(Launched { main, output, confined: Confined::No })
}

#[cfg(target_os = "linux")]
fn start_in_sandbox(
    job: &JobMessage,
    sandbox: &Sandbox,
    descriptors: Vec<OwnedFd>,
    socket: Option<&OwnedFd>,
) -> Result<Launched, Report> {
    sandbox.check().map_err(|invalid| Report::CannotConfine { reason: invalid.to_string() })?;
    if sandbox.hides(&job.directory()) {
        return Err(Report::Directory { reason: "the sandbox hides this directory".into() });
    }
    let mut sandbox = sandbox.clone();
    sandbox.hidden.extend(host_sockets(&sandbox));
    // They contain what other commands have changed.
    sandbox.hidden.extend(job.layers.as_ref().map(|layers| layers.directory.clone()));
    let placeholders = Placeholders::create(&sandbox).map_err(|error| Report::CannotConfine {
        reason: format!("cannot create placeholders for protected paths: {error}"),
    })?;
    // Below a placeholder, nothing can be created.
    let mut planted = Planted::before(&sandbox, sandbox.forbidden.iter());
    planted.forget(|path| placeholders.contains(path));
    let (command_line, output) = command(job, socket).map_err(cannot_run)?;
    let limits = resource_limits(&job.limits);
    let mut descriptors = descriptors.into_iter();
    let namespaces =
        descriptors.next().zip(descriptors.next()).map(|(user, mounts)| Namespaces { user, mounts });
    let (layers, own_layers) =
        LayerSources::open(job.layers.as_ref(), namespaces.as_ref(), &sandbox.discarded);
    drop(namespaces);
    let mut groups = ControlGroups::create(&sandbox.limits);
    let setup = Setup {
        sandbox: &sandbox,
        placeholders: &placeholders,
        layers,
        processes: sandbox.limits.processes.filter(|_| !groups.enforces(SandboxLimit::Processes)),
    };
    let started = Init::start(setup, &job.directory(), limits, command_line, |pid| groups.enter(pid));
    let failure = match started {
        Ok(init) => {
            let main = init.pid;
            let confined = Confined::Namespaces {
                init,
                _placeholders: placeholders,
                _layers: own_layers,
                groups,
                planted,
            };
            return Ok(Launched { main, output, confined });
        }
        Err(StartError::Directory(reason)) => return Err(Report::Directory { reason }),
        Err(StartError::Command(reason)) => return Err(Report::CannotRun { reason }),
        Err(StartError::Sandbox(failure)) => failure,
    };
    drop((placeholders, own_layers));
    if !failure.is_unsupported || !sandbox.allow_landlock_only {
        return Err(Report::CannotConfine { reason: failure.reason });
    }
    start_with_landlock(job, &sandbox, groups, socket).map_err(|error| match error {
        StartWithLandlockError::Report(report) => report,
        StartWithLandlockError::Rules(error) => Report::CannotConfine {
            reason: format!("{}, and cannot use Landlock instead: {error}", failure.reason),
        },
    })
}

/// Starts the command under a Seatbelt profile. This has not been verified.
#[cfg(target_os = "macos")]
fn start_in_sandbox(
    job: &JobMessage,
    sandbox: &Sandbox,
    _descriptors: Vec<OwnedFd>,
    socket: Option<&OwnedFd>,
) -> Result<Launched, Report> {
    sandbox.check().map_err(|invalid| Report::CannotConfine { reason: invalid.to_string() })?;
    enter(job)?;
    let profile = crate::seatbelt::SeatbeltProfile::new(sandbox, crate::seatbelt::real_path);
    let (program, arguments) = profile.command_line(&job.command);
    let (mut command, output) = command_of(program, arguments, job, socket).map_err(cannot_run)?;
    if let Some(temporary) = &sandbox.temporary {
        command.env("TMPDIR", temporary);
    }
    os::set_up(&mut command, getpid(), resource_limits(&job.limits), || Ok(()));
    let main = spawn(command).map_err(cannot_run)?;
    Ok(Launched { main, output, confined: Confined::Seatbelt })
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn start_in_sandbox(
    _job: &JobMessage,
    _sandbox: &Sandbox,
    _descriptors: Vec<OwnedFd>,
    _socket: Option<&OwnedFd>,
) -> Result<Launched, Report> {
    Err(Report::CannotConfine { reason: "sandboxes are not supported on this system".into() })
}

#[cfg(target_os = "linux")]
enum StartWithLandlockError {
    Report(Report),
    Rules(io::Error),
}

/// Starts the command with Landlock and seccomp only.
#[cfg(target_os = "linux")]
fn start_with_landlock(
    job: &JobMessage,
    sandbox: &Sandbox,
    groups: ControlGroups,
    socket: Option<&OwnedFd>,
) -> Result<Launched, StartWithLandlockError> {
    use StartWithLandlockError::{Report as Reported, Rules};
    enter(job).map_err(Reported)?;
    let mut rules = Some(only_layer(sandbox).map_err(Rules)?);
    let filters = SyscallFilters::compile(sandbox, false).map_err(Rules)?;
    // A server runs for so long that the user may create them.
    let protected: &[OsString] = match job.streams {
        Streams::Reported => &sandbox.protected,
        Streams::Carried => &[],
    };
    let planted = Planted::before(sandbox, protected.iter().chain(&sandbox.forbidden));
    let (mut command, output) = command(job, socket).map_err(|error| Reported(cannot_run(error)))?;
    if let Some(temporary) = &sandbox.temporary {
        command.env("TMPDIR", temporary);
    }
    let entries = groups.entries();
    os::set_up(&mut command, getpid(), resource_limits(&job.limits), move || {
        for entry in &entries {
            // Without it, the guard counts.
            let _ = std::fs::write(entry, "0");
        }
        if let Some(rules) = rules.take() {
            rules.restrict_self().map_err(io::Error::other)?;
        }
        filters.apply()
    });
    let main = spawn(command).map_err(|error| Reported(cannot_run(error)))?;
    Ok(Launched { main, output, confined: Confined::Landlock { groups, planted } })
}

/// Paths of UNIX sockets of the host outside the private directories. A read-only mount does not keep a command
/// from connecting to them.
#[cfg(target_os = "linux")]
fn host_sockets(sandbox: &Sandbox) -> Vec<OsString> {
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;
    /// Maximum number of sockets that are hidden, so that a host with very many cannot delay a command.
    const MAX_SOCKETS: usize = 1024;
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    // The path is the eighth field. A name in the abstract namespace starts with `@`.
    let paths = table.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let mut rest = line;
        for _ in 0..7 {
            let field = rest.iter().position(|byte| *byte != b' ').map(|start| &rest[start..])?;
            rest = field.iter().position(|byte| *byte == b' ').map(|end| &field[end..])?;
        }
        let path = rest.strip_prefix(b" ").filter(|path| path.starts_with(b"/"))?;
        Some(PathBuf::from(OsString::from_vec(path.to_vec())))
    });
    let is_below = |path: &PathBuf, roots: &[OsString]| roots.iter().any(|root| path.starts_with(root));
    let is_private = |path: &PathBuf| {
        let is_covered = ["/run", "/tmp", "/var/tmp", "/dev"].iter().any(|root| path.starts_with(root));
        is_covered
            && ![&sandbox.visible, &sandbox.writable, &sandbox.discarded]
                .iter()
                .any(|roots| is_below(path, roots))
    };
    let is_allowed = |path: &PathBuf| sandbox.sockets.iter().any(|socket| path.as_os_str() == socket);
    let found = paths.filter(|path| !is_private(path) && !is_allowed(path)).take(MAX_SOCKETS);
    found.map(OsString::from).collect()
}

/// Enters the working directory. The guard does it itself, because a failed spawn would not distinguish a missing directory
/// from a missing shell. The command inherits it.
fn enter(job: &JobMessage) -> Result<(), Report> {
    std::env::set_current_dir(job.directory())
        .map_err(|error| Report::Directory { reason: error.to_string() })
}

/// The command with its environment and streams, and the pipe with its output.
fn command(job: &JobMessage, socket: Option<&OwnedFd>) -> io::Result<(Command, PipeReader)> {
    command_of("/bin/sh", vec!["-c".into(), job.command.clone().into()], job, socket)
}

fn command_of(
    program: &str,
    arguments: Vec<OsString>,
    job: &JobMessage,
    socket: Option<&OwnedFd>,
) -> io::Result<(Command, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    #[expect(clippy::disallowed_methods, reason = "only the guard starts commands")]
    let mut command = Command::new(program);
    command.args(arguments);
    command.env_clear().envs(job.environment.iter().map(|(name, value)| (name, value)));
    match socket {
        None => command.stdin(Stdio::null()).stdout(writer.try_clone()?),
        Some(socket) => command.stdin(socket.try_clone()?).stdout(socket.try_clone()?),
    };
    command.stderr(writer);
    Ok((command, reader))
}

/// Starts the command. The handle is dropped without a wait, because `Children` reaps every child, including this one.
fn spawn(mut command: Command) -> io::Result<Pid> {
    let child = command.spawn()?;
    Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("the command has no process id"))
}

fn cannot_run(error: io::Error) -> Report {
    Report::CannotRun { reason: error.to_string() }
}

/// Moves the socket away from the guard's standard error, so that the runner sees it closed when the command
/// has exited.
fn take_socket() -> io::Result<OwnedFd> {
    let socket = stderr().try_clone_to_owned()?;
    rustix::stdio::dup2_stderr(std::fs::File::open("/dev/null")?)?;
    Ok(socket)
}

/// The limits to set, capped at what this process may grant.
fn resource_limits(limits: &ResourceLimits) -> Vec<(Resource, Rlimit)> {
    let wanted = [
        (Resource::As, limits.memory_bytes),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, limits.processes),
        (Resource::Core, Some(0)),
    ];
    let mut granted = Vec::new();
    for (resource, wanted) in wanted {
        let Some(wanted) = wanted else { continue };
        let hard_limit = getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let current = wanted.min(hard_limit);
        // A hard limit of one more second of CPU time lets SIGXCPU come first, which identifies the cause.
        let extra = u64::from(matches!(resource, Resource::Cpu));
        let maximum = current.saturating_add(extra).min(hard_limit);
        granted.push((resource, Rlimit { current: Some(current), maximum: Some(maximum) }));
    }
    granted
}

fn exit_reason(status: WaitStatus) -> ExitReason {
    match status.terminating_signal() {
        Some(signal) => ExitReason::Signalled(signal),
        None => ExitReason::Exited(status.exit_status().unwrap_or(-1)),
    }
}

#[cfg(target_os = "linux")]
fn raw_exit_reason(exit: CommandExit) -> ExitReason {
    let status = exit.status;
    if exit.is_at_process_limit {
        ExitReason::OverLimit(SandboxLimit::Processes)
    } else if libc::WIFSIGNALED(status) {
        ExitReason::Signalled(libc::WTERMSIG(status))
    } else {
        ExitReason::Exited(libc::WEXITSTATUS(status))
    }
}
