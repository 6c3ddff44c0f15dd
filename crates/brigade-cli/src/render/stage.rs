//! How far agents are, counted.

use std::fmt;

use brigade_core::Status;
use brigade_core::view::Doing;

/// How far an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It failed, or nobody knows.
    Failed,
    /// A limit ended it.
    Incomplete,
    /// Somebody stopped it.
    Cancelled,
    /// It works.
    Working,
    /// It has not begun.
    Waiting,
    /// It did what it was asked, or was left to itself.
    Done,
}

const ALL: [(Stage, &str); 6] = [
    (Stage::Failed, "failed"),
    (Stage::Incomplete, "incomplete"),
    (Stage::Cancelled, "cancelled"),
    (Stage::Working, "at work"),
    (Stage::Waiting, "wait"),
    (Stage::Done, "done"),
];

impl Stage {
    /// The stage of what an agent does.
    pub(crate) fn of(doing: &Doing) -> Stage {
        match doing {
            Doing::Waiting => Stage::Waiting,
            Doing::Thinking | Doing::Tool(_) | Doing::Delegating | Doing::Finishing | Doing::Summarising => {
                Stage::Working
            }
            Doing::Ended(outcome) => match outcome.status {
                Status::Done | Status::Detached => Stage::Done,
                Status::Incomplete { .. } => Stage::Incomplete,
                Status::Failed { .. } | Status::Lost { .. } => Stage::Failed,
                Status::Cancelled { .. } => Stage::Cancelled,
            },
        }
    }

    /// Whether the agent has not ended.
    pub(crate) fn is_active(self) -> bool {
        matches!(self, Stage::Working | Stage::Waiting)
    }
}

/// How many agents are how far. Shown as `2 failed, 120 wait, 37 done`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally([usize; ALL.len()]);

impl Tally {
    /// Counts one more.
    pub(crate) fn add(&mut self, stage: Stage) {
        if let Some(count) = self.0.get_mut(stage as usize) {
            *count += 1;
        }
    }

    /// All of them.
    pub(crate) fn sum(&self) -> usize {
        self.0.iter().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = self.0.iter().zip(ALL).filter(|(count, _)| **count > 0);
        for (number, (count, (_, word))) in present.enumerate() {
            write!(f, "{}{count} {word}", if number > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_named_first_and_what_there_is_not_is_not_named() {
        let mut everything = Tally::default();
        for (stage, word) in ALL {
            let mut tally = Tally::default();
            tally.add(stage);
            tally.add(stage);
            assert_eq!((tally.to_string(), tally.sum()), (format!("2 {word}"), 2));
            everything.add(stage);
        }
        let shown = "1 failed, 1 incomplete, 1 cancelled, 1 at work, 1 wait, 1 done";
        assert_eq!(everything.to_string(), shown);
    }
}
