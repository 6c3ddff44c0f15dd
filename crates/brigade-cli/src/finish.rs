//! What is printed at the end of a run: the result, what it cost, and how to go on.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use brigade::model::relay;
use brigade::{Detached, RunError, Store};
use brigade_core::delegation::Which;
use brigade_core::view::{Node, Question, Tree};
use brigade_core::{SessionId, Spent, Status};

use crate::args::{Flags, Global, OutputFormat};
use crate::failure::{Exit, Failure};
use crate::follow::{Followed, Interrupts, View};
use crate::limits;
use crate::output;
use crate::render::{self, Stage};
use crate::report::Report;
use crate::safe;
use crate::terminal::{self, Colour};

/// How often it is looked what sessions ask that were left to themselves.
const GLANCE: Duration = Duration::from_secs(1);

/// The flags that a command has to be typed with again to mean the same place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hints {
    store: String,
    run: String,
    timeout: Option<Duration>,
}

impl Hints {
    /// What was typed.
    pub(crate) fn new(global: &Global, flags: &Flags) -> Hints {
        let mut hints = Hints { timeout: flags.timeout, ..Hints::default() };
        let add =
            |text: &mut String, flag: &str, value: &str| text.push_str(&format!(" {flag} {}", quoted(value)));
        hints.store = store_flag(global);
        for setting in &global.set {
            add(&mut hints.run, "--set", setting);
        }
        if let Some(folder) = &flags.cwd {
            add(&mut hints.run, "--cwd", &folder.display().to_string());
        }
        if let Some(mode) = flags.mode {
            add(&mut hints.run, "--mode", mode.as_str());
        }
        hints
    }

    /// The command that goes on with a session.
    pub(crate) fn resume(&self, session: &SessionId) -> String {
        format!("brigade resume {session}{}{}", self.store, self.run)
    }

    /// The command that talks on with a session.
    pub(crate) fn chat(&self, session: &SessionId) -> String {
        format!("brigade chat -r {session}{}{}", self.store, self.run)
    }

    fn show(&self, session: &SessionId, what: &str) -> String {
        format!("brigade sessions {what} {session}{}", self.store)
    }

    /// The command that goes on with a session that was cancelled.
    pub(crate) fn tell(&self, session: &SessionId) -> String {
        format!("brigade tell {session} \"...\"{}{}", self.store, self.run)
    }
}

/// The flag that names the same store again.
pub(crate) fn store_flag(global: &Global) -> String {
    global
        .store
        .as_ref()
        .map_or_else(String::new, |store| format!(" --store {}", quoted(&store.display().to_string())))
}

/// A word as a shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Prints the end of a run, and stays while sessions that it left to themselves go on in this process. Ctrl-C leaves
/// them too: they can be resumed.
pub(crate) async fn finish(
    store: &dyn Store,
    followed: Followed,
    global: &Global,
    hints: &Hints,
    colour: Colour,
    interrupts: &mut Interrupts,
) -> Result<Exit, Failure> {
    let detached = followed.ending.as_ref().ok().map(|ending| ending.detached.clone());
    let root = &followed.view.root;
    // What only made a call for another program hears nothing.
    let hears = !relay::speaks_for(store, root).await.unwrap_or(false);
    let tell = hears.then(|| hints.tell(root));
    let exit = print(followed, global, hints, tell, colour)?;
    if let Some(detached) = detached {
        stay(store, &detached, hints, interrupts).await;
    }
    Ok(exit)
}

/// Stays while sessions that were left to themselves go on in this process.
pub(crate) async fn stay(store: &dyn Store, detached: &Detached, hints: &Hints, interrupts: &mut Interrupts) {
    if detached.sessions().is_empty() {
        return;
    }
    for session in detached.sessions() {
        output::note(&format!(
            "{session} goes on by itself; Ctrl-C leaves it, and {} goes on",
            hints.resume(session)
        ));
    }
    let mut told = HashSet::new();
    loop {
        tokio::select! {
            () = detached.ended() => return,
            () = interrupts.next() => return,
            () = tokio::time::sleep(GLANCE) => {}
        }
        for session in detached.sessions() {
            for (name, words) in asked(store, session).await {
                if told.insert(name) {
                    output::note(&words);
                }
            }
        }
    }
}

/// What a session that was left to itself asks: the name of each question, and how to answer it.
pub(crate) async fn asked(store: &dyn Store, session: &SessionId) -> Vec<(String, String)> {
    let records = store.tail(session, 0, usize::MAX).await.unwrap_or_default();
    let tree = Tree::fold(&records);
    let tell = |open: &Question| {
        let lines = render::question::lines(open, &tree, terminal::room());
        (open.name(), format!("{}\nTo answer: brigade answer {}", lines.join("\n"), open.name()))
    };
    tree.questions().map(tell).collect()
}

