//! Chat without a screen: reads messages line by line, and prints replies to standard output.

use brigade::{Detached, Run, RunResult};
use brigade_core::Status;

use super::attach::ComposedMessage;
use super::commands::{self, Command, ParsedLine};
use super::conversation::{Conversation, Sent};
use super::slash_output;
use crate::args::OutputFormat;
use crate::error::{CliError, Exit};
use crate::follow::{self, Console};
use crate::output;
use crate::progress::Progress;
use crate::report::Report;
use crate::sanitize;
use crate::session_ref;
use crate::summary;
use crate::terminal::{self, Colour};

/// Next step after a line.
enum NextStep {
    /// Read the next line.
    Continue,
    /// Quit at the user's request.
    Quit,
    /// Follow a round that the command started.
    Follow(Box<Run>),
}

/// Runs the chat until the input ends. The exit code is that of the last round.
pub(super) async fn run_chat(conversation: &mut Conversation) -> Result<Exit, CliError> {
    let mut console = conversation.console()?;
    let mut lines = terminal::stdin_lines();
    let mut exit = Exit::Done;
    let mut detached_runs = Vec::new();
    loop {
        let line = tokio::select! {
                    line = lines.recv() => line,
        () = console.signals.next() => return Ok(exit),
                };
        let Some(line) = line else { break };
        if line.trim().is_empty() {
            continue;
        }
        let ended = match commands::parse(&line) {
            Ok(ParsedLine::Message(text)) => {
                run_round(conversation, &text, &mut console, &mut detached_runs).await
            }
            Ok(ParsedLine::Command(command)) => match run_slash_command(conversation, command).await {
                Ok(NextStep::Continue) => continue,
                Ok(NextStep::Quit) => break,
                Ok(NextStep::Follow(run)) => {
                    follow(conversation, *run, &mut console, &mut detached_runs).await.map(|_| exit)
                }
                Err(failure) => {
                    report(failure)?;
                    continue;
                }
            },
            Err(invalid) => {
                report(CliError::usage(invalid))?;
                continue;
            }
        };
        exit = match ended {
            Ok(Exit::Cancelled) => return Ok(Exit::Cancelled),
            Ok(exit) => exit,
            Err(failure) => {
                report(failure)?;
                Exit::Failed
            }
        };
    }
    for detached in detached_runs {
        summary::wait_for_detached(&detached, &mut console).await;
    }
    console.attention.finish().await;
    Ok(exit)
}

/// Reports a failure. Returns it only if the output is closed.
fn report(failure: CliError) -> Result<(), CliError> {
    match failure {
        CliError::OutputClosed => Err(CliError::OutputClosed),
        failure => {
            failure.report();
            Ok(())
        }
    }
}

/// Sends a message and follows its round.
async fn run_round(
    conversation: &mut Conversation,
    text: &str,
    console: &mut Console,
    detached_runs: &mut Vec<Detached>,
) -> Result<Exit, CliError> {
    let ComposedMessage { text, notes } = conversation.compose(text);
    notes.iter().for_each(|note| output::note(note));
    let run = match conversation.send_message(&text).await? {
        Sent::Started(run) => *run,
        Sent::RunningElsewhere => {
            output::note(
                "This session is running in another process. The agent reads the message before its next turn.",
            );
            return Ok(Exit::Done);
        }
    };
    conversation.clear_pending_notes();
    follow(conversation, run, console, detached_runs).await
}

/// Follows a round to its end.
async fn follow(
    conversation: &mut Conversation,
    run: Run,
    console: &mut Console,
    detached_runs: &mut Vec<Detached>,
) -> Result<Exit, CliError> {
    let Some(view) = conversation.view.take() else { return Ok(Exit::Done) };
    let mut progress = Progress::new(&conversation.global, &conversation.settings.environment);
    let followed = follow::follow(&conversation.runtime, run, view, &mut progress, console).await?;
    let format = conversation.global.output_format;
    if format != OutputFormat::Text {
        let outcome = followed.result.as_ref().map(|result| &result.outcome);
        output::json(&Report::new(&followed.view, outcome))?;
    }
    conversation.view = Some(followed.view);
    let RunResult { outcome, detached, .. } = followed.result?;
    detached_runs.push(detached);
    if format == OutputFormat::Text {
        summary::print_result(outcome.text.as_str(), &conversation.global)?;
        if let Some(text) = status_notice(&outcome.status) {
            output::note(&text);
        }
    }
    Ok(Exit::of(&outcome.status))
}

/// Notice about an end that is not a success.
pub(super) fn status_notice(status: &Status) -> Option<String> {
    match status {
        Status::Done | Status::Detached => None,
        Status::Incomplete { limit } => Some(format!(
            "incomplete: stopped at the {}; the next message starts with new limits",
            limit.label()
        )),
        Status::Failed { cause } => Some(format!("failed: {}", sanitize::line(cause))),
        Status::Lost { cause } => Some(format!("outcome unknown: {}", sanitize::line(cause))),
        Status::Cancelled { by } => Some(format!("stopped by {}", sanitize::line(by))),
    }
}

async fn run_slash_command(conversation: &mut Conversation, command: Command) -> Result<NextStep, CliError> {
    let columns = terminal::stdout_columns();
    let text = match command {
        Command::Tree => slash_output::tree(conversation, Colour::Off, columns),
        Command::Cost => slash_output::cost(conversation, Colour::Off, columns),
        Command::Agents => slash_output::agents(conversation, columns),
        Command::Model(None) => slash_output::model(conversation).await,
        Command::Model(Some(model)) => {
            conversation.set_model(model).await?;
            slash_output::model(conversation).await
        }
        Command::Mode(None) => format!("Mode: {}.", conversation.mode().await),
        Command::Mode(Some(mode)) => {
            conversation.set_mode(mode).await?;
            format!("Mode: {mode} (from the next round).")
        }
        Command::Resume(None) => slash_output::sessions(&**conversation.runtime.store(), columns).await?,
        Command::Resume(Some(id)) => {
            let session = session_ref::resolve(&**conversation.runtime.store(), &id).await?;
            conversation.switch(&session).await?;
            format!("Switched to {}.", conversation.agent_label())
        }
        Command::Undo => conversation.undo().await?,
        Command::Clear => match conversation.leave_session() {
            Some(session) => format!("Started a new session. Resume the last one: /resume {session}"),
            None => "Started a new session.".to_owned(),
        },
        Command::Compact => return Ok(NextStep::Follow(Box::new(conversation.compact().await?))),
        Command::Tell(_) | Command::Stop(_) => return Err(CliError::usage("no agents are running")),
        Command::Help => commands::help(),
        Command::Quit => return Ok(NextStep::Quit),
    };
    output::text(&text)?;
    Ok(NextStep::Continue)
}
