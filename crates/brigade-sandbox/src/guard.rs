//! The guard process. It runs one job, kills every descendant, and reports the result.

use std::io::{self, PipeReader, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, WaitStatus, getpid, getrlimit};
use rustix::stdio::{stderr, stdin, stdout};

use crate::os;
use crate::output::BoundedOutput;
use crate::processes::Children;
use crate::protocol::{self, EXIT_NO_JOB, JobMessage, READY, Report, Streams};
use crate::{Confinement, ExitReason, ResourceLimits};

/// Interval at which the guard reaps orphans while nothing else happens.
const REAP_INTERVAL: Duration = Duration::from_millis(250);

/// Time that a served command has to exit after its input is closed, before it gets SIGTERM.
const STDIN_CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Time that it has after SIGTERM, before everything is killed.
const SIGTERM_GRACE: Duration = Duration::from_secs(1);

/// Interval at which the main process is polled on systems without pidfd.
const POLL_INTERVAL_WITHOUT_PIDFD: Duration = Duration::from_millis(10);

/// Entry point of the guard process. Returns its exit code.
///
/// Call it first on the main thread, before any other thread is started, because the command dies with the
/// thread that started it. It expects the job on standard input and reports on standard output, as set up by
/// [`run`](crate::run). Nothing is run unless the complete job arrived from a runner that is still alive.
pub fn guard_main() -> i32 {
    // While the guard waits for its job, signals keep their default action. It may simply die, because
    // nothing is running.
    let Ok(job) = receive() else { return EXIT_NO_JOB };
    os::catch_termination_signals();
    let (report, output) = match become_guard().and_then(|()| is_runner_alive()) {
        Ok(true) if !os::termination_requested() => execute(&job),
        Ok(_) => return EXIT_NO_JOB,
        Err(error) => (Report::CannotRun { reason: format!("cannot set up the guard: {error}") }, Vec::new()),
    };
    // A runner that has exited does not read the report. The guard's work is done in any case.
    let sent = protocol::frame(&report).and_then(|frame| send(&frame)).and_then(|()| send(&output));
    i32::from(sent.is_err())
}

fn receive() -> io::Result<JobMessage> {
    send(&[READY])?;
    let mut prefix = [0; 4];
    receive_exactly(&mut prefix)?;
    let mut body = vec![0; protocol::body_length(prefix)?];
    receive_exactly(&mut body)?;
    protocol::parse(&body)
}

