//! The runner's side: starts a guard, sends the job, waits for the report.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::layers::SharedLayers;
use crate::processes::signal;
use crate::protocol::{self, EXIT_NO_JOB, JobMessage, READY, Report, Request, Streams};
use crate::{
    Confinement, Enforcement, ExitReason, GuardCommand, GuardError, Job, JobResult, ProxyHandler, Sandbox, os,
};

/// Time that a guard has to become ready. It only has to start, but the machine may be busy.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time that a guard has to kill its descendants and to report, after the time limit or a cancel.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);

/// Time that the runner spends on killing a guard that does not respond.
const FORCE_KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a job under a guard and returns when its last process has exited.
///
/// Dropping the future closes the pipe to the guard, which then kills the command. The future does not wait
/// for that. When `cancel` resolves, the command is killed and the result is [`ExitReason::Cancelled`] with
/// the output so far. Needs a tokio runtime with IO and time.
pub async fn run(
    guard: &GuardCommand,
    job: Job,
    cancel: impl Future<Output = ()>,
) -> Result<JobResult, GuardError> {
    run_and_clean_up(guard, job, None, cancel).await
}

/// Runs a job whose standard input and output are the returned stream. The result contains its standard
/// error. The job starts when the future is first polled, and the stream ends with the last process.
///
/// Otherwise it works like [`run`]: dropping the future kills everything. The job has a short time to exit by
/// itself, so drop the stream together with the future.
pub fn serve(
    guard: GuardCommand,
    job: Job,
    cancel: impl Future<Output = ()>,
) -> io::Result<(UnixStream, impl Future<Output = Result<JobResult, GuardError>>)> {
    // Programs do not expect non-blocking input, so only this end is non-blocking.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let run = async move { run_and_clean_up(&guard, job, Some(theirs.into()), cancel).await };
    Ok((UnixStream::from_std(ours)?, run))
}

/// Runs a job. A guard that was killed cannot remove what it created for its sandbox, so it is done here.
async fn run_and_clean_up(
    guard: &GuardCommand,
    job: Job,
    socket: Option<OwnedFd>,
    cancel: impl Future<Output = ()>,
) -> Result<JobResult, GuardError> {
    let confinement = job.confinement.clone();
    let result = run_job(guard, job, socket, cancel).await;
    if let (Err(_), Confinement::Sandbox(sandbox)) = (&result, &confinement) {
        remove_leftovers(sandbox);
    }
    result
}

#[cfg(target_os = "linux")]
fn remove_leftovers(sandbox: &Sandbox) {
    crate::linux::placeholders::remove_stale(sandbox);
    crate::linux::cgroups::remove_stale();
}

#[cfg(not(target_os = "linux"))]
fn remove_leftovers(_sandbox: &Sandbox) {}

async fn run_job(
    guard: &GuardCommand,
    job: Job,
    socket: Option<OwnedFd>,
    cancel: impl Future<Output = ()>,
) -> Result<JobResult, GuardError> {
    job.check()?;
    let mut cancel = pin!(cancel);
    let streams = if socket.is_some() { Streams::Carried } else { Streams::Reported };
    let time_limit = job.time_limit;
    let layers = job.layers.clone().filter(|_| job.confinement != Confinement::None);
    let shared = match &layers {
        Some(layers) => tokio::select! {
            biased;
            () = &mut cancel => return Ok(not_started()),
            shared = layers.open(guard, &job.tag) => shared,
        },
        None => None,
    };
    let layers = layers.as_ref().map(|layers| layers.message(shared));
    let message = protocol::frame(&Request::Run(Box::new(JobMessage::new(&job, streams, layers))))
        .map_err(|error| GuardError::InvalidJob { tag: job.tag.clone(), reason: error.to_string() })?;
    let handler = job.on_proxy.clone();
    let mut guard_process = GuardProcess::start(guard, &job, socket)?;

    let job_sent = tokio::select! {
        biased;
        () = &mut cancel => false,
        result = guard_process.send(&message, shared) => match result {
            Ok(()) => true,
            Err(failure) => return Err(guard_process.fail(failure).await),
        },
    };
    let mut report = pin!(read_report(guard_process.output.take(), guard_process.output_limit));
    if job_sent {
        tokio::select! {
            biased;
            result = &mut report => return guard_process.finish(result).await,
            () = &mut cancel => {}
            () = sleep(time_limit.saturating_add(REPORT_TIMEOUT)) => {}
            () = deliver_proxy(guard_process.input.as_ref(), handler) => {}
        }
    }
    guard_process.request_end();
    match timeout(REPORT_TIMEOUT, &mut report).await {
        Ok(result) => guard_process.finish(result).await,
        Err(_) => Err(guard_process.kill_unresponsive(time_limit).await),
    }
}

