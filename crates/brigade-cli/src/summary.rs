//! Output at the end of a run: the result, its cost and the next steps.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use brigade::{Detached, Follow, ResultSchema, RunError, SessionInfo, Store};
use brigade_core::view::{Node, PendingApproval, Tree};
use brigade_core::{Cursor, SessionId, Spent, Status};
pub(crate) use brigade_sandbox::shell_quoted;
use futures::StreamExt;
use futures::future::ready;
use futures::stream::select_all;

use crate::args::{Flags, Global, OutputFormat};
use crate::error::{CliError, Exit};
use crate::follow::{Console, FollowedRun, RunView};
use crate::limits;
use crate::output;
use crate::redaction;
use crate::render::approval_view::{DiffDetail, ViewOptions};
use crate::render::{self, AgentStatus};
use crate::report::Report;
use crate::sanitize;
use crate::session_ref;
use crate::terminal::{self, Colour};

/// Flags that a suggested command has to repeat. The session stores its folder, agent, model and mode.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandHints {
    store: String,
    set: String,
    timeout: Option<Duration>,
}

impl CommandHints {
    /// Hints with the flags of the current command.
    pub(crate) fn new(global: &Global, flags: &Flags) -> CommandHints {
        let mut hints = CommandHints { timeout: flags.timeout, ..CommandHints::default() };
        hints.store = store_flag(global);
        for setting in &global.set {
            hints.set.push_str(&format!(" --set {}", shell_quoted(setting)));
        }
        hints
    }

    /// Command that resumes a session.
    pub(crate) fn resume(&self, session: &SessionId) -> String {
        format!("brigade resume {session}{}{}", self.store, self.set)
    }

    /// Command that continues a session in a chat.
    pub(crate) fn chat(&self, session: &SessionId) -> String {
        format!("brigade chat -r {session}{}{}", self.store, self.set)
    }

    fn show(&self, session: &SessionId, what: &str) -> String {
        format!("brigade sessions {what} {session}{}", self.store)
    }

    /// Command that sends a message to a session.
    pub(crate) fn tell(&self, session: &SessionId) -> String {
        format!("brigade tell {session} \"...\"{}{}", self.store, self.set)
    }
}

/// `--store` flag of the current command, if it has one.
pub(crate) fn store_flag(global: &Global) -> String {
    global
        .store
        .as_ref()
        .map_or_else(String::new, |store| format!(" --store {}", shell_quoted(&store.display().to_string())))
}

/// Prints the end of a run and waits for its detached sessions. Ctrl-C stops the wait; these sessions can be resumed.
pub(crate) async fn finish(
    followed: FollowedRun,
    global: &Global,
    console: &mut Console,
) -> Result<Exit, CliError> {
    let detached = followed.result.as_ref().ok().map(|result| result.detached.clone());
    let root = &followed.view.root;
    // A session of a single external call does not read messages.
    let info = SessionInfo::read(&**console.signals.store(), root).await.ok().flatten();
    let accepts_messages = !info.is_some_and(|info| info.is_passthrough());
    let tell = accepts_messages.then(|| console.hints.tell(root));
    let exit = print(followed, global, &console.hints, tell, console.colour);
    if let Some(detached) = detached.filter(|_| exit.is_ok()) {
        wait_for_detached(&detached, console).await;
    }
    tokio::select! {
        () = console.attention.finish() => {}
        () = console.signals.next() => {}
    }
    exit
}

