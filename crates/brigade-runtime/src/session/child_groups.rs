//! Children of a session, from the delegation call to their end.

use std::collections::VecDeque;
use std::sync::Arc;

use brigade_core::{CallId, Delegation, SessionId, State, ToolOutput};
use futures::future::BoxFuture;

use super::child_queue::{ChildQueue, PendingChild};
use super::delegation_calls::ResolveCache;
use super::mailbox::{DriverMessage, DriverSender};
use crate::fast_map::FastMap;
use crate::task::{self, AbortOnDrop};

/// Cancellation reason of siblings after one task of a call failed.
const FAIL_FAST: &str = "`fail_fast`, because another task of the call failed";

/// Children of a session: those that run, those that wait, and the calls they belong to.
#[derive(Default)]
pub(super) struct Children {
    running: FastMap<SessionId, RunningChild>,
    pub(super) queue: ChildQueue,
    /// Open delegation calls.
    groups: FastMap<CallId, ChildGroup>,
    /// Parallel calls whose children have all ended.
    finished: Vec<CallId>,
    pub(super) resolve_cache: Option<Box<ResolveCache>>,
}

struct RunningChild {
    inbox: DriverSender,
    task: AbortOnDrop<()>,
}

/// Children of one delegation call.
#[derive(Default)]
pub(super) struct ChildGroup {
    /// Whether the call can have several children.
    pub(super) is_parallel: bool,
    /// Maximum number of children that are running or queued.
    pub(super) max_concurrent: usize,
    pub(super) fail_fast: bool,
    /// Number of children that are running or queued.
    pub(super) busy: usize,
    /// Children that are not queued yet.
    pub(super) backlog: VecDeque<PendingChild>,
    pub(super) unstarted: Vec<UnstartedChild>,
    pub(super) failed: bool,
}

/// A child that was not started.
pub(super) struct UnstartedChild {
    pub(super) delegation: Arc<Delegation>,
    /// Index of the child within the call.
    pub(super) index: usize,
    pub(super) cause: String,
}

impl Children {
    /// Runs a child in a task that is aborted with this session.
    pub(super) fn start(&mut self, child: SessionId, inbox: DriverSender, run: BoxFuture<'static, ()>) {
        self.running.insert(child, RunningChild { inbox, task: AbortOnDrop(task::spawn(run)) });
    }

    /// Removes a child that has ended or is detached, and returns its task.
    pub(super) fn remove(&mut self, child: &SessionId) -> Option<AbortOnDrop<()>> {
        self.running.remove(child).map(|running| running.task)
    }