fn receive_exactly(mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match rustix::io::read(stdin(), &mut *buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = &mut buffer[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn send(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(stdout(), bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes orphaned descendants children of this process, and denies the command access to it. Otherwise the
/// command could write its own report to the pipe.
#[cfg(target_os = "linux")]
fn become_guard() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(getpid()))?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn become_guard() -> io::Result<()> {
    Ok(())
}

/// Whether the runner is alive. A runner that died right after sending its job has closed the pipe.
fn is_runner_alive() -> io::Result<bool> {
    let input = stdin();
    let mut watched = [PollFd::new(&input, PollFlags::IN)];
    Ok(poll(&mut watched, Some(&Timespec::default()))? == 0)
}

fn execute(job: &JobMessage) -> (Report, Vec<u8>) {
    // The caller would rely on a confinement that does not exist.
    if job.confinement != Confinement::none() {
        return (Report::CannotConfine, Vec::new());
    }
    // The guard changes the directory itself, because a failed spawn would not distinguish a missing
    // directory from a missing shell. The command inherits it.
    if let Err(error) = std::env::set_current_dir(job.directory()) {
        return (Report::Directory { reason: error.to_string() }, Vec::new());
    }
    let started = Instant::now();
    match start(job) {
        Ok((main, pipe)) => {
            let (end, output) = RunningCommand::new(main, pipe, job, started).run();
            let recent = output.pieces(Instant::now());
            let (output, dropped_bytes) = output.finish();
            let duration = started.elapsed();
            (Report::Finished { end, dropped_bytes, duration, output_bytes: output.len(), recent }, output)
        }
        Err(error) => (Report::CannotRun { reason: error.to_string() }, Vec::new()),
    }
}

#[expect(clippy::disallowed_methods, reason = "only the guard starts commands")]
fn start(job: &JobMessage) -> io::Result<(Pid, PipeReader)> {
    let (reader, writer) = io::pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(&job.command);
    command.env_clear().envs(job.environment.iter().map(|(name, value)| (name, value)));
    match job.streams {
        Streams::Reported => {
            command.stdin(Stdio::null()).stdout(writer.try_clone()?);
        }
        Streams::Carried => {
            let socket = take_socket()?;
            command.stdin(socket.try_clone()?).stdout(socket);
        }
    }
    command.stderr(writer);
    os::set_up(&mut command, getpid(), resource_limits(&job.limits));
    // The handle is dropped without a wait, because `Children` reaps every child, including this one.
    let child = command.spawn()?;
    let main =
        Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("the command has no process id"))?;
    Ok((main, reader))
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

/// A running command, and everything needed to end it.
struct RunningCommand {
    children: Children,
    exit: Option<OwnedFd>,
    pipe: Option<PipeReader>,
    output: BoundedOutput,
    deadline: Option<Instant>,
    streams: Streams,
    buffer: Vec<u8>,
}

impl RunningCommand {
    fn new(main: Pid, pipe: PipeReader, job: &JobMessage, started: Instant) -> Self {
        Self {
            children: Children::new(main),
            exit: watch_exit(main),
            pipe: Some(pipe),
            output: BoundedOutput::new(job.output_limit),
            // A time limit beyond the range of the clock means no limit.
            deadline: started.checked_add(job.time_limit),
            streams: job.streams,
            buffer: vec![0; 64 << 10],
        }
    }

    fn run(mut self) -> (ExitReason, BoundedOutput) {
        let end = loop {
            if let Some(status) = self.children.poll() {
                break exit_reason(status);
            }
            if os::termination_requested() || self.wait_for_event() {
                break ExitReason::Cancelled;
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break ExitReason::TimedOut;
            }
            self.read_output();
        };
        if end == ExitReason::Cancelled && self.streams == Streams::Carried {
            self.allow_graceful_exit();
        }
        self.children.kill_all();
        // All writers have exited, so this is the rest of the pipe. The bound covers a command that passed
        // its end of the pipe to a process outside its descendants.
        for _ in 0..1024 {
            if !self.read_output() {
                break;
            }
        }
        (end, self.output)
    }

    /// Lets a served command exit by itself after the runner has closed its input. If it does not, it gets
    /// SIGTERM.
    fn allow_graceful_exit(&mut self) {
        if !self.exits_within(STDIN_CLOSE_GRACE) {
            self.children.terminate_main();
            self.exits_within(SIGTERM_GRACE);
        }
    }

    /// Whether the main process exits within this time. Its output is read meanwhile, so that it does not
    /// block on a full pipe.
    fn exits_within(&mut self, grace: Duration) -> bool {
        let started = Instant::now();
        while self.children.poll().is_none() {
            let left = grace.saturating_sub(started.elapsed());
            if left.is_zero() {
                return false;
            }
            self.read_output();
            self.wait_for_exit(left.min(POLL_INTERVAL_WITHOUT_PIDFD * 5));
        }
        true
    }

    fn wait_for_exit(&self, max_wait: Duration) {
        let Some(exit) = &self.exit else {
            return std::thread::sleep(max_wait.min(POLL_INTERVAL_WITHOUT_PIDFD));
        };
        let timeout = Timespec::try_from(max_wait).unwrap_or_default();
        let _ = poll(&mut [PollFd::new(exit, PollFlags::IN)], Some(&timeout));
    }

    /// Sleeps until an event. Returns whether the runner has closed its pipe.
    fn wait_for_event(&self) -> bool {
        let input: BorrowedFd<'_> = stdin();
        let mut watched = vec![PollFd::new(&input, PollFlags::IN)];
        watched.extend(self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        watched.extend(self.exit.as_ref().map(|exit| PollFd::new(exit, PollFlags::IN)));
        let tick = if self.exit.is_some() { REAP_INTERVAL } else { POLL_INTERVAL_WITHOUT_PIDFD };
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = Timespec::try_from(left.unwrap_or(tick).min(tick)).unwrap_or_default();
        // The runner sends nothing after its job, so any event on this pipe is its end. The caller's loop
        // repeats an interrupted call.
        poll(&mut watched, Some(&timeout)).is_ok() && !watched[0].revents().is_empty()
    }

    /// Reads available output, one buffer at a time, so that endless output cannot delay the time limit.
    /// Returns whether there may be more.
    fn read_output(&mut self) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        match pipe.read(&mut self.buffer) {
            Ok(count) if count > 0 => self.output.push(&self.buffer[..count], Instant::now()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // The command closed its output. It may continue without, but a closed pipe would always be
            // ready.
            _ => self.pipe = None,
        }
        self.pipe.is_some()
    }
}

/// A descriptor that becomes readable when the process exits, if the system supports it.
#[cfg(target_os = "linux")]
fn watch_exit(main: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(main, rustix::process::PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
fn watch_exit(_main: Pid) -> Option<OwnedFd> {
    None
}

fn exit_reason(status: WaitStatus) -> ExitReason {
    match status.terminating_signal() {
        Some(signal) => ExitReason::Signalled(signal),
        None => ExitReason::Exited(status.exit_status().unwrap_or(-1)),
    }
}