/// Result of a job that was cancelled before it was sent.
fn not_started() -> JobResult {
    JobResult {
        end: ExitReason::Cancelled,
        output: Vec::new(),
        dropped_bytes: 0,
        duration: Duration::ZERO,
        recent: Vec::new(),
        enforcement: Enforcement::None,
        removed: Vec::new(),
    }
}

/// Length of the first part of a message, which comes with descriptors.
const PREFIX_BYTES: usize = 4;

/// Sends the start of a message with the namespaces of the shared layers.
#[cfg(target_os = "linux")]
async fn send_start(input: &UnixStream, start: &[u8], layers: Option<&SharedLayers>) -> io::Result<()> {
    let descriptors = layers.map(SharedLayers::namespaces).unwrap_or_default();
    input
        .async_io(tokio::io::Interest::WRITABLE, || crate::descriptors::send_all(input, start, &descriptors))
        .await
}

#[cfg(not(target_os = "linux"))]
async fn send_start(mut input: &UnixStream, start: &[u8], _layers: Option<&SharedLayers>) -> io::Result<()> {
    input.write_all(start).await
}

/// Waits for the listener of the proxy and hands it over. Never returns.
async fn deliver_proxy(input: Option<&UnixStream>, handler: Option<ProxyHandler>) {
    if let (Some(input), Some(ProxyHandler(handler))) = (input, handler) {
        let received = input.async_io(tokio::io::Interest::READABLE, || receive_listener(input)).await;
        // Without it, every connection of the command is refused.
        if let Ok(Some(listener)) = received {
            handler(listener);
        }
    }
    std::future::pending().await
}

/// Receives a listener. `None` if the message is something else.
#[cfg(target_os = "linux")]
fn receive_listener(input: &UnixStream) -> io::Result<Option<std::net::TcpListener>> {
    let mut byte = [0];
    let (count, descriptors) = crate::descriptors::try_receive(input, &mut byte)?;
    if count != 1 || byte != [protocol::PROXY] {
        return Ok(None);
    }
    Ok(descriptors.into_iter().next().map(std::net::TcpListener::from))
}

#[cfg(not(target_os = "linux"))]
fn receive_listener(_input: &UnixStream) -> io::Result<Option<std::net::TcpListener>> {
    Ok(None)
}

/// Reason why there is no report.
enum ReportError {
    /// The guard closed its pipe, so it is exiting or has exited.
    Closed,
    /// The guard did not become ready.
    Silent,
    /// The message is not a valid report.
    Malformed(String),
    Connection(io::Error),
}

impl From<io::Error> for ReportError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Self::Closed,
            io::ErrorKind::InvalidData => Self::Malformed(error.to_string()),
            _ => Self::Connection(error),
        }
    }
}

/// A started guard, and the two pipes to it.
pub(crate) struct GuardProcess {
    child: Child,
    input: Option<UnixStream>,
    output: Option<ChildStdout>,
    output_limit: usize,
    tag: String,
    directory: std::path::PathBuf,
}

impl GuardProcess {
    #[expect(clippy::disallowed_methods, reason = "processes are started only in this crate")]
    pub(crate) fn start(
        guard: &GuardCommand,
        job: &Job,
        socket: Option<OwnedFd>,
    ) -> Result<Self, GuardError> {
        let failed =
            |source| GuardError::CannotStart { tag: job.tag.clone(), program: guard.program.clone(), source };
        // A socket, because a sandbox sends the listener of its proxy.
        let (input, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        input.set_nonblocking(true).map_err(failed)?;
        let input = UnixStream::from_std(input).map_err(failed)?;
        let mut command = Command::new(&guard.program);
        command.args(&guard.arguments).arg(&job.tag).env_clear();
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped());
        command.stderr(socket.map_or_else(Stdio::null, Stdio::from));
        os::detach(command.as_std_mut());
        let mut child = command.spawn().map_err(failed)?;
        Ok(Self {
            input: Some(input),
            output: child.stdout.take(),
            child,
            output_limit: job.output_limit,
            tag: job.tag.clone(),
            directory: job.directory.clone(),
        })
    }