/// Waits for the detached sessions of this process.
pub(crate) async fn wait_for_detached(detached: &Detached, console: &mut Console) {
    let Console { signals, attention, hints, .. } = console;
    let store = signals.store().clone();
    if detached.sessions().is_empty() {
        return;
    }
    for session in detached.sessions() {
        let title = session_ref::title(&*store, session).await;
        output::note(&format!(
            "{title} is still running in the background. Press Ctrl-C to stop waiting; resume it later with: {}",
            hints.resume(session)
        ));
    }
    let (mut announced, mut views, mut streams) = (HashSet::new(), Vec::new(), Vec::new());
    for session in detached.sessions() {
        // A session that cannot be read is still waited for.
        let Ok((view, _)) = RunView::load(&*store, session).await else { continue };
        let events = Follow::new(store.clone(), session, view.cursor);
        streams.push(events.take_while(|event| ready(event.is_ok())));
        views.push(view);
    }
    let mut events = select_all(streams);
    loop {
        let mut has_pending = false;
        for tree in views.iter().map(|view| &view.tree) {
            attention.alert(tree);
            has_pending |= tree.pending_approvals().next().is_some();
            for (name, text) in pending_approvals(tree) {
                if announced.insert(name) {
                    output::note(&text);
                }
            }
        }
        if !has_pending {
            attention.restore_title();
        }
        tokio::select! {
            () = detached.ended() => return,
            () = signals.next() => return,
            Some(Ok(event)) = events.next() => {
                let event = redaction::run_event(event);
                let views = views.iter_mut().filter(|view| view.root.contains(event.session()));
                views.for_each(|view| view.take(&event));
            }
        }
    }
}

/// Tree of a detached session, as far as it can be read.
pub(crate) async fn read_tree(store: &dyn Store, session: &SessionId) -> Tree {
    Tree::fold(&store.tail(session, Cursor::START, usize::MAX).await.unwrap_or_default())
}

/// Pending approvals of a detached tree: the name of each, and the text to show.
pub(crate) fn pending_approvals(tree: &Tree) -> Vec<(String, String)> {
    let look = ViewOptions {
        columns: terminal::stderr_columns(),
        colour: Colour::Off,
        workspace: None,
        diff_detail: DiffDetail::Bounded,
    };
    let tell = |open: &PendingApproval| {
        let lines = render::approval_view::render(open, tree, look).lines;
        (open.name(), format!("{}\nReply: brigade answer {}", lines.join("\n"), open.name()))
    };
    tree.pending_approvals().map(tell).collect()
}

fn print(
    followed: FollowedRun,
    global: &Global,
    hints: &CommandHints,
    tell: Option<String>,
    colour: Colour,
) -> Result<Exit, CliError> {
    let FollowedRun { result, view } = followed;
    let format = global.output_format;
    // Standard output may be closed. The hints go to standard error in any case.
    let mut printed = match format {
        OutputFormat::Text => Ok(()),
        OutputFormat::Json | OutputFormat::StreamJson => {
            output::json(&Report::new(&view, result.as_ref().map(|result| &result.outcome)))
        }
    };
    let result = match result {
        Ok(result) => result,
        Err(error) => return Err(stopped_failure(error, &view, hints)),
    };
    let outcome = result.outcome;
    if format == OutputFormat::Text {
        output::write_stderr(&render::summary(&view, colour, terminal::stderr_columns()));
        let changes = render::changes(&view, colour, terminal::stderr_columns());
        if !changes.is_empty() {
            output::write_stderr(&format!("\n{changes}"));
        }
        output::note("");
        printed = match &view.schema {
            Some(schema) => print_structured(outcome.text.as_str(), schema.as_str()),
            None => print_result(outcome.text.as_str(), global),
        };
    }
    if format != OutputFormat::StreamJson {
        for warning in &outcome.warnings {
            output::note(&format!("warning: {}", sanitize::line(warning)));
        }
        print_next_steps(&outcome.status, &result.spent, &view, hints, tell);
    }
    printed.map(|()| Exit::of(&outcome.status))
}

/// Writes a result to standard output. Control characters are escaped in a pipe or file, unless `--raw` is set.
pub(crate) fn print_result(text: &str, global: &Global) -> Result<(), CliError> {
    if text.is_empty() {
        return Ok(());
    }
    let text = &*redaction::text(text);
    if terminal::stdout_is_terminal() {
        return output::text(&render::wrap_markdown(text, terminal::stdout_columns()));
    }
    output::raw(&if global.raw { Cow::Borrowed(text) } else { sanitize::escape_control_chars(text) })?;
    if text.ends_with('\n') { Ok(()) } else { output::raw("\n") }
}

