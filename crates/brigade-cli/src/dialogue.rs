//! The dialogue about questions of agents: one at a time is put to the user, the others wait in line.
//!
//! At a keyboard a single key answers. Input from before a question appeared is discarded, until typing pauses.

mod listener;
mod prompt;
mod words;

use std::collections::HashSet;

use brigade::Workspace;
use brigade_core::event::Answer;
use brigade_core::view::{Question, Tree};
use brigade_core::{CallId, SessionId};

use crate::clock;
use crate::keyboard::keys::Key;
use crate::progress::Footer;
use crate::render::question::{self, Length, Look, Shown};
use crate::render::{self, filled};
use crate::terminal::{self, Colour};
use crate::units;
use prompt::{Pressed, Prompt};

pub(crate) use listener::{Listener, Typing, Wish};
pub(crate) use words::{Input, Scope, answer, choices};

/// A question by its place.
type Place = (SessionId, CallId);

/// An answer to be given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    /// Who asked.
    pub(crate) session: SessionId,
    /// About which call.
    pub(crate) call: CallId,
    /// What is answered.
    pub(crate) answer: Answer,
}

/// What a key or a line has led to.
#[derive(Debug, PartialEq)]
pub(crate) enum Reaction {
    /// Nothing, or the answer looks different.
    Nothing,
    /// These answers are given.
    Answers(Vec<Given>),
    /// Something to tell the user.
    Say(String),
    /// Lines to show, which are safe, in styles or without.
    Show(Vec<String>),
    /// The user wants the run to stop.
    Interrupt,
    /// The user wants to do something else first.
    Leave,
}

/// The questions of a tree, and the input for the first of them.
pub(crate) struct Dialogue {
    /// Files that edits are compared with.
    workspace: Option<Workspace>,
    colour: Colour,
    current: Option<Current>,
    /// All that were shown.
    shown: HashSet<Place>,
    /// Answered here, and not heard of yet.
    answered: HashSet<Place>,
    prompt: Prompt,
}

/// The question that is put to the user.
struct Current {
    place: Place,
    /// The question in one sentence.
    headline: String,
    /// Whether a part of its diff is hidden.
    is_cut: bool,
}

impl Dialogue {
    /// No questions yet.
    pub(crate) fn new(workspace: Option<Workspace>, colour: Colour) -> Dialogue {
        Dialogue {
            workspace,
            colour,
            current: None,
            shown: HashSet::new(),
            answered: HashSet::new(),
            prompt: Prompt::default(),
        }
    }

    /// Forgets all questions.
    pub(crate) fn clear(&mut self) {
        *self = Dialogue::new(self.workspace.take(), self.colour);
    }

    /// Whether somebody waits for an answer.
    pub(crate) fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// Looks at the questions there are. The lines of a question that comes up now are to be shown.
    pub(crate) fn look(&mut self, tree: &Tree, columns: usize) -> Option<Vec<String>> {
        if tree.questions().next().is_none() {
            self.clear();
            return None;
        }
        self.answered.retain(|place| tree.questions().any(|open| is_at(open, place)));
        let still_open = self
            .current
            .as_ref()
            .is_some_and(|current| self.open(tree).any(|open| is_at(open, &current.place)));
        if still_open {
            return None;
        }
        let next = self.open(tree).next().map(place);
        self.bring_up(next, tree, columns)
    }

    fn bring_up(&mut self, next: Option<Place>, tree: &Tree, columns: usize) -> Option<Vec<String>> {
        self.prompt.open();
        self.shown.extend(next.clone());
        self.current = None;
        let place = next?;
        let open = tree.questions().find(|open| is_at(open, &place))?;
        let Shown { lines, is_cut } = self.lines(open, tree, columns, Length::Bounded);
        self.current = Some(Current { place, headline: question::headline(open, tree), is_cut });
        Some(lines)
    }

    fn lines(&self, open: &Question, tree: &Tree, columns: usize, length: Length) -> Shown {
        let look = Look { columns, colour: self.colour, workspace: self.workspace.as_ref(), length };
        question::lines(open, tree, look)
    }

    /// An answer could not be given: the question comes up again.
    pub(crate) fn failed(&mut self, given: &Given) {
        self.answered.remove(&(given.session.clone(), given.call));
    }

