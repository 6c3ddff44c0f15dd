//! Prompt for pending approvals: one at a time is shown to the user, the others wait in a queue.
//!
//! At a keyboard a single key answers. Input from before a prompt appeared is discarded, until typing pauses.

mod answer_text;
mod key_prompt;
mod prompt_input;

use std::collections::HashSet;

use brigade::Workspace;
use brigade_core::event::Answer;
use brigade_core::view::{PendingApproval, Tree};
use brigade_core::{QuestionId, SessionId};
use crossterm::event::Event;

use crate::clock;
use crate::keyboard::keys::{self, Key};
use crate::progress::Footer;
use crate::render::approval_view::{self, DiffDetail, RenderedApproval, ViewOptions};
use crate::render::{self, wrap_items};
use crate::terminal::{self, Colour};
use crate::units;
use key_prompt::{KeyAction, KeyPrompt};

pub(crate) use answer_text::{InputKind, Scope, answer, choices};
pub(crate) use prompt_input::{InputMode, PromptInput, RunAction};

/// Session and request that identify an approval.
type ApprovalId = (SessionId, QuestionId);

/// Answer of the user to one approval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GivenAnswer {
    pub(crate) session: SessionId,
    pub(crate) question: QuestionId,
    pub(crate) answer: Answer,
}

/// Effect of a key or a line.
#[derive(Debug, PartialEq)]
pub(crate) enum PromptAction {
    /// None, or the input line looks different.
    Nothing,
    /// Answers to record.
    Answers(Vec<GivenAnswer>),
    /// Message to the user.
    Say(String),
    /// Lines to show. They are sanitized and may contain styles.
    Show(Vec<String>),
    /// The user wants to stop the run.
    Interrupt,
    /// The user leaves the prompt to do something else first.
    Leave,
}

/// Pending approvals of a tree, and the input for the first of them.
pub(crate) struct ApprovalPrompt {
    /// Workspace with the files that edits are compared with.
    workspace: Option<Workspace>,
    colour: Colour,
    current: Option<Current>,
    /// Approvals that were already shown.
    shown: HashSet<ApprovalId>,
    /// Answered here, but the answer is not in the log yet.
    answered: HashSet<ApprovalId>,
    key_prompt: KeyPrompt,
}

/// Approval that the user is being asked about.
struct Current {
    approval_id: ApprovalId,
    /// One-sentence summary.
    headline: String,
    /// Whether part of its diff is hidden.
    is_cut: bool,
}

impl ApprovalPrompt {
    pub(crate) fn new(workspace: Option<Workspace>, colour: Colour) -> ApprovalPrompt {
        ApprovalPrompt {
            workspace,
            colour,
            current: None,
            shown: HashSet::new(),
            answered: HashSet::new(),
            key_prompt: KeyPrompt::default(),
        }
    }

    /// Forgets all approvals.
    pub(crate) fn clear(&mut self) {
        *self = ApprovalPrompt::new(self.workspace.take(), self.colour);
    }

    /// Whether an agent is waiting for an answer.
    pub(crate) fn is_open(&self) -> bool {
        self.current.is_some()
    }

    /// Updates the prompt from the tree. Returns the lines to show if a new approval comes up.
    pub(crate) fn look(&mut self, tree: &Tree, columns: usize) -> Option<Vec<String>> {
        if tree.pending_approvals().next().is_none() {
            self.clear();
            return None;
        }
        self.answered.retain(|approval_id| tree.pending_approvals().any(|open| has_id(open, approval_id)));
        let still_open = self
            .current
            .as_ref()
            .is_some_and(|current| self.open(tree).any(|open| has_id(open, &current.approval_id)));
        if still_open {
            return None;
        }
        let next = self.open(tree).next().map(approval_id);
        self.show_approval(next, tree, columns)
    }

    fn show_approval(
        &mut self,
        next: Option<ApprovalId>,
        tree: &Tree,
        columns: usize,
    ) -> Option<Vec<String>> {
        self.key_prompt.open();
        self.shown.extend(next.clone());
        self.current = None;
        let approval_id = next?;
        let open = tree.pending_approvals().find(|open| has_id(open, &approval_id))?;
        let RenderedApproval { lines, is_cut } = self.lines(open, tree, columns, DiffDetail::Bounded);
        self.current = Some(Current { approval_id, headline: approval_view::headline(open, tree), is_cut });
        Some(lines)
    }

