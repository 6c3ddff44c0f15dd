//! Terminal input for approvals during a run. The terminal is read only while an approval is pending.

use brigade::{Runtime, Workspace};
use crossterm::event::{Event, EventStream};
use futures::StreamExt;
use tokio::sync::mpsc;

use super::{ApprovalPrompt, PromptAction};
use crate::error::CliError;
use crate::follow::RunView;
use crate::keyboard::RawTerminal;
use crate::output;
use crate::progress::Progress;
use crate::store_advice;
use crate::suspend;
use crate::terminal::{self, Colour};

/// Way in which answers are typed, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputMode {
    /// Not here: answers come from another process.
    Unavailable,
    /// Key by key, below a live tree.
    Keys,
    /// Line by line.
    Lines,
}

/// Input from the user.
pub(crate) enum UserInput {
    /// Key or other terminal event.
    Event(Event),
    Line(String),
    /// End of input.
    Closed,
}

/// Whether to stop the run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RunAction {
    /// Keep running.
    Continue,
    /// The user pressed Ctrl-C.
    Interrupt,
}

/// Reads the user's input while an approval is pending.
pub(crate) struct PromptInput {
    prompt: ApprovalPrompt,
    input_mode: InputMode,
    keys: Option<(EventStream, RawTerminal)>,
    lines: Option<mpsc::UnboundedReceiver<String>>,
}

impl PromptInput {
    /// Starts without a pending approval. Edits are compared with the files of the workspace.
    pub(crate) fn new(input_mode: InputMode, colour: Colour, workspace: Workspace) -> PromptInput {
        let prompt = ApprovalPrompt::new(Some(workspace), colour);
        PromptInput { prompt, input_mode, keys: None, lines: None }
    }

    /// Next input, while an approval is pending.
    pub(crate) async fn next(&mut self) -> UserInput {
        if !self.prompt.is_open() {
            return std::future::pending().await;
        }
        if let Some((stream, _)) = &mut self.keys {
            return match stream.next().await {
                Some(Ok(event)) => UserInput::Event(event),
                Some(Err(_)) | None => UserInput::Closed,
            };
        }
        match &mut self.lines {
            Some(lines) => lines.recv().await.map_or(UserInput::Closed, UserInput::Line),
            None => std::future::pending().await,
        }
    }

    /// Updates the prompt from the tree: shows a new approval, and acquires or releases the terminal.
    pub(crate) fn look(&mut self, view: &RunView, progress: &mut Progress) -> Result<(), CliError> {
        if self.input_mode == InputMode::Unavailable {
            return Ok(());
        }
        if let Some(lines) = self.prompt.look(&view.tree, terminal::size().0) {
            self.discard_typed_input();
            progress.print(view, &lines);
            if self.input_mode == InputMode::Lines {
                self.print_choices(view);
            }
        }
        match (self.prompt.is_open(), self.input_mode) {
            (false, _) if self.keys.is_none() => return Ok(()),
            (false, _) => {
                self.keys = None;
                progress.set_footer(None);
            }
            (true, InputMode::Keys) if self.keys.is_none() => {
                let raw = RawTerminal::enter()?;
                self.keys = Some((EventStream::new(), raw));
            }
            (true, InputMode::Lines) if self.lines.is_none() => self.lines = Some(terminal::stdin_lines()),
            (true, _) => {}
        }
        self.show(view, progress);
        Ok(())
    }

    /// Draws the prompt below the tree, with its remaining time.
    pub(crate) fn show(&self, view: &RunView, progress: &mut Progress) {
        if self.keys.is_some() {
            let columns = terminal::size().0.saturating_sub(1);
            progress.set_footer(self.prompt.footer(&view.tree, columns));
        }
    }

    fn print_choices(&self, view: &RunView) {
        output::note(&self.prompt.line_choices(&view.tree, terminal::size().0).join("\n"));
    }

    /// Handles one input.
    pub(crate) async fn take(
        &mut self,
        typed: UserInput,
        runtime: &Runtime,
        view: &RunView,
        progress: &mut Progress,
    ) -> Result<RunAction, CliError> {
        let action = match typed {
            UserInput::Event(event) => self.prompt.event(event, &view.tree, suspend::request),
            UserInput::Line(line) => self.prompt.line(&line, &view.tree),
            UserInput::Closed => {
                self.input_mode = InputMode::Unavailable;
                self.prompt.clear();
                self.lines = None;
                self.keys = None;
                progress.set_footer(None);
                progress.say(view, "Terminal input is closed. Answer requests with: brigade answer");
                return Ok(RunAction::Continue);
            }
        };
        match action {
            PromptAction::Interrupt => return Ok(RunAction::Interrupt),
            PromptAction::Nothing | PromptAction::Leave => {}
            PromptAction::Say(message) => progress.say(view, &message),
            PromptAction::Show(lines) => progress.print(view, &lines),
            PromptAction::Answers(given) => {
                for given in given {
                    let answer = given.answer.clone();
                    let answered =
                        runtime.answer(&given.session, given.question.clone(), answer, "the user").await;
                    if let Err(error) = answered {
                        self.prompt.failed(&given);
                        progress.say(view, &store_advice::describe_run(&error));
                    }
                }
            }
        }
        self.look(view, progress)?;
        progress.tick(view);
        Ok(RunAction::Continue)
    }

    /// Discards input from before a prompt appeared.
    fn discard_typed_input(&mut self) {
        terminal::discard_typed_input();
        while let Some(lines) = &mut self.lines
            && lines.try_recv().is_ok()
        {}
    }

    /// Releases the terminal.
    pub(crate) fn close(&mut self) {
        self.keys = None;
    }
}