    /// The question that is put to the user now.
    fn question<'a>(&self, tree: &'a Tree) -> Option<&'a Question> {
        let current = self.current.as_ref()?;
        tree.questions().find(|open| is_at(open, &current.place))
    }

    /// Questions that were not answered here.
    fn open<'a>(&self, tree: &'a Tree) -> impl Iterator<Item = &'a Question> {
        tree.questions().filter(|open| !self.answered.contains(&place(open)))
    }

    /// The next question in line.
    fn next(&mut self, tree: &Tree) -> Option<Vec<String>> {
        let columns = terminal::size().0;
        let all: Vec<Place> = self.open(tree).map(place).collect();
        let current = self.current.as_ref().map(|current| &current.place);
        let at = all.iter().position(|other| Some(other) == current)?;
        let next = all.get(at + 1).or(all.first()).filter(|_| all.len() > 1)?;
        self.bring_up(Some(next.clone()), tree, columns)
    }

    /// The whole diff of the question, if a part of it is hidden.
    fn show_all(&mut self, tree: &Tree) -> Reaction {
        let Some(open) = self.question(tree) else { return Reaction::Nothing };
        if !self.current.as_ref().is_some_and(|current| current.is_cut) {
            return Reaction::Nothing;
        }
        let lines = self.lines(open, tree, terminal::size().0, Length::Whole).lines;
        if let Some(current) = &mut self.current {
            current.is_cut = false;
        }
        Reaction::Show(lines)
    }

    /// Takes a key.
    pub(crate) fn key(&mut self, key: Key, tree: &Tree) -> Reaction {
        let Some(open) = self.question(tree) else {
            return if key == Key::Interrupt { Reaction::Interrupt } else { Reaction::Nothing };
        };
        match self.prompt.key(key, open) {
            Pressed::Nothing => Reaction::Nothing,
            Pressed::Answer(answer, scope) => self.give(&answer, scope, tree),
            Pressed::Next => self.next(tree).map_or(Reaction::Nothing, Reaction::Show),
            Pressed::ShowAll => self.show_all(tree),
            Pressed::Leave => Reaction::Leave,
            Pressed::Interrupt => Reaction::Interrupt,
        }
    }

    /// Takes a pasted text.
    pub(crate) fn paste(&mut self, text: &str) {
        self.prompt.paste(text);
    }

    /// Takes a whole line.
    pub(crate) fn line(&mut self, line: &str, tree: &Tree) -> Reaction {
        let Some(current) = self.question(tree) else { return Reaction::Nothing };
        if line.trim().is_empty() || self.prompt.is_settling() {
            return Reaction::Nothing;
        }
        if line.trim().eq_ignore_ascii_case("v") {
            return self.show_all(tree);
        }
        match answer(line, current.always.as_deref()) {
            Ok((answer, scope)) => self.give(&answer, scope, tree),
            Err(error) => Reaction::Say(error.to_string()),
        }
    }

    /// Gives an answer to the question that is put, or to all.
    fn give(&mut self, answer: &Answer, scope: Scope, tree: &Tree) -> Reaction {
        let Some(current) = self.question(tree) else { return Reaction::Nothing };
        let asked: Vec<Place> = match (scope, answer) {
            (Scope::All, Answer::Once) if let Some(lines) = self.show_rest(tree) => {
                return Reaction::Show(lines);
            }
            (Scope::All, _) => self.open(tree).map(place).collect(),
            // What was permitted for good is not asked about again.
            (Scope::One, Answer::Always(rule)) => {
                let is_same = |open: &&Question| {
                    open.session == current.session && open.always.as_deref() == Some(rule.as_str())
                };
                let same = self.open(tree).filter(is_same).map(place);
                same.chain([place(current)]).collect()
            }
            (Scope::One, _) => vec![place(current)],
        };
        let mut given: Vec<Given> = Vec::new();
        for (session, call) in asked {
            if self.answered.insert((session.clone(), call)) {
                given.push(Given { session, call, answer: answer.clone() });
            }
        }
        Reaction::Answers(given)
    }

    /// Nobody allows what they have not seen: shows what was not shown yet, if there is anything.
    fn show_rest(&mut self, tree: &Tree) -> Option<Vec<String>> {
        let columns = terminal::size().0;
        let unseen: Vec<&Question> =
            self.open(tree).filter(|open| !self.shown.contains(&place(open))).collect();
        if unseen.is_empty() {
            return None;
        }
        let mut lines: Vec<String> =
            unseen.iter().flat_map(|open| self.lines(open, tree, columns, Length::Bounded).lines).collect();
        lines.push("These are all open questions. Answer the same again to allow all of them.".to_owned());
        self.shown.extend(unseen.iter().map(|open| place(open)));
        self.prompt.open();
        Some(lines)
    }

    /// What stands beneath the tree while a question is open.
    pub(crate) fn footer(&self, tree: &Tree, columns: usize) -> Option<Footer> {
        let open = self.question(tree)?;
        let count = self.open(tree).count();
        let head = self.status(open, count);
        let head = filled(head.split(' '), " ", columns);
        let mut lines: Vec<String> = head.iter().map(|line| self.colour.paint("33;1", line)).collect();
        let hint = self.prompt.hint();
        if let Some((label, layout)) = self.prompt.field(columns) {
            lines.extend(filled(hint.unwrap_or(label).split(' '), " ", columns));
            let (row, column) = layout.cursor;
            let cursor = Some((lines.len() + row, column));
            lines.extend(layout.lines);
            return Some(Footer { lines, cursor });
        }
        if let Some(hint) = hint {
            lines.extend(filled(hint.split(' '), " ", columns));
        }
        lines.extend(self.choices(open, count, Input::Keys, columns));
        let last = lines.last().map_or(0, |line| render::width(line));
        let cursor = Some((lines.len().saturating_sub(1), last));
        Some(Footer { lines, cursor })
    }

    /// Everything that can be answered to the question now, for input that is sent as lines.
    pub(crate) fn line_choices(&self, tree: &Tree, columns: usize) -> Vec<String> {
        let open = self.question(tree);
        open.map(|open| self.choices(open, self.open(tree).count(), Input::Lines, columns))
            .unwrap_or_default()
    }

    fn choices(&self, open: &Question, count: usize, input: Input, columns: usize) -> Vec<String> {
        let is_cut = self.current.as_ref().is_some_and(|current| current.is_cut);
        choices(open, count, input, is_cut, columns)
    }

    fn status(&self, open: &Question, count: usize) -> String {
        let headline = self.current.as_ref().map_or("", |current| current.headline.as_str());
        let left = units::elapsed(open.until.saturating_sub(clock::now()));
        let others = if count > 1 { format!(", {} more wait", count - 1) } else { String::new() };
        format!("? {headline} (denied in {left}{others})")
    }
}

fn place(open: &Question) -> Place {
    (open.session.clone(), open.call)
}

fn is_at(open: &Question, (session, call): &Place) -> bool {
    open.session == *session && open.call == *call
}

#[cfg(test)]
mod tests;
