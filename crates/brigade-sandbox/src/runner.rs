//! The runner's side: starts a guard, hands the job over, waits for the report.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::processes::signal;
use crate::protocol::{self, EXIT_NO_JOB, JobMessage, READY, Report, Streams};
use crate::{End, Finished, GuardCommand, GuardError, Job, os};

/// How long a guard may take to say that it is ready. It only has to start, but the machine may be busy.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// How long a guard may take to end its descendants and to report, once its time is up or it was told to.
const REPORT_LIMIT: Duration = Duration::from_secs(15);

/// How long the runner itself tries to end a guard that does not answer.
const FORCE_LIMIT: Duration = Duration::from_secs(10);

/// Runs a job under a guard and answers when its last process is gone.
///
/// Dropping the future closes the pipe to the guard, which then ends the command; the future does not wait for
/// that. When `cancel` resolves, the command is ended and the result is [`End::Cancelled`] with the output so
/// far. Needs a tokio runtime with IO and time.
pub async fn run(
    guard: &GuardCommand,
    job: Job,
    cancel: impl Future<Output = ()>,
) -> Result<Finished, GuardError> {
    carry(guard, job, None, cancel).await
}

/// Runs a job whose standard input and output are the stream that is given back; the result has what it writes to
/// standard error. The job starts when the future is first polled, and the stream ends with the last process.
///
/// Otherwise it is as [`run`] says: dropping the future ends everything. The job has a moment to end by itself, so the
/// stream is best dropped with it.
pub fn serve(
    guard: GuardCommand,
    job: Job,
    cancel: impl Future<Output = ()>,
) -> io::Result<(UnixStream, impl Future<Output = Result<Finished, GuardError>>)> {
    // Programs do not expect an input that refuses to wait, so only this end does.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let run = async move { carry(&guard, job, Some(theirs.into()), cancel).await };
    Ok((UnixStream::from_std(ours)?, run))
}

async fn carry(
    guard: &GuardCommand,
    job: Job,
    socket: Option<OwnedFd>,
    cancel: impl Future<Output = ()>,
) -> Result<Finished, GuardError> {
    job.check()?;
    let mut cancel = pin!(cancel);
    let streams = if socket.is_some() { Streams::Carried } else { Streams::Reported };
    let time_limit = job.time_limit;
    let message = protocol::frame(&JobMessage::new(&job, streams))
        .map_err(|error| GuardError::InvalidJob { mark: job.mark.clone(), reason: error.to_string() })?;
    let mut call = Call::start(guard, &job, socket)?;

    let handed_over = tokio::select! {
        biased;
        () = &mut cancel => false,
        result = call.hand_over(&message) => match result {
            Ok(()) => true,
            Err(failure) => return Err(call.fail(failure).await),
        },
    };
    let mut report = pin!(read_report(call.output.take(), call.output_limit));
    if handed_over {
        tokio::select! {
            biased;
            result = &mut report => return call.finish(result).await,
            () = &mut cancel => {}
            () = sleep(time_limit.saturating_add(REPORT_LIMIT)) => {}
        }
    }
    call.tell_to_end();
    match timeout(REPORT_LIMIT, &mut report).await {
        Ok(result) => call.finish(result).await,
        Err(_) => Err(call.end_by_force(time_limit).await),
    }
}

/// Why there is no report.
enum Failure {
    /// The guard closed its pipe, so it is ending or has ended.
    Closed,
    /// The guard did not say that it is ready.
    Silent,
    /// What came is no report.
    Nonsense(String),
    /// Reading or writing failed.
    Connection(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Self::Closed,
            io::ErrorKind::InvalidData => Self::Nonsense(error.to_string()),
            _ => Self::Connection(error),
        }
    }
}

/// A guard that was started, and the two pipes to it.
struct Call {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    output_limit: usize,
    mark: String,
    directory: std::path::PathBuf,
}

impl Call {
    #[expect(clippy::disallowed_methods, reason = "this crate is where processes are started")]
    fn start(guard: &GuardCommand, job: &Job, socket: Option<OwnedFd>) -> Result<Self, GuardError> {
        let mut command = Command::new(&guard.program);
        command.args(&guard.arguments).arg(&job.mark).env_clear();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(socket.map_or_else(Stdio::null, Stdio::from));
        os::detach(command.as_std_mut());
        let mut child = command.spawn().map_err(|source| GuardError::CannotStart {
            mark: job.mark.clone(),
            program: guard.program.clone(),
            source,
        })?;
        Ok(Self {
            input: child.stdin.take(),
            output: child.stdout.take(),
            child,
            output_limit: job.output_limit,
            mark: job.mark.clone(),
            directory: job.directory.clone(),
        })
    }

    /// Waits until the guard can be found by its mark and only then sends the job, so that no command runs
    /// under a guard that a later runner would not find.
    async fn hand_over(&mut self, message: &[u8]) -> Result<(), Failure> {
        let (Some(input), Some(output)) = (&mut self.input, &mut self.output) else {
            return Err(Failure::Closed);
        };
        match timeout(READY_LIMIT, output.read_u8()).await {
            Ok(Ok(READY)) => {}
            Ok(Ok(byte)) => return Err(Failure::Nonsense(format!("it began with the byte {byte:#04x}"))),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(Failure::Silent),
        }
        input.write_all(message).await?;
        input.flush().await?;
        Ok(())
    }

