//! Report that a delegation style requests at the end of a round.

use super::Purpose;
use crate::delegation::Delegation;

/// Progress of the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Report {
    /// No report is required.
    #[default]
    NotRequired,
    /// The task phase is not over.
    Due,
    /// The task phase is over; the report was requested and has not arrived.
    Requested,
    /// The report arrived, or never will.
    Done,
}

impl Report {
    pub(super) fn new(delegation: &Delegation) -> Report {
        if delegation.report.is_some() { Report::Due } else { Report::NotRequired }
    }

    /// Whether the agent works on its task. After the report, only new input continues it.
    pub(super) fn in_task_phase(self, has_unread_input: bool) -> bool {
        match self {
            Report::NotRequired | Report::Due => true,
            Report::Requested => false,
            Report::Done => has_unread_input,
        }
    }

    /// Returns the purpose of the call after a limit.
    pub(super) fn last_call(self) -> Option<Purpose> {
        match self {
            Report::NotRequired => Some(Purpose::Grace),
            Report::Due | Report::Requested => Some(Purpose::Summary),
            Report::Done => None,
        }
    }

    /// Ends a report that was requested.
    pub(super) fn abandon(&mut self) {
        if *self == Report::Requested {
            *self = Report::Done;
        }
    }

    /// Ends a report that is required, requested or not.
    pub(super) fn close(&mut self) {
        if *self != Report::NotRequired {
            *self = Report::Done;
        }
    }
}
