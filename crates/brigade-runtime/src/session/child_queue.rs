//! Queue of children that are not started yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use brigade_core::{CallId, Delegation, SessionId};
use tokio::time::Instant;

use super::mailbox::{DriverMessage, DriverSender};
use crate::concurrency::{ConcurrencyKey, ConcurrencyLimiter, Slot};
use crate::fast_map::FastMap;
use crate::resolved_agent::ResolvedAgent;
use crate::task::{self, AbortOnDrop};

/// A child that waits for a slot or for a refund.
pub(super) struct PendingChild {
    pub(super) call: CallId,
    /// Index of the child within the call.
    pub(super) index: usize,
    pub(super) delegation: Arc<Delegation>,
    pub(super) resolved: Arc<ResolvedAgent>,
    pub(super) concurrency_key: ConcurrencyKey,
    /// When it started to wait.
    pub(super) since: Instant,
}

/// A child whose loan is recorded.
pub(super) struct FundedChild {
    pub(super) child: SessionId,
    pub(super) pending: PendingChild,
    pub(super) slot: Slot,
}

/// Children on their way to a start: first they wait for a slot, then for their loan to be durable.
#[derive(Default)]
pub(super) struct ChildQueue {
    /// Children that wait for a slot or for a refund.
    waiting: BTreeMap<ConcurrencyKey, VecDeque<PendingChild>>,
    /// Tasks that wait for requested slots.
    slot_requests: FastMap<ConcurrencyKey, AbortOnDrop<()>>,
    /// Children whose loan is recorded and that are not started yet.
    funded: Vec<FundedChild>,
    /// Whether the waiting children can only be funded when another loan is returned.
    is_waiting_for_refund: bool,
}

impl ChildQueue {
    /// Whether no child waits or is funded.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.funded.is_empty()
    }

    /// Number of children that wait.
    pub(super) fn waiting_count(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    pub(super) fn push(&mut self, pending: PendingChild) {
        self.waiting.entry(pending.concurrency_key.clone()).or_default().push_back(pending);
    }

    /// Keys of children that can be funded. A child that waits for a refund requests no slot. Others can use the
    /// slot, perhaps to return the refund.
    pub(super) fn fundable_keys(&self) -> Vec<ConcurrencyKey> {
        if self.is_waiting_for_refund { Vec::new() } else { self.waiting.keys().cloned().collect() }
    }

    /// Whether a child with this key waits for a slot that was not requested.
    pub(super) fn needs_slot(&self, key: &ConcurrencyKey) -> bool {
        !self.slot_requests.contains_key(key) && self.waiting.get(key).is_some_and(|queue| !queue.is_empty())
    }

    /// Requests a slot. It arrives as a message.
    pub(super) fn request_slot(
        &mut self,
        key: &ConcurrencyKey,
        slots: &ConcurrencyLimiter,
        sender: DriverSender,
    ) {
        let granted = slots.acquire_new(key);
        let request = task::spawn(async move {
            if let Ok(slot) = granted.await {
                let _ = sender.unbounded_send(DriverMessage::Slot(Box::new(slot)));
            }
        });
        self.slot_requests.insert(key.clone(), AbortOnDrop(request));
    }

    /// Records that a requested slot has arrived.
    pub(super) fn slot_arrived(&mut self, key: &ConcurrencyKey) {
        self.slot_requests.remove(key);
    }

    /// Takes the first child that waits for a slot with this key, unless it has to wait for a refund.
    pub(super) fn pop(&mut self, key: &ConcurrencyKey) -> Option<PendingChild> {
        if self.is_waiting_for_refund {
            return None;
        }
        self.waiting.get_mut(key)?.pop_front()
    }

    /// Puts a child back. Nothing is funded until a loan is returned.
    pub(super) fn wait_for_refund(&mut self, pending: PendingChild) {
        self.is_waiting_for_refund = true;
        self.waiting.entry(pending.concurrency_key.clone()).or_default().push_front(pending);
    }

    /// Records that budget was returned, which waiting children may need.
    pub(super) fn refund_arrived(&mut self) {
        self.is_waiting_for_refund = false;
    }

    pub(super) fn add_funded(&mut self, funded: FundedChild) {
        self.funded.push(funded);
    }

    pub(super) fn take_funded(&mut self) -> Vec<FundedChild> {
        std::mem::take(&mut self.funded)
    }

    /// Takes the waiting children of a call.
    pub(super) fn take_of(&mut self, call: CallId) -> Vec<PendingChild> {
        let mut taken = Vec::new();
        for queue in self.waiting.values_mut() {
            let all = std::mem::take(queue).into_iter();
            let (of_call, others): (VecDeque<_>, _) = all.partition(|pending| pending.call == call);
            *queue = others;
            taken.extend(of_call);
        }
        taken
    }

    /// Takes all waiting children.
    pub(super) fn take_waiting(&mut self) -> Vec<PendingChild> {
        std::mem::take(&mut self.waiting).into_values().flatten().collect()
    }

    /// Removes keys that no child waits for.
    pub(super) fn remove_empty(&mut self) {
        self.waiting.retain(|_, queue| !queue.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use brigade_core::DelegationStyle;

    use super::*;
    use crate::session::mailbox::Mailbox;

    #[tokio::test]
    async fn requested_slot_is_free_for_others_after_the_session_ended() {
        let key = ConcurrencyKey { style: DelegationStyle::Run, agent: None };
        let slots = ConcurrencyLimiter::new(1, []);
        let slot = slots.try_acquire_new(&key).unwrap();
        let mut queue = ChildQueue::default();
        let mailbox = Mailbox::new();
        queue.request_slot(&key, &slots, mailbox.sender());
        tokio::task::yield_now().await;
        drop(queue);
        tokio::task::yield_now().await;
        drop(slot);
        assert!(slots.try_acquire_new(&key).is_some());
    }
}
