//! Prompts for pending approvals at a terminal, one after the other.

use std::io::BufRead;
use std::time::Duration;

use brigade::{RunError, Runtime};
use brigade_core::SessionId;
use brigade_core::event::Answer;
use brigade_core::view::{PendingApproval, Tree};
use crossterm::event::EventStream;
use futures::StreamExt;

use super::{ApprovalFilter, already_answered, confirmation, read};
use crate::approval_prompt::{self, ApprovalPrompt, GivenAnswer, InputKind, PromptAction, Scope};
use crate::error::{CliError, Exit};
use crate::follow::RunView;
use crate::keyboard::RawTerminal;
use crate::output;
use crate::progress::LiveTree;
use crate::render::approval_view::{self, DiffDetail, ViewOptions};
use crate::sanitize;
use crate::settings::Environment;
use crate::suspend;
use crate::terminal::{self, Colour};

/// Interval at which the log is read during a prompt. Another terminal may answer first.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Prompts for each pending approval, until none is left or the user exits.
pub(super) async fn answer_at_terminal(
    runtime: &Runtime,
    filter: &ApprovalFilter,
    environment: &Environment,
) -> Result<Exit, CliError> {
    if !terminal::can_redraw(environment) {
        return answer_in_lines(runtime, filter).await;
    }
    output::note("Press Esc to exit and leave the requests pending.");
    let colour = terminal::stderr_colour(environment);
    let raw = RawTerminal::enter()?;
    let mut answers = AnswerScreen {
        runtime,
        filter,
        dialogue: ApprovalPrompt::new(Some(runtime.settings().workspace.clone()), colour),
        screen: LiveTree::new(colour),
        empty_view: RunView::new(SessionId::root(0)),
    };
    let exit = answers.run().await;
    drop(answers);
    drop(raw);
    exit
}

/// Prompt on a terminal that supports redrawing.
struct AnswerScreen<'a> {
    runtime: &'a Runtime,
    filter: &'a ApprovalFilter,
    dialogue: ApprovalPrompt,
    screen: LiveTree,
    /// Empty tree, because only the prompt is drawn.
    empty_view: RunView,
}

impl AnswerScreen<'_> {
    async fn run(&mut self) -> Result<Exit, CliError> {
        let mut keyboard = EventStream::new();
        let mut refresh = tokio::time::interval(REFRESH_INTERVAL);
        let mut tree = self.look().await?;
        terminal::discard_typed_input();
        while self.dialogue.is_open() {
            self.screen.set_footer(self.dialogue.footer(&tree, terminal::size().0.saturating_sub(1)));
            self.screen.draw(&self.empty_view);
            let event = tokio::select! {
                event = keyboard.next() => event,
                _ = refresh.tick() => {
                    tree = self.look().await?;
                    continue;
                }
            };
            let reaction = match event {
                Some(Ok(event)) => self.dialogue.event(event, &tree, || {
                    self.screen.clear();
                    suspend::suspend(&**self.runtime.store());
                }),
                Some(Err(_)) | None => PromptAction::Leave,
            };
            match reaction {
                PromptAction::Nothing => {}
                PromptAction::Leave => break,
                PromptAction::Interrupt => return Ok(Exit::Cancelled),
                PromptAction::Say(text) => self.screen.print(&self.empty_view, &sanitize::lines(&text)),
                PromptAction::Show(lines) => self.screen.print(&self.empty_view, &lines.join("\n")),
                PromptAction::Answers(given) => {
                    for given in given {
                        self.submit(&given, &tree).await?;
                    }
                    tree = self.look().await?;
                }
            }
        }
        Ok(Exit::Done)
    }

    /// Reads the log, and shows a new request.
    async fn look(&mut self) -> Result<Tree, CliError> {
        let tree = read(&**self.runtime.store(), self.filter).await?;
        if let Some(lines) = self.dialogue.look(&tree, terminal::size().0) {
            self.screen.print(&self.empty_view, &lines.join("\n"));
        }
        Ok(tree)
    }

    async fn submit(&mut self, given: &GivenAnswer, tree: &Tree) -> Result<(), CliError> {
        let open = tree.pending_approvals().find(|open| open.is(&given.session, &given.question));
        let Some(open) = open else { return Ok(()) };
        let text = answer(self.runtime, open, tree, &given.answer).await?;
        self.screen.set_footer(None);
        self.screen.print(&self.empty_view, &text);
        Ok(())
    }
}

/// Submits an answer. Returns the confirmation, which is safe to print.
async fn answer(
    runtime: &Runtime,
    open: &PendingApproval,
    tree: &Tree,
    answer: &Answer,
) -> Result<String, CliError> {
    match runtime.answer(&open.session, open.question(), answer.clone(), "the user").await {
        Ok(()) => Ok(confirmation(open, tree, answer)),
        Err(RunError::NoSuchApproval { .. }) => Ok(already_answered(open, tree)),
        Err(error) => Err(error.into()),
    }
}

/// Prompts on a terminal that does not support redrawing.
async fn answer_in_lines(runtime: &Runtime, filter: &ApprovalFilter) -> Result<Exit, CliError> {
    let mut skipped: Vec<String> = Vec::new();
    loop {
        let tree = read(&**runtime.store(), filter).await?;
        let all: Vec<&PendingApproval> = tree.pending_approvals().collect();
        let Some(current) = all.iter().find(|open| !skipped.contains(&open.name())) else { break };
        let columns = terminal::size().0;
        let workspace = Some(&runtime.settings().workspace);
        let look = ViewOptions { columns, colour: Colour::Off, workspace, diff_detail: DiffDetail::Full };
        output::note(&approval_view::render(current, &tree, look).lines.join("\n"));
        let choices = approval_prompt::choices(current, all.len(), InputKind::Lines, false, columns);
        output::note(&format!("{}\nPress Enter to leave it pending.", choices.join("\n")));
        output::write_stderr("> ");
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.map_err(|error| CliError::failed(format!("cannot read the answer: {error}")))? == 0 {
            break;
        }
        if line.trim().is_empty() {
            skipped.push(current.name());
            continue;
        }
        let (given, scope) = match approval_prompt::answer(&line, current.always.as_deref()) {
            Ok(answer) => answer,
            Err(error) => {
                output::note(&error.to_string());
                continue;
            }
        };
        let selected = if scope == Scope::All { all.clone() } else { vec![*current] };
        for open in selected {
            output::note(&answer(runtime, open, &tree, &given).await?);
        }
    }
    Ok(Exit::Done)
}
