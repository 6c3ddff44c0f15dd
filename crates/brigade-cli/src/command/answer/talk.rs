//! Questions put to the user at a terminal, one after the other.

use std::io::BufRead;
use std::time::Duration;

use brigade::{RunError, Runtime};
use brigade_core::SessionId;
use brigade_core::event::Answer;
use brigade_core::view::{Question, Tree};
use crossterm::event::{Event, EventStream};
use futures::StreamExt;

use super::{Wanted, confirmation, read, too_late};
use crate::dialogue::{self, Dialogue, Given, Input, Reaction, Scope};
use crate::failure::{Exit, Failure};
use crate::follow::View;
use crate::keyboard::{RawTerminal, keys};
use crate::output;
use crate::progress::LiveTree;
use crate::render::question::{self, Length, Look};
use crate::safe;
use crate::settings::Environment;
use crate::suspend;
use crate::terminal::{self, Colour};

/// How often the log is read while a key is waited for: another terminal may answer first.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Puts one question after the other, until there is none, or the user leaves.
pub(super) async fn talk(
    runtime: &Runtime,
    wanted: &Wanted,
    environment: &Environment,
) -> Result<Exit, Failure> {
    if !terminal::shows_progress(environment) {
        return talk_in_lines(runtime, wanted).await;
    }
    output::note("Esc leaves the questions open.");
    let colour = terminal::colour(environment);
    let raw = RawTerminal::enter()?;
    let mut talk = Talk {
        runtime,
        wanted,
        dialogue: Dialogue::new(Some(runtime.settings().workspace.clone()), colour),
        screen: LiveTree::new(colour),
        nobody: View::new(SessionId::root(0)),
    };
    let exit = talk.run().await;
    drop(talk);
    drop(raw);
    exit
}

/// Questions at a keyboard.
struct Talk<'a> {
    runtime: &'a Runtime,
    wanted: &'a Wanted,
    dialogue: Dialogue,
    screen: LiveTree,
    /// An empty tree: only the question is drawn.
    nobody: View,
}

impl Talk<'_> {
    async fn run(&mut self) -> Result<Exit, Failure> {
        let mut keyboard = EventStream::new();
        let mut refresh = tokio::time::interval(REFRESH_INTERVAL);
        let mut tree = self.look().await?;
        terminal::forget_typed();
        while self.dialogue.is_open() {
            self.screen.set_footer(self.dialogue.footer(&tree, terminal::size().0.saturating_sub(1)));
            self.screen.draw(&self.nobody);
            let event = tokio::select! {
                event = keyboard.next() => event,
                _ = refresh.tick() => {
                    tree = self.look().await?;
                    continue;
                }
            };
            let reaction = match event {
                Some(Ok(Event::Key(key))) => match keys::meaning(key) {
                    Some(keys::Key::Suspend) => {
                        self.screen.clear();
                        suspend::suspend(&**self.runtime.store());
                        Reaction::Nothing
                    }
                    Some(key) => self.dialogue.key(key, &tree),
                    None => Reaction::Nothing,
                },
                Some(Ok(Event::Paste(text))) => {
                    self.dialogue.paste(&text);
                    Reaction::Nothing
                }
                Some(Ok(_)) => Reaction::Nothing,
                Some(Err(_)) | None => Reaction::Leave,
            };
            match reaction {
                Reaction::Nothing => {}
                Reaction::Leave => break,
                Reaction::Interrupt => return Ok(Exit::Cancelled),
                Reaction::Say(words) => self.screen.print(&self.nobody, &safe::lines(&words)),
                Reaction::Show(lines) => self.screen.print(&self.nobody, &lines.join("\n")),
                Reaction::Answers(given) => {
                    for given in given {
                        self.give(&given, &tree).await?;
                    }
                    tree = self.look().await?;
                }
            }
        }
        Ok(Exit::Done)
    }

    /// Reads the log, and shows a question that comes up.
    async fn look(&mut self) -> Result<Tree, Failure> {
        let tree = read(&**self.runtime.store(), self.wanted).await?;
        if let Some(lines) = self.dialogue.look(&tree, terminal::size().0) {
            self.screen.print(&self.nobody, &lines.join("\n"));
        }
        Ok(tree)
    }

    async fn give(&mut self, given: &Given, tree: &Tree) -> Result<(), Failure> {
        let open = tree.questions().find(|open| open.session == given.session && open.call == given.call);
        let Some(open) = open else { return Ok(()) };
        let words = answer(self.runtime, open, tree, &given.answer).await?;
        self.screen.set_footer(None);
        self.screen.print(&self.nobody, &words);
        Ok(())
    }
}

/// Gives an answer. Returns the confirmation, which is safe.
async fn answer(runtime: &Runtime, open: &Question, tree: &Tree, answer: &Answer) -> Result<String, Failure> {
    match runtime.answer(&open.session, open.call, answer.clone(), "the person").await {
        Ok(()) => Ok(confirmation(open, tree, answer)),
        Err(RunError::NotAsked { .. }) => Ok(too_late(open, tree)),
        Err(error) => Err(error.into()),
    }
}

/// The same on a terminal on which nothing can be drawn again.
async fn talk_in_lines(runtime: &Runtime, wanted: &Wanted) -> Result<Exit, Failure> {
    let mut skipped: Vec<String> = Vec::new();
    loop {
        let tree = read(&**runtime.store(), wanted).await?;
        let all: Vec<&Question> = tree.questions().collect();
        let Some(current) = all.iter().find(|open| !skipped.contains(&open.name())) else { break };
        let columns = terminal::size().0;
        let workspace = Some(&runtime.settings().workspace);
        let look = Look { columns, colour: Colour::Off, workspace, length: Length::Whole };
        output::note(&question::lines(current, &tree, look).lines.join("\n"));
        let choices = dialogue::choices(current, all.len(), Input::Lines, false, columns);
        output::note(&format!("{}\nEnter alone leaves it open.", choices.join("\n")));
        output::paint("> ");
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.map_err(|error| Failure::failed(format!("cannot read the answer: {error}")))? == 0 {
            break;
        }
        if line.trim().is_empty() {
            skipped.push(current.name());
            continue;
        }
        let (given, scope) = match dialogue::answer(&line, current.always.as_deref()) {
            Ok(answer) => answer,
            Err(error) => {
                output::note(&error.to_string());
                continue;
            }
        };
        let meant = if scope == Scope::All { all.clone() } else { vec![*current] };
        for open in meant {
            output::note(&answer(runtime, open, &tree, &given).await?);
        }
    }
    Ok(Exit::Done)
}