    /// Waits until the guard can be found by its tag and only then sends the job. No command runs under a
    /// guard that a later runner could not find.
    async fn send(&mut self, message: &[u8], layers: Option<&SharedLayers>) -> Result<(), ReportError> {
        let (Some(input), Some(output)) = (&mut self.input, &mut self.output) else {
            return Err(ReportError::Closed);
        };
        match timeout(READY_TIMEOUT, output.read_u8()).await {
            Ok(Ok(READY)) => {}
            Ok(Ok(byte)) => {
                return Err(ReportError::Malformed(format!("it starts with the byte {byte:#04x}")));
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(ReportError::Silent),
        }
        let (start, rest) = message.split_at_checked(PREFIX_BYTES).unwrap_or((message, &[]));
        send_start(input, start, layers).await?;
        input.write_all(rest).await?;
        input.flush().await?;
        Ok(())
    }

    /// Lets the guard create shared layers. Returns their directories and namespaces.
    #[cfg(target_os = "linux")]
    pub(crate) async fn create_layers(
        mut self,
        message: &[u8],
    ) -> Option<(Vec<std::ffi::OsString>, [OwnedFd; 2])> {
        if let Err(failure) = self.send(message, None).await {
            self.fail(failure).await;
            return None;
        }
        let report = timeout(REPORT_TIMEOUT, read_report(self.output.take(), 0)).await;
        let report = match report {
            Ok(Ok((report, _))) => report,
            Ok(Err(failure)) => {
                self.fail(failure).await;
                return None;
            }
            Err(_) => {
                self.kill_unresponsive(Duration::ZERO).await;
                return None;
            }
        };
        let sent = self.input.as_ref().map(|input| crate::descriptors::try_receive(input, &mut [0]));
        let _ = self.reap().await;
        match (report, sent) {
            (Report::LayersCreated { shared }, Some(Ok((1, descriptors)))) => {
                Some((shared, descriptors.try_into().ok()?))
            }
            _ => None,
        }
    }

    /// Closes the pipe, which makes the guard kill everything and report the output so far. The guard is also
    /// woken, because a command can stop it with a signal.
    fn request_end(&mut self) {
        drop(self.input.take());
        if let Some(pid) = self.child.id() {
            signal(pid as i32, Signal::CONT);
        }
    }

    /// Reaps the guard and converts its report to the result.
    async fn finish(
        mut self,
        report: Result<(Report, Vec<u8>), ReportError>,
    ) -> Result<JobResult, GuardError> {
        let end_requested = self.input.is_none();
        drop(self.input.take());
        let (report, output) = match report {
            Ok(report) => report,
            Err(ReportError::Closed) if end_requested => return self.cancelled_early().await,
            Err(failure) => return Err(self.fail(failure).await),
        };
        self.reap().await?;
        let tag = self.tag;
        match report {
            Report::Finished { end, dropped_bytes, duration, recent, enforcement, removed, .. } => {
                Ok(JobResult { end, output, dropped_bytes, duration, recent, enforcement, removed })
            }
            Report::CannotConfine { reason } => Err(GuardError::CannotConfine { tag, reason }),
            Report::LayersCreated { .. } => {
                let detail = "the report is not about a command".to_owned();
                Err(GuardError::Protocol { tag, detail })
            }
            Report::Directory { reason } => {
                Err(GuardError::Directory { tag, directory: self.directory, reason })
            }
            Report::CannotRun { reason } => Err(GuardError::CannotRun { tag, reason }),
        }
    }

    /// Handles a cancel before the job was sent. The guard has nothing to report. Its exit code says that
    /// nothing was run.
    async fn cancelled_early(mut self) -> Result<JobResult, GuardError> {
        let status = self.reap().await?;
        if status.code() == Some(EXIT_NO_JOB) {
            return Ok(not_started());
        }
        Err(GuardError::Died { tag: self.tag, status })
    }

    /// Ends the job after a failure and returns the error. The closed pipe makes a real guard kill
    /// everything. A program that does not speak the protocol is killed.
    async fn fail(mut self, failure: ReportError) -> GuardError {
        drop(self.input.take());
        let tag = self.tag.clone();
        match failure {
            ReportError::Closed => match self.reap().await {
                Ok(status) => GuardError::Died { tag, status },
                Err(error) => error,
            },
            ReportError::Silent => self.killed(GuardError::Unresponsive { tag, limit: READY_TIMEOUT }).await,
            ReportError::Malformed(detail) => self.killed(GuardError::Protocol { tag, detail }).await,
            ReportError::Connection(source) => GuardError::Connection { tag, source },
        }
    }

    /// Kills all processes of the job for this reason.
    async fn killed(mut self, reason: GuardError) -> GuardError {
        self.force_kill().await.err().unwrap_or(reason)
    }

    /// Waits for the guard to exit. After its report, or with its pipe closed, it has nothing left to do.
    async fn reap(&mut self) -> Result<std::process::ExitStatus, GuardError> {
        let tag = self.tag.clone();
        match timeout(REPORT_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(source)) => Err(GuardError::Connection { tag, source }),
            Err(_) => {
                self.force_kill().await?;
                Err(GuardError::Unresponsive { tag, limit: REPORT_TIMEOUT })
            }
        }
    }

