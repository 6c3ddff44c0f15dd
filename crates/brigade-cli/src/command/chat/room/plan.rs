//! Modes at a key: Shift-Tab changes the mode, and Enter approves the plan that a round in mode `plan` ended with.

use std::time::{Duration, Instant};

use brigade_core::permission::Mode;

use super::super::attach::Attached;
use super::super::voice;
use super::Room;

/// The words that the agent hears when its plan is approved.
const APPROVAL: &str = "The plan is approved. Carry it out.";
const OFFER: &str = "Enter approves this plan and continues in mode edit. Or type what to change.";
/// Enter within this time after the plan appeared was meant for something else.
const BLINK: Duration = Duration::from_millis(400);

/// A plan that waits for an approval.
pub(super) struct Plan {
    since: Instant,
}

impl Plan {
    pub(super) fn notice(&self) -> String {
        OFFER.to_owned()
    }
}

impl Room<'_> {
    /// Offers to approve the plan, if the round that just ended was one in mode `plan`.
    pub(super) async fn offer_approval(&mut self) {
        if self.talk.can_leave_plan().await {
            self.plan = Some(Plan { since: Instant::now() });
        }
    }

    /// Whether Enter approves a plan now.
    pub(super) fn approves_plan(&self) -> bool {
        let is_seen = self.plan.as_ref().is_some_and(|plan| plan.since.elapsed() >= BLINK);
        is_seen && self.round.is_none() && self.line.is_empty() && !self.line.is_searching()
    }

    /// Continues in mode `edit` with the plan.
    pub(super) async fn approve_plan(&mut self) {
        self.plan = None;
        self.screen.clear();
        if let Err(failure) = self.talk.set_mode(Mode::Edit).await {
            return self.fail(&failure);
        }
        let mut lines = voice::echo(APPROVAL, self.colour);
        lines.push(self.colour.paint("2", "  (mode edit)"));
        lines.push(String::new());
        self.say(lines);
        let Attached { text, .. } = self.talk.composed(APPROVAL);
        self.message(&text).await;
    }

    /// Changes to the next mode. `auto`, which asks about nothing, is not among them: `/mode auto` sets it.
    pub(super) async fn next_mode(&mut self) {
        let mode = match self.talk.mode().await {
            Mode::Plan => Mode::Ask,
            Mode::Ask => Mode::Edit,
            Mode::Edit | Mode::Auto => Mode::Plan,
        };
        self.plan = None;
        self.screen.clear();
        match self.talk.set_mode(mode).await {
            Ok(()) => {
                let when = if self.round.is_some() { " from the next round on" } else { "" };
                self.notice = Some(format!("Mode {mode}{when}."));
            }
            Err(failure) => self.fail(&failure),
        }
    }
}
