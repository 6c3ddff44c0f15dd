//! A conversation without a screen: messages come line by line, answers go to standard output.

use std::io::BufRead;

use brigade::{Detached, Ending, Prepared};
use brigade_core::Status;
use tokio::sync::mpsc;

use super::answers;
use super::attach::Attached;
use super::commands::{self, Command, Typed};
use super::talk::{Said, Talk};
use crate::args::OutputFormat;
use crate::attention::Attention;
use crate::failure::{Exit, Failure};
use crate::finish;
use crate::follow::{self, Interrupts};
use crate::named;
use crate::output;
use crate::progress::Progress;
use crate::report::Report;
use crate::safe;
use crate::terminal::{self, Colour};

/// Whether there is more to come.
enum Then {
    /// The next line.
    On,
    /// The end, at the person's word.
    Leave,
    /// A round that the command began.
    Follow(Box<Prepared>),
}

/// Talks until the input ends. How it ends is how the last round did.
pub(super) async fn converse(talk: &mut Talk) -> Result<Exit, Failure> {
    let mut interrupts = Interrupts::listen(talk.runtime.store().clone())?;
    let mut lines = lines();
    let mut attention = Attention::new(&talk.settings, &talk.runtime);
    let mut exit = Exit::Done;
    let mut apart = Vec::new();
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            () = interrupts.next() => return Ok(exit),
        };
        let Some(line) = line else { break };
        if line.trim().is_empty() {
            continue;
        }
        let ended = match commands::parse(&line) {
            Ok(Typed::Message(text)) => round(talk, &text, &mut interrupts, &mut apart, &mut attention).await,
            Ok(Typed::Command(command)) => match obey(talk, command).await {
                Ok(Then::On) => continue,
                Ok(Then::Leave) => break,
                Ok(Then::Follow(run)) => {
                    let followed = follow(talk, *run, &mut interrupts, &mut apart, &mut attention);
                    followed.await.map(|_| exit)
                }
                Err(failure) => {
                    report(failure)?;
                    continue;
                }
            },
            Err(words) => {
                report(Failure::usage(words))?;
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
    for detached in apart {
        finish::stay(&**talk.runtime.store(), &detached, &talk.hints(), &mut interrupts, &mut attention)
            .await;
    }
    attention.finish().await;
    Ok(exit)
}

/// Says what went wrong. Only where nobody listens any more there is no going on.
fn report(failure: Failure) -> Result<(), Failure> {
    match failure {
        Failure::Closed => Err(Failure::Closed),
        failure => {
            failure.report();
            Ok(())
        }
    }
}

/// Lines of standard input, read by a thread that nobody waits for.
fn lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    receiver
}

/// One message and what comes of it.
async fn round(
    talk: &mut Talk,
    text: &str,
    interrupts: &mut Interrupts,
    apart: &mut Vec<Detached>,
    attention: &mut Attention,
) -> Result<Exit, Failure> {
    let Attached { text, notes } = talk.composed(text);
    notes.iter().for_each(|note| output::note(note));
    let run = match talk.say(&text).await? {
        Said::Runs(round) => round,
        Said::Elsewhere => {
            output::note("This session is run elsewhere and hears it there before its next turn.");
            return Ok(Exit::Done);
        }
    };
    talk.forget_kept();
    follow(talk, run, interrupts, apart, attention).await
}

/// Follows a round to its end.
async fn follow(
    talk: &mut Talk,
    run: Prepared,
    interrupts: &mut Interrupts,
    apart: &mut Vec<Detached>,
    attention: &mut Attention,
) -> Result<Exit, Failure> {
    let run = run.start();
    let Some(view) = talk.view.take() else { return Ok(Exit::Done) };
    let mut progress = Progress::new(&talk.global, &talk.settings.environment);
    let hints = talk.hints();
    let followed =
        follow::follow(&talk.runtime, run, view, &mut progress, interrupts, &hints, attention).await?;
    let format = talk.global.output_format;
    if format != OutputFormat::Text {
        output::json(&Report::new(&followed.view, &followed.ending))?;
    }
    talk.view = Some(followed.view);
    let Ending { outcome, detached, .. } = followed.ending?;
    apart.push(detached);
    if format == OutputFormat::Text {
        finish::result(outcome.text.as_str(), &talk.global)?;
        if let Some(words) = trouble(&outcome.status) {
            output::note(&words);
        }
    }
    Ok(Exit::of(&outcome.status))
}

/// What there is to say of an end that is not a success.
pub(super) fn trouble(status: &Status) -> Option<String> {
    match status {
        Status::Done | Status::Detached => None,
        Status::Incomplete { limit } => Some(format!(
            "incomplete: stopped at the {}; the next message begins with fresh limits",
            limit.phrase()
        )),
        Status::Failed { cause } => Some(format!("failed: {}", safe::line(cause))),
        Status::Lost { cause } => Some(format!("outcome unknown: {}", safe::line(cause))),
        Status::Cancelled { by } => Some(format!("stopped by {}", safe::line(by))),
    }
}

async fn obey(talk: &mut Talk, command: Command) -> Result<Then, Failure> {
    let columns = terminal::room_for_results();
    let text = match command {
        Command::Tree => answers::tree(talk, Colour::Off, columns),
        Command::Cost => answers::cost(talk, Colour::Off, columns),
        Command::Agents => answers::agents(talk, columns),
        Command::Model(None) => answers::model(talk).await,
        Command::Model(Some(model)) => {
            talk.set_model(model).await?;
            answers::model(talk).await
        }
        Command::Mode(None) => format!("The mode is {}.", talk.mode().await),
        Command::Mode(Some(mode)) => {
            talk.set_mode(mode).await?;
            format!("The mode is {mode} from the next round on.")
        }
        Command::Resume(None) => answers::sessions(&**talk.runtime.store(), columns).await?,
        Command::Resume(Some(id)) => {
            let session = named::session(&**talk.runtime.store(), &id).await?;
            talk.switch(&session).await?;
            format!("This is {} now.", talk.who())
        }
        Command::Undo => talk.undo().await?,
        Command::Clear => match talk.leave_session() {
            Some(session) => format!("A new session begins. To continue the last one: /resume {session}"),
            None => "A new session begins.".to_owned(),
        },
        Command::Compact => return Ok(Then::Follow(Box::new(talk.compact().await?))),
        Command::Tell(_) | Command::Stop(_) => return Err(Failure::usage("nobody works now")),
        Command::Help => commands::help(),
        Command::Quit => return Ok(Then::Leave),
    };
    output::text(&text)?;
    Ok(Then::On)
}