    /// Kills a guard that does not respond, perhaps because the command stopped it with a signal.
    async fn kill_unresponsive(self, time_limit: Duration) -> GuardError {
        let (tag, limit) = (self.tag.clone(), REPORT_TIMEOUT.saturating_add(time_limit));
        self.killed(GuardError::Unresponsive { tag, limit }).await
    }

    /// Kills the guard's descendants and then the guard. Reading the process table blocks the thread for
    /// about a millisecond, which is acceptable in this rare case.
    #[cfg(target_os = "linux")]
    async fn force_kill(&mut self) -> Result<(), GuardError> {
        let failed = |source| GuardError::ProcessTable { tag: self.tag.clone(), source };
        let Some(pid) = self.child.id() else { return Ok(()) };
        let mut reaper = crate::stale::ProcessReaper::by_pid(pid as i32).map_err(failed)?;
        let pause = Duration::from_millis(10);
        for _ in 0..FORCE_KILL_TIMEOUT.as_millis() / pause.as_millis() {
            if reaper.pass(true).map_err(failed)? == 0 {
                let _ = self.child.wait().await;
                return Ok(());
            }
            sleep(pause).await;
        }
        let count = reaper.pass(true).map_err(failed)?;
        Err(GuardError::StillAlive { tag: self.tag.clone(), count, limit: FORCE_KILL_TIMEOUT })
    }

    #[cfg(not(target_os = "linux"))]
    async fn force_kill(&mut self) -> Result<(), GuardError> {
        let _ = timeout(FORCE_KILL_TIMEOUT, self.child.kill()).await;
        Ok(())
    }
}

/// Reads the report and its output. Lengths beyond the requested limit are rejected.
async fn read_report(
    pipe: Option<ChildStdout>,
    output_limit: usize,
) -> Result<(Report, Vec<u8>), ReportError> {
    let Some(mut pipe) = pipe else { return Err(ReportError::Closed) };
    let mut prefix = [0; 4];
    pipe.read_exact(&mut prefix).await?;
    let mut body = vec![0; protocol::body_length(prefix)?];
    pipe.read_exact(&mut body).await?;
    let report = protocol::parse(&body).map_err(|error| ReportError::Malformed(error.to_string()))?;
    let mut output = Vec::new();
    if let Report::Finished { output_bytes, .. } = &report {
        if *output_bytes > output_limit {
            return Err(ReportError::Malformed(format!(
                "it announced {output_bytes} bytes of output; the limit is {output_limit}"
            )));
        }
        output.resize(*output_bytes, 0);
        pipe.read_exact(&mut output).await?;
    }
    Ok((report, output))
}