fn print(
    followed: Followed,
    global: &Global,
    hints: &Hints,
    tell: Option<String>,
    colour: Colour,
) -> Result<Exit, Failure> {
    let Followed { ending, view } = followed;
    let format = global.output_format;
    if format != OutputFormat::Text {
        output::json(&Report::new(&view, &ending))?;
    }
    let ending = match ending {
        Ok(ending) => ending,
        Err(error) => return Err(stopped(error, &view, hints)),
    };
    let outcome = ending.outcome;
    if format == OutputFormat::Text {
        output::paint(&render::summary(&view, colour, terminal::room()));
        output::note("");
        result(outcome.text.as_str(), global)?;
    }
    if format != OutputFormat::StreamJson {
        for warning in &outcome.warnings {
            output::note(&format!("warning: {}", safe::line(warning)));
        }
        next_steps(&outcome.status, &ending.spent, &view, hints, tell);
    }
    Ok(Exit::of(&outcome.status))
}

/// Writes a result to standard output. A program gets it without control characters, or with `--raw` as it is.
pub(crate) fn result(text: &str, global: &Global) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    if terminal::reads_results() {
        return output::text(text);
    }
    output::raw(&if global.raw { Cow::Borrowed(text) } else { safe::uncontrolled(text) })?;
    if text.ends_with('\n') { Ok(()) } else { output::raw("\n") }
}

/// Says what a person would do next, as commands to be typed; `tell` where somebody would hear it.
fn next_steps(status: &Status, spent: &Spent, view: &View, hints: &Hints, tell: Option<String>) {
    let session = &view.root;
    output::note("");
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut step = |words: &str, command: String| steps.push((format!("{words}:"), command));
    match status {
        Status::Done | Status::Detached => {}
        Status::Incomplete { limit } => {
            output::note(&limits::reason(*limit, spent, view, hints.timeout));
            let words = if *limit == Which::Loop { "To continue" } else { "To continue with more" };
            step(words, hints.resume(session) + &limits::more(*limit, view, hints.timeout));
        }
        Status::Failed { cause } => {
            output::note(&format!("failed: {}", safe::line(cause)));
            step("To try again", hints.resume(session));
        }
        Status::Lost { cause } => {
            output::note(&format!("outcome unknown: {}", safe::line(cause)));
            step("To go on", hints.resume(session));
        }
        Status::Cancelled { by } => {
            output::note(&format!("cancelled by {}", safe::line(by)));
            if let Some(tell) = &tell {
                step("To go on all the same", tell.clone());
            }
        }
    }
    let agents = view.tree.walk(session);
    step("To look closer", hints.show(session, if agents.len() > 1 { "tree" } else { "show" }));
    let went_wrong = |node: &&&Node| {
        node.session != *session && matches!(Stage::of(&node.doing), Stage::Failed | Stage::Incomplete)
    };
    if let Some(child) = agents.iter().find(went_wrong) {
        step("To see what went wrong", hints.show(&child.session, "show"));
    }
    if let Some(tell) = tell
        && matches!(status, Status::Done | Status::Detached | Status::Incomplete { .. })
    {
        step("To say more", tell);
    }
    output::note(&listed(&steps, terminal::room()));
}

/// Commands behind the words that go with them, or beneath them where a terminal would break the lines.
fn listed(steps: &[(String, String)], columns: usize) -> String {
    let widest = steps.iter().map(|(words, _)| words.len()).max().unwrap_or(0);
    let fits = |(_, command): &(String, String)| widest + 1 + render::width(command) <= columns;
    let lines: Vec<String> = match steps.iter().all(fits) {
        true => steps.iter().map(|(words, command)| format!("{words:widest$} {command}")).collect(),
        false => steps.iter().map(|(words, command)| format!("{words}\n  {command}")).collect(),
    };
    lines.join("\n")
}

/// A run that stopped without an end in its log.
fn stopped(error: RunError, view: &View, hints: &Hints) -> Failure {
    let failure = Failure::from(error);
    if view.tree.nodes().is_empty() {
        return failure;
    }
    // The session is there, so nothing that was typed is wrong any more.
    let failure = match failure {
        Failure::Usage(error) => Failure::Failed(error),
        other => other,
    };
    failure.hint(format!("Nothing recorded is lost. To go on: {}", hints.resume(&view.root)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/a/b-c.db"), "/a/b-c.db");
        assert_eq!(quoted("it's here"), "'it'\\''s here'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("$(rm)"), "'$(rm)'");
    }
}
