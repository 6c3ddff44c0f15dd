//! `shell`: runs commands under a guard process.

use std::borrow::Cow;
use std::time::Duration;

use brigade_base::process::guard_tag;
use brigade_core::ToolOutput;
use brigade_core::event::Effect;
use brigade_core::message::Category;
use brigade_core::permission::Subject;
use brigade_sandbox::{ExitReason, Job, JobResult};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{CallTitle, Tool, ToolContext};

/// Runs commands.
#[derive(Debug, Clone, Copy)]
pub struct Shell;

/// The arguments of `shell`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShellInput {
    /// For /bin/sh
    command: String,
    /// Time limit; at most the default
    timeout_seconds: Option<u64>,
}

impl Tool for Shell {
    const NAME: &'static str = "shell";
    type Input = ShellInput;

    fn description(&self) -> Cow<'static, str> {
        "Run a command in the workspace, without a terminal or input. Background processes are killed when it ends. Use the file tools to read, search and edit files."
            .into()
    }

    fn category(&self) -> Category {
        Category::Execute
    }

    fn effect(&self) -> Effect {
        Effect::Opaque
    }

    fn subject<'a>(&self, input: &'a ShellInput) -> Subject<'a> {
        Subject::Command(&input.command)
    }

    fn title(&self, input: &ShellInput) -> Option<CallTitle> {
        Some(CallTitle::new("Run", &input.command))
    }

    async fn run(&self, input: ShellInput, context: &ToolContext) -> ToolOutput {
        let Some(settings) = &context.shell else {
            return ToolOutput::error("`shell` is not available. Use the other tools.");
        };
        if input.command.trim().is_empty() {
            return ToolOutput::error("The command is empty. Give the command to run.");
        }
        let time_limit = match input.timeout_seconds {
            Some(0) => {
                return ToolOutput::error("`timeout_seconds` is 0. Allow at least one second.");
            }
            Some(seconds) => settings.time_limit.min(Duration::from_secs(seconds)),
            None => settings.time_limit,
        };
        let tag = guard_tag(&context.session, context.call);
        let job = Job::new(input.command, &settings.directory, tag, context.confinement.clone())
            .environment(settings.environment.clone())
            .time_limit(time_limit)
            .output_limit(settings.output_limit);
        match brigade_sandbox::run(&settings.guard, job, context.stop_requested()).await {
            Ok(finished) => report(&finished, settings.output_limit, time_limit),
            Err(cause) => ToolOutput::error(cause.to_string()),
        }
    }
}

fn report(finished: &JobResult, output_limit: usize, time_limit: Duration) -> ToolOutput {
    let mut text = output(finished, output_limit);
    let end = match finished.end {
        ExitReason::Exited(0) if text.is_empty() => return ToolOutput::ok("(no output)"),
        ExitReason::Exited(0) => return ToolOutput::ok(text),
        ExitReason::Exited(code) => format!("(exit code {code})"),
        ExitReason::Signalled(signal) => format!("(killed by signal {signal})"),
        ExitReason::TimedOut => format!("(timed out after {} seconds)", time_limit.as_secs()),
        ExitReason::Cancelled => "(cancelled)".to_owned(),
        ExitReason::OverLimit(limit) => format!("(killed: {limit})"),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&end);
    ToolOutput::error(text)
}

/// Formats the output as text, with a note if its middle was dropped.
fn output(finished: &JobResult, output_limit: usize) -> String {
    if finished.dropped_bytes == 0 {
        return String::from_utf8_lossy(&finished.output).into_owned();
    }
    let (start, end) = finished.output.split_at((output_limit / 2).min(finished.output.len()));
    let (start, end) = (String::from_utf8_lossy(start), String::from_utf8_lossy(end));
    format!("{start}\n(… {} bytes of output omitted …)\n{end}", finished.dropped_bytes)
}

#[cfg(test)]
mod tests {
    use brigade_sandbox::Enforcement;

    use super::*;

    fn finished(end: ExitReason, output: &[u8], dropped_bytes: u64) -> JobResult {
        JobResult {
            end,
            output: output.to_vec(),
            dropped_bytes,
            duration: Duration::ZERO,
            recent: Vec::new(),
            enforcement: Enforcement::None,
            removed: Vec::new(),
        }
    }

    #[test]
    fn report_ends_with_the_exit_status() {
        let say = |end, output: &[u8]| {
            let output = report(&finished(end, output, 0), 100, Duration::from_secs(7));
            (output.text.to_string(), output.is_error())
        };
        assert_eq!(say(ExitReason::Exited(0), b"hi\n"), ("hi\n".into(), false));
        assert_eq!(say(ExitReason::Exited(0), b""), ("(no output)".into(), false));
        assert_eq!(say(ExitReason::Exited(3), b"hi"), ("hi\n(exit code 3)".into(), true));
        assert_eq!(say(ExitReason::Exited(1), b""), ("(exit code 1)".into(), true));
        assert_eq!(say(ExitReason::Signalled(9), b"x\n"), ("x\n(killed by signal 9)".into(), true));
        assert_eq!(say(ExitReason::TimedOut, b""), ("(timed out after 7 seconds)".into(), true));
        assert_eq!(say(ExitReason::Cancelled, b"\xff"), ("\u{fffd}\n(cancelled)".into(), true));
    }

    #[test]
    fn output_marks_the_dropped_middle() {
        let output = output(&finished(ExitReason::Exited(0), "aé€z".as_bytes(), 12), 8);
        assert_eq!(output, "aé\u{fffd}\n(… 12 bytes of output omitted …)\n\u{fffd}\u{fffd}z");
    }
}