    pub(super) fn is_running(&self, child: &SessionId) -> bool {
        self.running.contains_key(child)
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &SessionId> {
        self.running.keys()
    }

    /// Cancels a running child.
    pub(super) fn cancel(&self, child: &SessionId, by: &str) {
        if let Some(running) = self.running.get(child) {
            running.cancel(by);
        }
    }

    /// Cancels all running children.
    pub(super) fn cancel_all(&self, by: &str) {
        self.running.values().for_each(|child| child.cancel(by));
    }

    /// Opens a delegation call and queues as many of its children as may run at once.
    pub(super) fn open_group(&mut self, call: CallId, group: ChildGroup) {
        self.groups.insert(call, group);
        self.fill_queue(call);
    }

    pub(super) fn close_group(&mut self, call: CallId) {
        self.groups.remove(&call);
    }

    /// Whether a call can have several children.
    pub(super) fn is_parallel(&self, call: CallId) -> bool {
        self.groups.get(&call).is_some_and(|group| group.is_parallel)
    }

    /// Number of children that wait for their start.
    pub(super) fn unstarted_count(&self) -> usize {
        let backlogged: usize = self.groups.values().map(|group| group.backlog.len()).sum();
        self.queue.waiting_count() + backlogged
    }

    /// Queues as many children of a call as may run at once.
    fn fill_queue(&mut self, call: CallId) {
        let Some(group) = self.groups.get_mut(&call) else { return };
        while group.busy < group.max_concurrent
            && let Some(pending) = group.backlog.pop_front()
        {
            group.busy += 1;
            self.queue.push(pending);
        }
    }

    /// Records that a child is not started. Returns the answer to its call if that is complete.
    pub(super) fn refuse(
        &mut self,
        pending: PendingChild,
        cause: String,
        state: &State,
    ) -> Option<ToolOutput> {
        let PendingChild { call, index, delegation, .. } = pending;
        let group = self.groups.get_mut(&call)?;
        group.busy = group.busy.saturating_sub(1);
        group.unstarted.push(UnstartedChild { delegation, index, cause });
        group.failed = true;
        self.settle(call, None, state)
    }

    /// Records that a child of a call has ended. `output` is its result. Returns the answer to the call if that is
    /// complete.
    pub(super) fn end(
        &mut self,
        call: CallId,
        failed: bool,
        output: impl FnOnce() -> ToolOutput,
        state: &State,
    ) -> Option<ToolOutput> {
        let group = self.groups.get_mut(&call)?;
        group.busy = group.busy.saturating_sub(1);
        group.failed |= failed;
        self.settle(call, Some(output()), state)
    }

    /// Continues a call after a change of its children. A parallel call is finished when all have ended, and is
    /// answered from the log. Another call is answered with the output.
    pub(super) fn settle(
        &mut self,
        call: CallId,
        output: Option<ToolOutput>,
        state: &State,
    ) -> Option<ToolOutput> {
        let group = self.groups.get_mut(&call)?;
        if !group.is_parallel {
            let cause = group.unstarted.pop().map(|unstarted| ToolOutput::error(unstarted.cause));
            self.groups.remove(&call);
            return output.or(cause);
        }
        if group.failed && group.fail_fast {
            self.stop_group(call, state);
        } else {
            self.fill_queue(call);
        }
        if self.groups.get(&call).is_some_and(|group| group.busy == 0 && group.backlog.is_empty()) {
            self.finished.push(call);
        }
        None
    }

    /// Cancels the running children of a call and drops the others.
    fn stop_group(&mut self, call: CallId, state: &State) {
        let mut dropped = self.queue.take_of(call);
        let Some(group) = self.groups.get_mut(&call) else { return };
        group.busy = group.busy.saturating_sub(dropped.len());
        dropped.extend(std::mem::take(&mut group.backlog));
        let cause = "not started: another task of the call failed (`fail_fast`)".to_owned();
        group.unstarted.extend(dropped.into_iter().map(|PendingChild { delegation, index, .. }| {
            UnstartedChild { delegation, index, cause: cause.clone() }
        }));
        for (child, running) in &self.running {
            if state.loans().get(child).is_some_and(|loan| loan.call == call) {
                running.cancel(FAIL_FAST);
            }
        }
    }

    /// Reason to cancel a child of a call at its start, because another child of the call failed.
    pub(super) fn stop_reason(&self, call: CallId) -> Option<&'static str> {
        self.groups.get(&call).is_some_and(|group| group.failed && group.fail_fast).then_some(FAIL_FAST)
    }

    /// Takes all children that are not funded, because nothing new may start.
    pub(super) fn take_unfunded(&mut self) -> Vec<PendingChild> {
        let mut taken = self.queue.take_waiting();
        for group in self.groups.values_mut() {
            group.busy += group.backlog.len();
            taken.extend(std::mem::take(&mut group.backlog));
        }
        taken
    }

    /// Whether a parallel call waits for its answer.
    pub(super) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Closes the next parallel call whose children have all ended, and returns those that were not started.
    pub(super) fn pop_finished(&mut self) -> Option<(CallId, Vec<UnstartedChild>)> {
        while let Some(call) = self.finished.pop() {
            if let Some(group) = self.groups.remove(&call) {
                return Some((call, group.unstarted));
            }
        }
        None
    }
}

impl RunningChild {
    fn cancel(&self, by: &str) {
        // A child that has just ended no longer reads its inbox.
        let _ = self.inbox.unbounded_send(DriverMessage::Cancel(by.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::mailbox::Mailbox;

    #[tokio::test]
    async fn running_child_is_aborted_with_its_parent_unless_it_is_detached() {
        let (kept, dropped) = (Arc::new(()), Arc::new(()));
        let watched = [&kept, &dropped].map(Arc::downgrade);
        let mut children = Children::default();
        for (number, alive) in [(1, kept), (2, dropped)] {
            let run = Box::pin(async move {
                std::future::pending::<()>().await;
                drop(alive);
            });
            children.start(SessionId::root(number), Mailbox::new().sender(), run);
        }
        let detached = children.remove(&SessionId::root(1));
        drop(children);
        tokio::task::yield_now().await;
        assert_eq!(watched.each_ref().map(|alive| alive.upgrade().is_some()), [true, false]);
        drop(detached);
        tokio::task::yield_now().await;
        assert!(watched[0].upgrade().is_none());
    }
}
