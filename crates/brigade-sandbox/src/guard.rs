//! The guard process. It runs one job, kills every descendant, and reports the result.

use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};
use rustix::stdio::{stdin, stdout};

use crate::launch::Launched;
use crate::os;
use crate::output::BoundedOutput;
use crate::processes::Children;
use crate::protocol::{self, EXIT_NO_JOB, JobMessage, READY, Report, Request, Streams};
use crate::{ExitReason, SandboxLimit};

/// Interval at which the guard reaps orphans while nothing else happens.
const REAP_INTERVAL: Duration = Duration::from_millis(250);

/// Interval at which the usage of a sandbox is compared with its limits.
const USAGE_INTERVAL: Duration = Duration::from_millis(250);

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
    let Ok((request, descriptors)) = receive() else { return EXIT_NO_JOB };
    os::catch_termination_signals();
    let (report, output) = match become_guard().and_then(|()| is_runner_alive()) {
        Ok(true) if !os::termination_requested() => match &request {
            Request::Run(job) => execute(job, descriptors),
            Request::CreateLayers(layers) => (create_layers(layers), Vec::new()),
        },
        Ok(_) => return EXIT_NO_JOB,
        Err(error) => (Report::CannotRun { reason: format!("cannot set up the guard: {error}") }, Vec::new()),
    };
    // A runner that has exited does not read the report. The guard's work is done in any case.
    let sent = protocol::frame(&report).and_then(|frame| send(&frame)).and_then(|()| send(&output));
    i32::from(sent.is_err())
}

/// Receives a message and the descriptors that come with it.
fn receive() -> io::Result<(Request, Vec<OwnedFd>)> {
    send(&[READY])?;
    let mut prefix = [0; 4];
    let descriptors = receive_start(&mut prefix)?;
    let mut body = vec![0; protocol::body_length(prefix)?];
    receive_exactly(&mut body)?;
    Ok((protocol::parse(&body)?, descriptors))
}

/// Receives the first bytes. Descriptors come with the very first one.
#[cfg(target_os = "linux")]
fn receive_start(mut buffer: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    loop {
        match crate::descriptors::receive(stdin(), buffer) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((count, descriptors)) => {
                buffer = buffer.get_mut(count..).unwrap_or_default();
                return receive_exactly(buffer).map(|()| descriptors);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTSOCK) => {
                return receive_exactly(buffer).map(|()| Vec::new());
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn receive_start(buffer: &mut [u8]) -> io::Result<Vec<OwnedFd>> {
    receive_exactly(buffer).map(|()| Vec::new())
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

fn execute(job: &JobMessage, descriptors: Vec<OwnedFd>) -> (Report, Vec<u8>) {
    let started = Instant::now();
    match Launched::start(job, descriptors) {
        Ok(launched) => RunningCommand::new(launched, job, started).run(),
        Err(report) => (report, Vec::new()),
    }
}

#[cfg(target_os = "linux")]
fn create_layers(layers: &protocol::LayersMessage) -> Report {
    crate::linux::layers::create_shared(layers)
}

#[cfg(not(target_os = "linux"))]
fn create_layers(_layers: &protocol::LayersMessage) -> Report {
    Report::CannotConfine { reason: "sandboxes are supported only on Linux".into() }
}

/// A running command, and everything needed to end it.
struct RunningCommand<'a> {
    launched: Launched,
    children: Children,
    exit: Option<OwnedFd>,
    has_output: bool,
    output: BoundedOutput,
    started: Instant,
    deadline: Option<Instant>,
    next_usage_check: Instant,
    job: &'a JobMessage,
    buffer: Vec<u8>,
}

impl<'a> RunningCommand<'a> {
    fn new(launched: Launched, job: &'a JobMessage, started: Instant) -> Self {
        Self {
            children: Children::new(launched.main),
            exit: watch_exit(launched.main),
            has_output: true,
            launched,
            output: BoundedOutput::new(job.output_limit),
            // A time limit beyond the range of the clock means no limit.
            deadline: started.checked_add(job.time_limit),
            started,
            next_usage_check: started + USAGE_INTERVAL,
            job,
            buffer: vec![0; 64 << 10],
        }
    }

    /// Waits until the command has exited or has to be ended, ends what is left of it, and reports.
    fn run(mut self) -> (Report, Vec<u8>) {
        let end = loop {
            if self.children.poll().is_some() {
                break None;
            }
            if os::termination_requested() || self.wait_for_event() {
                break Some(ExitReason::Cancelled);
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break Some(ExitReason::TimedOut);
            }
            if let Some(limit) = self.exceeded_limit() {
                break Some(ExitReason::OverLimit(limit));
            }
            self.read_output();
        };
        if end == Some(ExitReason::Cancelled) && self.job.streams == Streams::Carried {
            self.allow_graceful_exit();
        }
        let status = self.children.status().filter(|_| end.is_none());
        self.children.kill_all();
        // All writers have exited, so this is the rest of the pipe. The bound covers a command that passed
        // its end of the pipe to a process outside its descendants.
        for _ in 0..1024 {
            if !self.read_output() {
                break;
            }
        }
        let enforcement = self.launched.enforcement();
        let limit = self.launched.enforced_limit().map(ExitReason::OverLimit);
        let (exit, removed) = self.launched.clean_up(status);
        let end = match end.or(exit) {
            // The command itself may not say why it failed.
            Some(ExitReason::Exited(0)) => ExitReason::Exited(0),
            Some(exit @ (ExitReason::Exited(_) | ExitReason::Signalled(_))) => limit.unwrap_or(exit),
            Some(end) => end,
            None => ExitReason::Cancelled,
        };
        let recent = self.output.pieces(Instant::now());
        let (output, dropped_bytes) = self.output.finish();
        let (duration, output_bytes) = (self.started.elapsed(), output.len());
        (
            Report::Finished { end, dropped_bytes, duration, output_bytes, recent, enforcement, removed },
            output,
        )
    }

    /// The limit of the sandbox that its processes exceed together, checked from time to time.
    fn exceeded_limit(&mut self) -> Option<SandboxLimit> {
        let now = Instant::now();
        if now < self.next_usage_check {
            return None;
        }
        self.next_usage_check = now + USAGE_INTERVAL;
        self.launched.exceeded_limit(self.job)
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
        watched.extend(self.has_output.then(|| PollFd::new(&self.launched.output, PollFlags::IN)));
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
        if !self.has_output {
            return false;
        }
        match self.launched.output.read(&mut self.buffer) {
            Ok(count) if count > 0 => self.output.push(&self.buffer[..count], Instant::now()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            // The command closed its output. It may continue without, but a closed pipe would always be
            // ready.
            _ => self.has_output = false,
        }
        self.has_output
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
