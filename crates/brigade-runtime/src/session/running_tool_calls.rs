//! Tool calls that a driver processes, and the tasks that run them.

use std::collections::VecDeque;
use std::sync::OnceLock;

use brigade_core::{CallId, State};
use tokio::sync::watch;

use crate::fast_map::{FastMap, FastSet};
use crate::task::{self, AbortOnDrop};

/// Calls of a session that are in progress.
#[derive(Default)]
pub(super) struct RunningToolCalls {
    /// Calls that this driver processes: they run, or wait for an approval, a child or another edit. All of them are
    /// unanswered.
    in_flight: FastSet<CallId>,
    /// Tasks of the tools that run.
    tasks: FastMap<CallId, AbortOnDrop<()>>,
    /// The edit in progress. `deferred` holds the edits that wait for it.
    editing: Option<CallId>,
    deferred: VecDeque<CallId>,
    /// Signals tools to stop. Created for the first tool.
    stop: OnceLock<watch::Sender<bool>>,
    is_stopped: bool,
}

impl RunningToolCalls {
    /// Calls without a result that are not in progress.
    pub(super) fn unprocessed(&self, state: &State) -> Vec<CallId> {
        // The counts decide most wake-ups. Comparing every call would be slow with thousands of children.
        if self.in_flight.len() == state.unanswered_count() {
            return Vec::new();
        }
        let mut calls = state.unanswered();
        calls.retain(|call| !self.in_flight.contains(call));
        calls
    }

    /// Marks a call as in progress.
    pub(super) fn begin(&mut self, call: CallId) {
        self.in_flight.insert(call);
    }

    /// Marks a call as answered.
    pub(super) fn end(&mut self, call: CallId) {
        self.in_flight.remove(&call);
    }

    /// Runs a tool in a task that is aborted with this driver.
    pub(super) fn spawn(&mut self, call: CallId, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.insert(call, AbortOnDrop(task::spawn(task)));
    }

    /// Removes the task of a tool that has reported its result.
    pub(super) fn task_done(&mut self, call: CallId) {
        self.tasks.remove(&call);
    }

    /// Whether a tool is running.
    pub(super) fn is_any_running(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Lets a call edit files, or defers it until the edit in progress has ended. Edits of one session run one after
    /// the other, because each is planned on the result of the last.
    pub(super) fn begin_edit(&mut self, call: CallId) -> bool {
        if self.editing.is_some_and(|other| other != call) {
            self.deferred.push_back(call);
            return false;
        }
        self.editing = Some(call);
        true
    }

    /// Ends the edit of a call, if it is the one in progress.
    pub(super) fn end_edit(&mut self, call: CallId) {
        if self.editing == Some(call) {
            self.editing = None;
        }
    }

    /// Returns the next deferred edit, if none is in progress.
    pub(super) fn next_edit(&mut self) -> Option<CallId> {
        if self.editing.is_some() { None } else { self.deferred.pop_front() }
    }

    /// Signals running tools to stop and returns the deferred edits, which no longer start. Returns none if that was
    /// done before.
    pub(super) fn stop(&mut self) -> Option<VecDeque<CallId>> {
        if std::mem::replace(&mut self.is_stopped, true) {
            return None;
        }
        if let Some(stop) = self.stop.get() {
            stop.send_replace(true);
        }
        Some(std::mem::take(&mut self.deferred))
    }

    /// Receiver that turns true when running work has to stop.
    pub(super) fn stop_signal(&self) -> watch::Receiver<bool> {
        self.stop.get_or_init(|| watch::Sender::new(self.is_stopped)).subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_run_one_after_the_other_until_the_stop() {
        let call = |index| CallId { turn: 1, index };
        let mut calls = RunningToolCalls::default();
        assert!(calls.begin_edit(call(0)) && calls.begin_edit(call(0)));
        assert!(!calls.begin_edit(call(1)) && !calls.begin_edit(call(2)));
        calls.end_edit(call(1));
        assert_eq!(calls.next_edit(), None, "another call does not end the edit");
        calls.end_edit(call(0));
        assert_eq!(calls.next_edit(), Some(call(1)));
        assert_eq!(calls.stop(), Some([call(2)].into()));
        assert_eq!(calls.stop(), None);
    }

    #[test]
    fn stop_reaches_tools_that_started_before_and_after_it() {
        let mut calls = RunningToolCalls::default();
        let before = calls.stop_signal();
        assert!(!*before.borrow());
        calls.stop();
        assert!(*before.borrow() && *calls.stop_signal().borrow());
        let mut calls = RunningToolCalls::default();
        calls.stop();
        assert!(*calls.stop_signal().borrow());
    }

    #[tokio::test]
    async fn running_tool_is_aborted_with_its_driver() {
        let alive = std::sync::Arc::new(());
        let watched = std::sync::Arc::downgrade(&alive);
        let mut calls = RunningToolCalls::default();
        let run = async move {
            std::future::pending::<()>().await;
            drop(alive);
        };
        calls.spawn(CallId { turn: 1, index: 0 }, run);
        tokio::task::yield_now().await;
        assert!(calls.is_any_running() && watched.upgrade().is_some());
        drop(calls);
        tokio::task::yield_now().await;
        assert!(watched.upgrade().is_none());
    }
}