    /// The closed pipe tells the guard to end everything, after which it still reports what there was. A command
    /// can stop its guard with a signal, so the guard is also woken.
    fn tell_to_end(&mut self) {
        drop(self.input.take());
        if let Some(pid) = self.child.id() {
            signal(pid as i32, Signal::CONT);
        }
    }

    /// Takes the guard out of the process table and turns its report into the result.
    async fn finish(mut self, report: Result<(Report, Vec<u8>), Failure>) -> Result<Finished, GuardError> {
        let told_to_end = self.input.is_none();
        drop(self.input.take());
        let (report, output) = match report {
            Ok(report) => report,
            Err(Failure::Closed) if told_to_end => return self.cancelled_early().await,
            Err(failure) => return Err(self.fail(failure).await),
        };
        self.reap().await?;
        let mark = self.mark;
        match report {
            Report::Finished { end, dropped_bytes, duration, recent, .. } => {
                Ok(Finished { end, output, dropped_bytes, duration, recent })
            }
            Report::Directory { reason } => {
                Err(GuardError::Directory { mark, directory: self.directory, reason })
            }
            Report::CannotRun { reason } => Err(GuardError::CannotRun { mark, reason }),
        }
    }

    /// A guard whose job never arrived has nothing to report, and says by its exit code that nothing was run.
    async fn cancelled_early(mut self) -> Result<Finished, GuardError> {
        let status = self.reap().await?;
        if status.code() == Some(EXIT_NO_JOB) {
            return Ok(Finished {
                end: End::Cancelled,
                output: Vec::new(),
                dropped_bytes: 0,
                duration: Duration::ZERO,
                recent: Vec::new(),
            });
        }
        Err(GuardError::Died { mark: self.mark, status })
    }

    /// Ends the call and says why. The closed pipe makes a real guard end everything; a program that does not
    /// speak the language is killed.
    async fn fail(mut self, failure: Failure) -> GuardError {
        drop(self.input.take());
        let mark = self.mark.clone();
        match failure {
            Failure::Closed => match self.reap().await {
                Ok(status) => GuardError::Died { mark, status },
                Err(error) => error,
            },
            Failure::Silent => match self.force().await {
                Ok(()) => GuardError::Unresponsive { mark, limit: READY_LIMIT },
                Err(error) => error,
            },
            Failure::Nonsense(detail) => match self.force().await {
                Ok(()) => GuardError::Protocol { mark, detail },
                Err(error) => error,
            },
            Failure::Connection(source) => GuardError::Connection { mark, source },
        }
    }

    /// Waits for the guard's end. After its report, or with its pipe closed, it has nothing left to do.
    async fn reap(&mut self) -> Result<std::process::ExitStatus, GuardError> {
        let mark = self.mark.clone();
        match timeout(REPORT_LIMIT, self.child.wait()).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(source)) => Err(GuardError::Connection { mark, source }),
            Err(_) => {
                self.force().await?;
                Err(GuardError::Unresponsive { mark, limit: REPORT_LIMIT })
            }
        }
    }

    /// The guard does not answer, perhaps because the command stopped it with a signal.
    async fn end_by_force(mut self, time_limit: Duration) -> GuardError {
        match self.force().await {
            Ok(()) => {
                GuardError::Unresponsive { mark: self.mark, limit: REPORT_LIMIT.saturating_add(time_limit) }
            }
            Err(error) => error,
        }
    }

    /// Kills the guard's descendants and then the guard. A look at the process table blocks the thread for about
    /// a millisecond, which this rare case may cost.
    #[cfg(target_os = "linux")]
    async fn force(&mut self) -> Result<(), GuardError> {
        let failed = |source| GuardError::ProcessTable { mark: self.mark.clone(), source };
        let Some(pid) = self.child.id() else { return Ok(()) };
        let mut hunt = crate::stale::Hunt::by_number(pid as i32).map_err(failed)?;
        let pause = Duration::from_millis(10);
        for _ in 0..FORCE_LIMIT.as_millis() / pause.as_millis() {
            if hunt.pass(true).map_err(failed)? == 0 {
                let _ = self.child.wait().await;
                return Ok(());
            }
            sleep(pause).await;
        }
        let count = hunt.pass(true).map_err(failed)?;
        Err(GuardError::StillAlive { mark: self.mark.clone(), count, limit: FORCE_LIMIT })
    }

    #[cfg(not(target_os = "linux"))]
    async fn force(&mut self) -> Result<(), GuardError> {
        let _ = timeout(FORCE_LIMIT, self.child.kill()).await;
        Ok(())
    }
}

/// Reads the report and its output, and believes no length beyond what was asked for.
async fn read_report(pipe: Option<ChildStdout>, output_limit: usize) -> Result<(Report, Vec<u8>), Failure> {
    let Some(mut pipe) = pipe else { return Err(Failure::Closed) };
    let mut prefix = [0; 4];
    pipe.read_exact(&mut prefix).await?;
    let mut body = vec![0; protocol::body_length(prefix)?];
    pipe.read_exact(&mut body).await?;
    let report = protocol::parse(&body).map_err(|error| Failure::Nonsense(error.to_string()))?;
    let mut output = Vec::new();
    if let Report::Finished { output_bytes, .. } = &report {
        if *output_bytes > output_limit {
            return Err(Failure::Nonsense(format!("it announced {output_bytes} bytes of output")));
        }
        output.resize(*output_bytes, 0);
        pipe.read_exact(&mut output).await?;
    }
    Ok((report, output))
}
