//! The process that runs the tree of the demo, and the handle on it.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use brigade::ResumeOptions;
use brigade::mcp::Servers;
use brigade_core::SessionId;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::TASK;
use super::folder::DemoFolder;
use crate::command::run::{TaskInput, start_session};
use crate::error::{CliError, Exit};
use crate::output;
use crate::setup;

/// Main function of the worker: `__demo FOLDER` starts the session, `__demo FOLDER SESSION` resumes it. Prints the
/// session, and runs it to its end.
pub(crate) fn worker_main(mut arguments: impl Iterator<Item = OsString>) -> Result<Exit, CliError> {
    let folder = arguments.next().ok_or_else(|| {
        CliError::usage("cannot run the demo: its directory was not passed. Use: brigade demo")
    })?;
    let folder = DemoFolder::at(PathBuf::from(folder));
    let resumed = arguments.next().map(|id| setup::parse_session_id(&id.to_string_lossy())).transpose()?;
    exit_with_parent();
    let settings = folder.settings()?;
    setup::multi_thread_runtime()?.block_on(async {
        let store = setup::open_store(&settings)?;
        let runtime = setup::runtime(&settings, store, &Servers::default()).await?;
        let run = match &resumed {
            Some(session) => runtime.resume(session, ResumeOptions::default()).await?,
            None => start_session(&runtime, &settings, &folder.flags(), &TaskInput::new(TASK)).await?,
        };
        output::text(&run.session().to_string())?;
        Ok(Exit::of(&run.result().await?.outcome.status))
    })
}

/// Ends this process when its parent ends, however that happens: then standard input is closed.
fn exit_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        crate::exit_process(Exit::Failed.code());
    });
}

/// A worker that was started.
pub(super) struct Worker {
    child: Child,
    pid: u32,
    stdout: BufReader<ChildStdout>,
    /// The worker exits when this is closed.
    _stdin: ChildStdin,
}

impl Worker {
    /// Starts a worker, in a process group of its own: Ctrl-C reaches only its parent, which then ends it.
    #[expect(
        clippy::disallowed_methods,
        reason = "a guard would clean up after the process that the demo kills"
    )]
    pub(super) fn start(folder: &DemoFolder, resumed: Option<&SessionId>) -> Result<Worker, CliError> {
        let failed = |error: std::io::Error| {
            CliError::failed(format!("cannot start the process that runs the demo's agents: {error}"))
        };
        let program = setup::guard_command()?.program;
        let mut command = Command::new(program);
        command.arg(crate::DEMO_ARG).arg(folder.root()).args(resumed.map(SessionId::to_string));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).kill_on_drop(true).spawn().map_err(failed)?;
        match (child.id(), child.stdin.take(), child.stdout.take()) {
            (Some(pid), Some(stdin), Some(stdout)) => {
                Ok(Worker { child, pid, stdout: BufReader::new(stdout), _stdin: stdin })
            }
            _ => Err(failed(std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The session, as soon as it exists.
    pub(super) async fn session(&mut self) -> Result<SessionId, CliError> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line).await {
            Ok(1..) => setup::parse_session_id(&line),
            Ok(0) | Err(_) => Err(self.failure().await),
        }
    }

    /// Waits for the exit of the process.
    pub(super) async fn wait(&mut self) -> Result<ExitStatus, CliError> {
        self.child.wait().await.map_err(|error| {
            CliError::failed(format!("cannot wait for the process that runs the demo's agents: {error}"))
        })
    }

    /// Sends SIGKILL and waits for the exit. Whether the signal ended the process.
    pub(super) async fn kill(&mut self) -> Result<bool, CliError> {
        // A process that has exited already cannot be killed; `wait` then returns how it exited.
        let _ = self.child.start_kill();
        let status = self.wait().await?;
        Ok(status.signal() == Some(Signal::KILL.as_raw()))
    }

    /// The reason why a worker exited before the end of the session.
    pub(super) async fn failure(&mut self) -> CliError {
        let mut message = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            // Whatever can be read is shown.
            let _ = stderr.read_to_string(&mut message).await;
        }
        let message = match message.trim().trim_start_matches("brigade: ") {
            "" => "the process that runs its agents exited without an error message",
            message => message,
        };
        CliError::failed(format!("cannot run the demo: {message}"))
    }
}
