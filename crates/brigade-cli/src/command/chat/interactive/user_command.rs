//! User commands: `!` runs a command in the folder of the session, and sends its output with the next message.

use std::pin::Pin;

use brigade_sandbox::{Confinement, ExitReason, GuardError, Job, JobResult, run};
use tokio::sync::oneshot;

use super::super::attach::fenced;
use super::super::commands::{OutputAudience, UserCommand};
use super::ChatUi;
use crate::render::fit;
use crate::sanitize;

/// Name of the guard in the process table.
pub(crate) const USER_COMMAND_TAG: &str = "user:0";
/// Columns of the command in the notice.
const MAX_COMMAND_COLUMNS: usize = 40;

/// Running command of the user.
pub(super) struct RunningCommand {
    command: UserCommand,
    finished: Pin<Box<dyn Future<Output = Result<JobResult, GuardError>> + Send>>,
    /// Stops the command when used or dropped.
    stop: Option<oneshot::Sender<()>>,
}

/// Waits for the end of the command; never returns if none is running.
pub(super) async fn finished(running: &mut Option<RunningCommand>) -> Result<JobResult, GuardError> {
    match running {
        Some(running) => (&mut running.finished).await,
        None => std::future::pending().await,
    }
}

impl RunningCommand {
    pub(super) fn notice(&self) -> String {
        let command = fit(&sanitize::line(&self.command.text), MAX_COMMAND_COLUMNS);
        match self.stop {
            Some(_) => format!("Running {command}. Press Esc to stop it."),
            None => format!("Stopping {command}."),
        }
    }

    pub(super) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // A command that has just ended no longer listens.
            let _ = stop.send(());
        }
    }
}

impl ChatUi<'_> {
    /// Runs a user command, with the environment and limits of agent commands.
    pub(super) fn run_user_command(&mut self, command: UserCommand) {
        if let Some(running) = &self.command {
            let other = sanitize::line(&running.command.text);
            return self.note(&format!(
                "cannot run a second command: `{other}` is still running. Press Esc to stop it."
            ));
        }
        let Some(shell) = self.conversation.runtime.settings().shell.clone() else {
            return self.note("cannot run a command: `shell` is not available.");
        };
        let job = Job::new(&command.text, shell.directory, USER_COMMAND_TAG, Confinement::None)
            .environment(shell.environment)
            .time_limit(shell.time_limit)
            .output_limit(shell.output_limit);
        let (stop, stopped) = oneshot::channel();
        let finished = async move {
            let stopped = async {
                let _ = stopped.await;
            };
            run(&shell.guard, job, stopped).await
        };
        self.command = Some(RunningCommand { command, finished: Box::pin(finished), stop: Some(stop) });
    }

    /// Shows the output of a command, and adds it to the next message.
    pub(super) fn command_ended(&mut self, finished: Result<JobResult, GuardError>) {
        let Some(RunningCommand { command, .. }) = self.command.take() else { return };
        let finished = match finished {
            Ok(finished) => finished,
            Err(error) => return self.note(&error.to_string()),
        };
        let printed = output_text(&finished);
        self.note(&printed);
        if command.output == OutputAudience::UserAndAgent {
            self.conversation.add_pending_note(format!("I ran `{}`:\n{}", command.text, fenced(&printed)));
            self.print_block(vec![self.colour.paint("2", "(the agent reads this with your next message)")]);
        }
        self.print_blank_line();
    }
}

/// Output of a command and, unless it succeeded, its exit status.
fn output_text(finished: &JobResult) -> String {
    let mut text = String::from_utf8_lossy(&finished.output).trim_end().to_owned();
    let end = match finished.end {
        ExitReason::Exited(0) if text.is_empty() => Some("(no output)".to_owned()),
        ExitReason::Exited(0) => None,
        ExitReason::Exited(code) => Some(format!("(exit code {code})")),
        ExitReason::Signalled(signal) => Some(format!("(killed by signal {signal})")),
        ExitReason::TimedOut => Some("(stopped at the time limit)".to_owned()),
        ExitReason::Cancelled => Some("(stopped)".to_owned()),
        ExitReason::OverLimit(limit) => Some(format!("(killed: {limit})")),
    };
    let dropped = match finished.dropped_bytes {
        0 => None,
        bytes => Some(format!("({bytes} bytes in the middle omitted)")),
    };
    for line in dropped.into_iter().chain(end) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&line);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brigade_sandbox::Enforcement;

    use super::*;

    #[test]
    fn output_text_ends_with_the_exit_reason() {
        let say = |end, output: &[u8], dropped_bytes| {
            let (output, duration, recent) = (output.to_vec(), Duration::ZERO, Vec::new());
            let (enforcement, removed) = (Enforcement::None, Vec::new());
            output_text(&JobResult { end, output, dropped_bytes, duration, recent, enforcement, removed })
        };
        assert_eq!(say(ExitReason::Exited(0), b"hi\n", 0), "hi");
        assert_eq!(say(ExitReason::Exited(0), b"", 0), "(no output)");
        assert_eq!(
            say(ExitReason::Exited(3), b"hi\n", 7),
            "hi\n(7 bytes in the middle omitted)\n(exit code 3)"
        );
        assert_eq!(say(ExitReason::Cancelled, b"", 0), "(stopped)");
    }
}
