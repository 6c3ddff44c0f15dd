//! Mode keys: Shift-Tab switches the mode, and Enter approves the plan of a round in mode `plan`.

use std::time::{Duration, Instant};

use brigade_core::permission::Mode;

use super::super::attach::ComposedMessage;
use super::super::transcript_writer;
use super::ChatUi;

/// Message to the agent when its plan is approved.
const APPROVAL_MESSAGE: &str = "The plan is approved. Carry it out.";
pub(super) const APPROVAL_NOTICE: &str =
    "Press Enter to approve this plan and continue in mode edit, or type what to change.";
/// Enter within this time after the plan appeared is ignored, because it was meant for something else.
const MIN_PLAN_DISPLAY_TIME: Duration = Duration::from_millis(400);

impl ChatUi<'_> {
    /// Offers to approve the plan, if the last round was in mode `plan`.
    pub(super) async fn offer_approval(&mut self) {
        if self.conversation.can_leave_plan().await {
            self.plan_shown_at = Some(Instant::now());
        }
    }

    /// Whether Enter approves a plan now.
    pub(super) fn approves_plan(&self) -> bool {
        let is_seen = self.plan_shown_at.is_some_and(|at| at.elapsed() >= MIN_PLAN_DISPLAY_TIME);
        is_seen && self.round.is_none() && self.line.is_empty() && !self.line.is_searching()
    }

    /// Continues in mode `edit` with the plan.
    pub(super) async fn approve_plan(&mut self) {
        self.plan_shown_at = None;
        self.screen.clear();
        if let Err(failure) = self.conversation.set_mode(Mode::Edit).await {
            return self.fail(&failure);
        }
        let mut lines = transcript_writer::echo(APPROVAL_MESSAGE, self.colour);
        lines.push(self.colour.paint("2", "  (mode edit)"));
        lines.push(String::new());
        self.print_lines(lines);
        let ComposedMessage { text, .. } = self.conversation.compose(APPROVAL_MESSAGE);
        self.message(&text).await;
    }

    /// Switches to the next mode. `auto` is not included, because it never asks; `/mode auto` sets it.
    pub(super) async fn next_mode(&mut self) {
        let mode = match self.conversation.mode().await {
            Mode::Plan => Mode::Ask,
            Mode::Ask => Mode::Edit,
            Mode::Edit | Mode::Auto => Mode::Plan,
        };
        self.plan_shown_at = None;
        self.screen.clear();
        match self.conversation.set_mode(mode).await {
            Ok(()) => {
                let when = if self.round.is_some() { " (from the next round)" } else { "" };
                self.notice = Some(format!("Mode {mode}{when}."));
            }
            Err(failure) => self.fail(&failure),
        }
    }
}