/// Writes a result that must match a schema. Standard output gets matching JSON or nothing. Other text, such as a
/// partial result, goes to standard error.
fn print_structured(text: &str, schema: &str) -> Result<(), CliError> {
    let fitting = ResultSchema::parse(schema).ok().and_then(|schema| schema.validate(text).ok());
    match fitting {
        Some(json) => output::raw(&format!("{}\n", sanitize::json(&redaction::json(&json)))),
        None if text.trim().is_empty() => Ok(()),
        None => {
            output::note("Standard output is empty, because this result does not match the JSON Schema:");
            output::note(text);
            Ok(())
        }
    }
}

/// Suggests commands for the next steps. `tell` is set if the session can receive a message.
fn print_next_steps(
    status: &Status,
    spent: &Spent,
    view: &RunView,
    hints: &CommandHints,
    tell: Option<String>,
) {
    let session = &view.root;
    output::note("");
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut step = |label: &str, command: String| steps.push((format!("{label}:"), command));
    match status {
        Status::Done | Status::Detached => {}
        Status::Incomplete { limit } => {
            output::note(&limits::stop_reason(*limit, spent, view, hints.timeout));
            step("Resume", hints.resume(session) + &limits::raising_flag(*limit, view, hints.timeout));
        }
        Status::Failed { cause } => {
            output::note(&format!("failed: {}", sanitize::line(cause)));
            let label = if view.has_fatal_fault { "After fixing the cause" } else { "Retry" };
            step(label, hints.resume(session));
        }
        Status::Lost { cause } => {
            output::note(&format!("outcome unknown: {}", sanitize::line(cause)));
            step("Resume", hints.resume(session));
        }
        Status::Cancelled { by } => {
            output::note(&format!("cancelled by {}", sanitize::line(by)));
            if tell.is_some() {
                step("Resume", hints.resume(session));
            }
        }
    }
    let agents = view.tree.walk(session);
    step("Details", hints.show(session, if agents.len() > 1 { "tree" } else { "show" }));
    let went_wrong = |node: &&&Node| {
        node.session != *session
            && matches!(AgentStatus::of(&node.activity), AgentStatus::Failed | AgentStatus::Incomplete)
    };
    if let Some(child) = agents.iter().find(went_wrong) {
        step("Failure details", hints.show(&child.session, "show"));
    }
    if let Some(tell) = tell
        && matches!(status, Status::Done | Status::Detached | Status::Incomplete { .. })
    {
        step("Reply", tell);
    }
    output::note(&align_steps(&steps, terminal::stderr_columns()));
}

/// Lays out the steps: each command next to its label, or below it if the terminal is too narrow.
fn align_steps(steps: &[(String, String)], columns: usize) -> String {
    let widest = steps.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    let fits = |(_, command): &(String, String)| widest + 1 + render::width(command) <= columns;
    let lines: Vec<String> = match steps.iter().all(fits) {
        true => steps.iter().map(|(label, command)| format!("{label:widest$} {command}")).collect(),
        false => steps.iter().map(|(label, command)| format!("{label}\n  {command}")).collect(),
    };
    lines.join("\n")
}

/// Error for a run that stopped without an end in its log.
fn stopped_failure(error: RunError, view: &RunView, hints: &CommandHints) -> CliError {
    let failure = CliError::from(error);
    if view.tree.nodes().is_empty() {
        return failure;
    }
    // The session exists now, so the failure is not a usage error.
    let failure = match failure {
        CliError::Usage(error) => CliError::Failed(error),
        other => other,
    };
    failure.hint(format!("All recorded steps are kept. Resume: {}", hints.resume(&view.root)))
}
