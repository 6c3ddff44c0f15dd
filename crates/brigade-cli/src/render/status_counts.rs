//! Counts of agents by status.

use std::fmt;

use brigade_core::Status;
use brigade_core::view::Activity;

/// Status of an agent in summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentStatus {
    /// The agent failed, or its outcome is unknown.
    Failed,
    /// A limit stopped the agent.
    Incomplete,
    /// The agent was cancelled.
    Cancelled,
    Working,
    /// The agent has not started.
    Waiting,
    /// The agent completed its task, or was detached.
    Done,
}

const LABELS: [(AgentStatus, &str); 6] = [
    (AgentStatus::Failed, "failed"),
    (AgentStatus::Incomplete, "incomplete"),
    (AgentStatus::Cancelled, "cancelled"),
    (AgentStatus::Working, "running"),
    (AgentStatus::Waiting, "waiting"),
    (AgentStatus::Done, "done"),
];

impl AgentStatus {
    /// Status for an activity.
    pub(crate) fn of(activity: &Activity) -> AgentStatus {
        match activity {
            Activity::Pending => AgentStatus::Waiting,
            Activity::Thinking
            | Activity::Tool(_)
            | Activity::Delegating
            | Activity::WrappingUp
            | Activity::Compacting => AgentStatus::Working,
            Activity::Ended(outcome) => match outcome.status {
                Status::Done | Status::Detached => AgentStatus::Done,
                Status::Incomplete { .. } => AgentStatus::Incomplete,
                Status::Failed { .. } | Status::Lost { .. } => AgentStatus::Failed,
                Status::Cancelled { .. } => AgentStatus::Cancelled,
            },
        }
    }

    /// Whether the agent has not ended.
    pub(crate) fn is_active(self) -> bool {
        matches!(self, AgentStatus::Working | AgentStatus::Waiting)
    }
}

/// Number of agents by status, shown as `2 failed, 120 waiting, 37 done`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StatusCounts([usize; LABELS.len()]);

impl StatusCounts {
    /// Counts one agent.
    pub(crate) fn add(&mut self, status: AgentStatus) {
        if let Some(count) = self.0.get_mut(status as usize) {
            *count += 1;
        }
    }

    /// Number of agents.
    pub(crate) fn sum(&self) -> usize {
        self.0.iter().sum()
    }
}

impl fmt::Display for StatusCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = self.0.iter().zip(LABELS).filter(|(count, _)| **count > 0);
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
    fn failures_come_first_and_zero_counts_are_omitted() {
        let mut everything = StatusCounts::default();
        for (status, word) in LABELS {
            let mut counts = StatusCounts::default();
            counts.add(status);
            counts.add(status);
            assert_eq!((counts.to_string(), counts.sum()), (format!("2 {word}"), 2));
            everything.add(status);
        }
        let shown = "1 failed, 1 incomplete, 1 cancelled, 1 running, 1 waiting, 1 done";
        assert_eq!(everything.to_string(), shown);
    }
}
