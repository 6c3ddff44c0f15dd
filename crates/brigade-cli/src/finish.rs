//! What is printed at the end of a run: the result, what it cost, and how to go on.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use brigade::model::relay;
use brigade::{Detached, ResultSchema, RunError, Store};
use brigade_core::delegation::Which;
use brigade_core::view::{Node, Question, Tree};
use brigade_core::{SessionId, Spent, Status};

use crate::args::{Flags, Global, OutputFormat};
use crate::attention::Attention;
use crate::failure::{Exit, Failure};
use crate::follow::{Followed, Interrupts, View};
use crate::limits;
use crate::named;
use crate::output;
use crate::render::question::{Length, Look};
use crate::render::{self, Stage};
use crate::report::Report;
use crate::safe;
use crate::terminal::{self, Colour};

/// How often it is looked what sessions ask that were left to themselves.
const GLANCE: Duration = Duration::from_secs(1);

/// The flags that a command has to be typed with again. A session remembers its folder, agent, model and mode.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hints {
    store: String,
    set: String,
    timeout: Option<Duration>,
}

impl Hints {
    /// What was typed.
    pub(crate) fn new(global: &Global, flags: &Flags) -> Hints {
        let mut hints = Hints { timeout: flags.timeout, ..Hints::default() };
        hints.store = store_flag(global);
        for setting in &global.set {
            hints.set.push_str(&format!(" --set {}", quoted(setting)));
        }
        hints
    }

    /// The command that goes on with a session.
    pub(crate) fn resume(&self, session: &SessionId) -> String {
        format!("brigade resume {session}{}{}", self.store, self.set)
    }

    /// The command that talks on with a session.
    pub(crate) fn chat(&self, session: &SessionId) -> String {
        format!("brigade chat -r {session}{}{}", self.store, self.set)
    }

    fn show(&self, session: &SessionId, what: &str) -> String {
        format!("brigade sessions {what} {session}{}", self.store)
    }

    /// The command that says something to a session.
    pub(crate) fn tell(&self, session: &SessionId) -> String {
        format!("brigade tell {session} \"...\"{}{}", self.store, self.set)
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
    attention: &mut Attention,
) -> Result<Exit, Failure> {
    let detached = followed.ending.as_ref().ok().map(|ending| ending.detached.clone());
    let root = &followed.view.root;
    // What only made a call for another program hears nothing.
    let hears = !relay::speaks_for(store, root).await.unwrap_or(false);
    let tell = hears.then(|| hints.tell(root));
    let exit = print(followed, global, hints, tell, colour);
    if let Some(detached) = detached.filter(|_| exit.is_ok()) {
        stay(store, &detached, hints, interrupts, attention).await;
    }
    tokio::select! {
        () = attention.finish() => {}
        () = interrupts.next() => {}
    }
    exit
}

/// Stays while sessions that were left to themselves go on in this process.
pub(crate) async fn stay(
    store: &dyn Store,
    detached: &Detached,
    hints: &Hints,
    interrupts: &mut Interrupts,
    attention: &mut Attention,
) {
    if detached.sessions().is_empty() {
        return;
    }
    for session in detached.sessions() {
        let title = named::title(store, session).await;
        output::note(&format!(
            "{title} is still running in the background. Press Ctrl-C to stop waiting; resume it later with: {}",
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
        let mut waits = false;
        for session in detached.sessions() {
            let tree = tree_of(store, session).await;
            attention.call(&tree);
            waits |= tree.questions().next().is_some();
            for (name, words) in asked(&tree) {
                if told.insert(name) {
                    output::note(&words);
                }
            }
        }
        if !waits {
            attention.restore_title();
        }
    }
}

/// The tree of a session that was left to itself, as far as it can be read.
pub(crate) async fn tree_of(store: &dyn Store, session: &SessionId) -> Tree {
    Tree::fold(&store.tail(session, 0, usize::MAX).await.unwrap_or_default())
}

/// What is asked in a tree that was left to itself: the name of each question, and how to answer it.
pub(crate) fn asked(tree: &Tree) -> Vec<(String, String)> {
    let look =
        Look { columns: terminal::room(), colour: Colour::Off, workspace: None, length: Length::Bounded };
    let tell = |open: &Question| {
        let lines = render::question::lines(open, tree, look).lines;
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
    // Standard output may be closed. The hints on standard error are written all the same.
    let mut written = match format {
        OutputFormat::Text => Ok(()),
        OutputFormat::Json | OutputFormat::StreamJson => output::json(&Report::new(&view, &ending)),
    };
    let ending = match ending {
        Ok(ending) => ending,
        Err(error) => return Err(stopped(error, &view, hints)),
    };
    let outcome = ending.outcome;
    if format == OutputFormat::Text {
        output::paint(&render::summary(&view, colour, terminal::room()));
        let changes = render::changes(&view, colour, terminal::room());
        if !changes.is_empty() {
            output::paint(&format!("\n{changes}"));
        }
        output::note("");
        written = match &view.schema {
            Some(schema) => structured(outcome.text.as_str(), schema.as_str()),
            None => result(outcome.text.as_str(), global),
        };
    }
    if format != OutputFormat::StreamJson {
        for warning in &outcome.warnings {
            output::note(&format!("warning: {}", safe::line(warning)));
        }
        next_steps(&outcome.status, &ending.spent, &view, hints, tell);
    }
    written.map(|()| Exit::of(&outcome.status))
}

/// Writes a result to standard output. A program gets it without control characters, or with `--raw` as it is.
pub(crate) fn result(text: &str, global: &Global) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    if terminal::reads_results() {
        return output::text(&render::wrapped_markdown(text, terminal::room_for_results()));
    }
    output::raw(&if global.raw { Cow::Borrowed(text) } else { safe::uncontrolled(text) })?;
    if text.ends_with('\n') { Ok(()) } else { output::raw("\n") }
}

/// Writes a result that has to fit a schema. Standard output carries JSON that fits, or nothing; any other text, such as
/// what there is of an incomplete result, goes to standard error.
fn structured(text: &str, schema: &str) -> Result<(), Failure> {
    let fitting = ResultSchema::parse(schema).ok().and_then(|schema| schema.fit(text).ok());
    match fitting {
        Some(json) => output::raw(&format!("{}\n", safe::json(&json))),
        None if text.trim().is_empty() => Ok(()),
        None => {
            output::note("This is not JSON that fits the schema, so standard output is empty:");
            output::note(text);
            Ok(())
        }
    }
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
            let words = match limit {
                Which::Loop | Which::Permission => "To continue",
                Which::Turns | Which::Tokens | Which::Usd | Which::Time | Which::Agents => {
                    "To continue with more"
                }
            };
            step(words, hints.resume(session) + &limits::more(*limit, view, hints.timeout));
        }
        Status::Failed { cause } => {
            output::note(&format!("failed: {}", safe::line(cause)));
            let words = if view.has_fatal_fault { "After fixing the cause" } else { "To try again" };
            step(words, hints.resume(session));
        }
        Status::Lost { cause } => {
            output::note(&format!("outcome unknown: {}", safe::line(cause)));
            step("To go on", hints.resume(session));
        }
        Status::Cancelled { by } => {
            output::note(&format!("cancelled by {}", safe::line(by)));
            if tell.is_some() {
                step("To continue", hints.resume(session));
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
