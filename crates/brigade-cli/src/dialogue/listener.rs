//! The dialogue beside a run: the terminal is listened to only while a question is open.

use std::io::BufRead;

use brigade::{Runtime, Workspace};
use crossterm::event::{Event, EventStream};
use futures::StreamExt;
use tokio::sync::mpsc;

use super::{Dialogue, Reaction};
use crate::failure::Failure;
use crate::follow::View;
use crate::keyboard::{RawTerminal, keys};
use crate::output;
use crate::progress::Progress;
use crate::suspend;
use crate::terminal::{self, Colour};

/// How answers are typed, if they can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typing {
    /// Nobody types here: answers come from elsewhere.
    Nobody,
    /// Key by key, beneath a tree that is drawn.
    Keys,
    /// Line by line.
    Lines,
}

/// What was typed.
pub(crate) enum Typed {
    /// A key, or something else that a terminal tells.
    Event(Event),
    /// A line.
    Line(String),
    /// Nobody can type any more.
    Gone,
}

/// Whether the run is to be stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It goes on.
    GoOn,
    /// The person pressed Ctrl-C.
    Interrupt,
}

/// Listens to the person while there is something to answer.
pub(crate) struct Listener {
    dialogue: Dialogue,
    typing: Typing,
    keys: Option<(EventStream, RawTerminal)>,
    lines: Option<mpsc::UnboundedReceiver<String>>,
}

impl Listener {
    /// Nobody is asked anything yet. Edits are compared with the files of the workspace.
    pub(crate) fn new(typing: Typing, colour: Colour, workspace: Workspace) -> Listener {
        let dialogue = Dialogue::new(Some(workspace), colour);
        Listener { dialogue, typing, keys: None, lines: None }
    }

    /// What is typed next, while somebody waits for it.
    pub(crate) async fn next(&mut self) -> Typed {
        if !self.dialogue.is_open() {
            return std::future::pending().await;
        }
        if let Some((stream, _)) = &mut self.keys {
            return match stream.next().await {
                Some(Ok(event)) => Typed::Event(event),
                Some(Err(_)) | None => Typed::Gone,
            };
        }
        match &mut self.lines {
            Some(lines) => lines.recv().await.map_or(Typed::Gone, Typed::Line),
            None => std::future::pending().await,
        }
    }

    /// Looks at the questions of the tree: shows one that comes up, and takes or gives back the terminal.
    pub(crate) fn look(&mut self, view: &View, progress: &mut Progress) -> Result<(), Failure> {
        if self.typing == Typing::Nobody {
            return Ok(());
        }
        if let Some(lines) = self.dialogue.look(&view.tree, terminal::size().0) {
            self.forget_typed();
            progress.print(view, &lines);
            if self.typing == Typing::Lines {
                self.prompt(view);
            }
        }
        match (self.dialogue.is_open(), self.typing) {
            (false, _) if self.keys.is_none() => return Ok(()),
            (false, _) => {
                self.keys = None;
                progress.set_footer(None);
            }
            (true, Typing::Keys) if self.keys.is_none() => {
                let raw = RawTerminal::enter()?;
                self.keys = Some((EventStream::new(), raw));
            }
            (true, Typing::Lines) if self.lines.is_none() => self.lines = Some(standard_input()),
            (true, _) => {}
        }
        self.show(view, progress);
        Ok(())
    }

    /// Puts the question beneath the tree. Its time runs.
    pub(crate) fn show(&self, view: &View, progress: &mut Progress) {
        if self.keys.is_some() {
            let columns = terminal::size().0.saturating_sub(1);
            progress.set_footer(self.dialogue.footer(&view.tree, columns));
        }
    }

    fn prompt(&self, view: &View) {
        output::note(&self.dialogue.line_choices(&view.tree, terminal::size().0).join("\n"));
    }

    /// Takes what was typed.
    pub(crate) async fn take(
        &mut self,
        typed: Typed,
        runtime: &Runtime,
        view: &View,
        progress: &mut Progress,
    ) -> Result<Wish, Failure> {
        let reaction = match typed {
            Typed::Event(Event::Key(key)) => match keys::meaning(key) {
                Some(keys::Key::Suspend) => {
                    suspend::ask();
                    Reaction::Nothing
                }
                Some(key) => self.dialogue.key(key, &view.tree),
                None => Reaction::Nothing,
            },
            Typed::Event(Event::Paste(text)) => {
                self.dialogue.paste(&text);
                Reaction::Nothing
            }
            Typed::Event(_) => Reaction::Nothing,
            Typed::Line(line) => self.dialogue.line(&line, &view.tree),
            Typed::Gone => {
                self.typing = Typing::Nobody;
                self.dialogue.clear();
                self.lines = None;
                self.keys = None;
                progress.set_footer(None);
                progress
                    .say(view, "Nobody can type here any more; questions are answered with brigade answer.");
                return Ok(Wish::GoOn);
            }
        };
        match reaction {
            Reaction::Interrupt => return Ok(Wish::Interrupt),
            Reaction::Nothing | Reaction::Leave => {}
            Reaction::Say(words) => progress.say(view, &words),
            Reaction::Show(lines) => progress.print(view, &lines),
            Reaction::Answers(given) => {
                for given in given {
                    let answer = given.answer.clone();
                    let answered = runtime.answer(&given.session, given.call, answer, "the person").await;
                    if let Err(error) = answered {
                        self.dialogue.failed(&given);
                        progress.say(view, &error.to_string());
                    }
                }
            }
        }
        self.look(view, progress)?;
        progress.tick(view);
        Ok(Wish::GoOn)
    }

    /// Discards input from before a question came up.
    fn forget_typed(&mut self) {
        terminal::forget_typed();
        while let Some(lines) = &mut self.lines
            && lines.try_recv().is_ok()
        {}
    }

    /// Gives the terminal back.
    pub(crate) fn close(&mut self) {
        self.keys = None;
    }
}

/// The lines of standard input, read by a thread of its own: nothing else can be waited for meanwhile.
fn standard_input() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