    fn lines(
        &self,
        open: &PendingApproval,
        tree: &Tree,
        columns: usize,
        diff_detail: DiffDetail,
    ) -> RenderedApproval {
        let options =
            ViewOptions { columns, colour: self.colour, workspace: self.workspace.as_ref(), diff_detail };
        approval_view::render(open, tree, options)
    }

    /// Shows an approval again because its answer could not be recorded.
    pub(crate) fn failed(&mut self, given: &GivenAnswer) {
        self.answered.remove(&(given.session.clone(), given.question.clone()));
    }

    /// Approval that the prompt shows now.
    fn current_approval<'a>(&self, tree: &'a Tree) -> Option<&'a PendingApproval> {
        let current = self.current.as_ref()?;
        tree.pending_approvals().find(|open| has_id(open, &current.approval_id))
    }

    /// Pending approvals that were not answered here.
    fn open<'a>(&self, tree: &'a Tree) -> impl Iterator<Item = &'a PendingApproval> {
        tree.pending_approvals().filter(|open| !self.answered.contains(&approval_id(open)))
    }

    /// Moves on to the next approval in the queue.
    fn next(&mut self, tree: &Tree) -> Option<Vec<String>> {
        let columns = terminal::size().0;
        let all: Vec<ApprovalId> = self.open(tree).map(approval_id).collect();
        let current = self.current.as_ref().map(|current| &current.approval_id);
        let at = all.iter().position(|other| Some(other) == current)?;
        let next = all.get(at + 1).or(all.first()).filter(|_| all.len() > 1)?;
        self.show_approval(Some(next.clone()), tree, columns)
    }

    /// Shows the whole diff of the approval, if part of it is hidden.
    fn show_all(&mut self, tree: &Tree) -> PromptAction {
        let Some(open) = self.current_approval(tree) else { return PromptAction::Nothing };
        if !self.current.as_ref().is_some_and(|current| current.is_cut) {
            return PromptAction::Nothing;
        }
        let lines = self.lines(open, tree, terminal::size().0, DiffDetail::Full).lines;
        if let Some(current) = &mut self.current {
            current.is_cut = false;
        }
        PromptAction::Show(lines)
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: Key, tree: &Tree) -> PromptAction {
        let Some(open) = self.current_approval(tree) else {
            return if key == Key::Interrupt { PromptAction::Interrupt } else { PromptAction::Nothing };
        };
        match self.key_prompt.key(key, open) {
            KeyAction::Nothing => PromptAction::Nothing,
            KeyAction::Answer(answer, scope) => self.submit(&answer, scope, tree),
            KeyAction::Next => self.next(tree).map_or(PromptAction::Nothing, PromptAction::Show),
            KeyAction::ShowAll => self.show_all(tree),
            KeyAction::Leave => PromptAction::Leave,
            KeyAction::Interrupt => PromptAction::Interrupt,
        }
    }

    /// Handles pasted text.
    pub(crate) fn paste(&mut self, text: &str) {
        self.key_prompt.paste(text);
    }

    /// Handles an event of the terminal. `suspend` runs for Ctrl-Z.
    pub(crate) fn event(&mut self, event: Event, tree: &Tree, suspend: impl FnOnce()) -> PromptAction {
        match event {
            Event::Key(key) => match keys::from_event(key) {
                Some(Key::Suspend) => suspend(),
                Some(key) => return self.key(key, tree),
                None => {}
            },
            Event::Paste(text) => self.paste(&text),
            Event::Resize(..) | Event::FocusGained | Event::FocusLost | Event::Mouse(_) => {}
        }
        PromptAction::Nothing
    }

    /// Handles a line of input.
    pub(crate) fn line(&mut self, line: &str, tree: &Tree) -> PromptAction {
        let Some(current) = self.current_approval(tree) else { return PromptAction::Nothing };
        if line.trim().is_empty() || self.key_prompt.is_settling() {
            return PromptAction::Nothing;
        }
        if line.trim().eq_ignore_ascii_case("v") {
            return self.show_all(tree);
        }
        match answer(line, current.always.as_deref()) {
            Ok((answer, scope)) => self.submit(&answer, scope, tree),
            Err(error) => PromptAction::Say(error.to_string()),
        }
    }

    /// Answers the current approval, or all of them.
    fn submit(&mut self, answer: &Answer, scope: Scope, tree: &Tree) -> PromptAction {
        let Some(current) = self.current_approval(tree) else { return PromptAction::Nothing };
        let asked: Vec<ApprovalId> = match (scope, answer) {
            (Scope::All, Answer::Once) if let Some(lines) = self.show_unseen(tree) => {
                return PromptAction::Show(lines);
            }
            (Scope::All, _) => self.open(tree).map(approval_id).collect(),
            // A call that the new rule allows needs no further answer.
            (Scope::One, Answer::Always(rule)) => {
                let is_same = |open: &&PendingApproval| {
                    open.session == current.session && open.always.as_deref() == Some(rule.as_str())
                };
                let same = self.open(tree).filter(is_same).map(approval_id);
                same.chain([approval_id(current)]).collect()
            }
            (Scope::One, _) => vec![approval_id(current)],
        };
        let mut given: Vec<GivenAnswer> = Vec::new();
        for (session, question) in asked {
            if self.answered.insert((session.clone(), question.clone())) {
                given.push(GivenAnswer { session, question, answer: answer.clone() });
            }
        }
        PromptAction::Answers(given)
    }

    /// Shows the approvals that the user has not seen yet, if any. The user cannot allow what was not shown.
    fn show_unseen(&mut self, tree: &Tree) -> Option<Vec<String>> {
        let columns = terminal::size().0;
        let unseen: Vec<&PendingApproval> =
            self.open(tree).filter(|open| !self.shown.contains(&approval_id(open))).collect();
        if unseen.is_empty() {
            return None;
        }
        let mut lines: Vec<String> = unseen
            .iter()
            .flat_map(|open| self.lines(open, tree, columns, DiffDetail::Bounded).lines)
            .collect();
        lines.push(
            "All pending requests have now been shown. Repeat your answer to allow all of them.".to_owned(),
        );
        self.shown.extend(unseen.iter().map(|open| approval_id(open)));
        self.key_prompt.open();
        Some(lines)
    }

    /// Lines below the tree while an approval is pending.
    pub(crate) fn footer(&self, tree: &Tree, columns: usize) -> Option<Footer> {
        let open = self.current_approval(tree)?;
        let count = self.open(tree).count();
        let head = self.status(open, count);
        let head = wrap_items(head.split(' '), " ", columns);
        let mut lines: Vec<String> = head.iter().map(|line| self.colour.paint("33;1", line)).collect();
        let hint = self.key_prompt.hint();
        if let Some((label, layout)) = self.key_prompt.field(columns) {
            lines.extend(wrap_items(hint.unwrap_or(label).split(' '), " ", columns));
            let (row, column) = layout.cursor;
            let cursor = Some((lines.len() + row, column));
            lines.extend(layout.lines);
            return Some(Footer { lines, cursor });
        }
        if let Some(hint) = hint {
            lines.extend(wrap_items(hint.split(' '), " ", columns));
        }
        lines.extend(self.choices(open, count, InputKind::Keys, columns));
        let last = lines.last().map_or(0, |line| render::width(line));
        let cursor = Some((lines.len().saturating_sub(1), last));
        Some(Footer { lines, cursor })
    }

    /// Possible answers to the current approval, for line input.
    pub(crate) fn line_choices(&self, tree: &Tree, columns: usize) -> Vec<String> {
        let open = self.current_approval(tree);
        open.map(|open| self.choices(open, self.open(tree).count(), InputKind::Lines, columns))
            .unwrap_or_default()
    }

    fn choices(&self, open: &PendingApproval, count: usize, input: InputKind, columns: usize) -> Vec<String> {
        let is_cut = self.current.as_ref().is_some_and(|current| current.is_cut);
        choices(open, count, input, is_cut, columns)
    }

    fn status(&self, open: &PendingApproval, count: usize) -> String {
        let headline = self.current.as_ref().map_or("", |current| current.headline.as_str());
        let left = units::format_elapsed(open.until.saturating_sub(clock::now()));
        let others = if count > 1 { format!(", {} more waiting", count - 1) } else { String::new() };
        format!("? {headline} (denied automatically in {left}{others})")
    }
}

fn approval_id(open: &PendingApproval) -> ApprovalId {
    (open.session.clone(), open.question())
}

fn has_id(open: &PendingApproval, (session, question): &ApprovalId) -> bool {
    open.is(session, question)
}

#[cfg(test)]
mod tests;
