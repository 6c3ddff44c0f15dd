//! Limit on the number of active sessions in a tree.
//!
//! A session holds a slot only while it is active. A session that waits for its children releases its slot and
//! requests another one when it resumes. Resuming sessions take precedence over new ones, so that loans are
//! returned soon.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::DelegationStyle;
use tokio::sync::oneshot;

/// Slots of a tree.
#[derive(Clone)]
pub(crate) struct ConcurrencyLimiter {
    inner: Arc<Mutex<LimiterState>>,
}

struct LimiterState {
    tree: Counter,
    delegation_styles: BTreeMap<DelegationStyle, Counter>,
    agents: BTreeMap<Arc<str>, Counter>,
    /// New sessions that wait for a slot, with their ticket numbers.
    new_waiters: BTreeMap<ConcurrencyKey, VecDeque<(u64, oneshot::Sender<Slot>)>>,
    tickets: u64,
    resumed_waiters: VecDeque<(ConcurrencyKey, oneshot::Sender<Slot>)>,
}

struct Counter {
    cap: usize,
    active: usize,
}

impl Counter {
    fn new(cap: usize) -> Counter {
        Counter { cap: cap.max(1), active: 0 }
    }

    fn free(&self) -> usize {
        self.cap.saturating_sub(self.active)
    }
}

/// Limits that a session counts against: its delegation style, and its agent if that has its own limit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConcurrencyKey {
    pub(crate) style: DelegationStyle,
    pub(crate) agent: Option<(Arc<str>, u32)>,
}

/// Permission to be active, returned when dropped.
pub(crate) struct Slot {
    key: ConcurrencyKey,
    slots: Option<ConcurrencyLimiter>,
}

impl Slot {
    pub(crate) fn key(&self) -> &ConcurrencyKey {
        &self.key
    }
}

impl ConcurrencyLimiter {
    pub(crate) fn new(
        cap: usize,
        delegation_styles: impl IntoIterator<Item = (DelegationStyle, usize)>,
    ) -> ConcurrencyLimiter {
        let delegation_styles = delegation_styles
            .into_iter()
            .map(|(style, cap): (DelegationStyle, usize)| (style, Counter::new(cap)))
            .collect();
        ConcurrencyLimiter {
            inner: Arc::new(Mutex::new(LimiterState {
                tree: Counter::new(cap),
                delegation_styles,
                agents: BTreeMap::new(),
                new_waiters: BTreeMap::new(),
                tickets: 0,
                resumed_waiters: VecDeque::new(),
            })),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LimiterState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, key: ConcurrencyKey) -> Slot {
        Slot { key, slots: Some(self.clone()) }
    }

    /// Takes a slot for a new session if one is free and no other session waits for it.
    pub(crate) fn try_acquire_new(&self, key: &ConcurrencyKey) -> Option<Slot> {
        let mut inner = self.lock();
        let waited_for = !inner.resumed_waiters.is_empty() || inner.new_waiters.contains_key(key);
        if waited_for || inner.free(key) == 0 {
            return None;
        }
        inner.take(key);
        drop(inner);
        Some(self.slot(key.clone()))
    }

    /// Number of sessions with this key that could start now.
    pub(crate) fn free(&self, key: &ConcurrencyKey) -> usize {
        self.lock().free(key)
    }

    /// Requests a slot for a new session.
    pub(crate) fn acquire_new(&self, key: &ConcurrencyKey) -> oneshot::Receiver<Slot> {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.lock();
        inner.tickets += 1;
        let ticket = inner.tickets;
        inner.new_waiters.entry(key.clone()).or_default().push_back((ticket, sender));
        drop(inner);
        self.grant_free_slots();
        receiver
    }

    /// Requests a slot for a resuming session.
    pub(crate) fn acquire_resumed(&self, key: &ConcurrencyKey) -> oneshot::Receiver<Slot> {
        let (sender, receiver) = oneshot::channel();
        self.lock().resumed_waiters.push_back((key.clone(), sender));
        self.grant_free_slots();
        receiver
    }

    /// Grants free slots to waiters, one at a time and outside the lock. If a receiver is gone, its slot is
    /// dropped and returns here.
    fn grant_free_slots(&self) {
        loop {
            let mut inner = self.lock();
            let Some((key, sender)) = inner.next_waiting() else { return };
            inner.take(&key);
            drop(inner);
            if let Err(mut slot) = sender.send(self.slot(key)) {
                slot.slots = None;
                self.lock().release(&slot.key);
            }
        }
    }
}

impl LimiterState {
    /// Counters that a session with this key belongs to.
    fn counts(&mut self, key: &ConcurrencyKey) -> impl Iterator<Item = &mut Counter> {
        let style = self.delegation_styles.get_mut(&key.style);
        let agent = key.agent.as_ref().map(|(agent, cap)| {
            self.agents.entry(agent.clone()).or_insert_with(|| Counter::new(*cap as usize))
        });
        [Some(&mut self.tree), style, agent].into_iter().flatten()
    }

    fn free(&mut self, key: &ConcurrencyKey) -> usize {
        self.counts(key).map(|count| count.free()).min().unwrap_or(0)
    }

    fn take(&mut self, key: &ConcurrencyKey) {
        self.counts(key).for_each(|count| count.active += 1);
    }

    fn release(&mut self, key: &ConcurrencyKey) {
        self.counts(key).for_each(|count| count.active = count.active.saturating_sub(1));
    }

    fn next_waiting(&mut self) -> Option<(ConcurrencyKey, oneshot::Sender<Slot>)> {
        let resumed_waiters = (0..self.resumed_waiters.len()).find(|&at| {
            let key = self.resumed_waiters[at].0.clone();
            self.free(&key) > 0
        });
        if let Some(at) = resumed_waiters {
            return self.resumed_waiters.remove(at);
        }
        // The earliest request is served first, regardless of its key.
        let first =
            |(key, queue): (&ConcurrencyKey, &VecDeque<(u64, _)>)| Some((queue.front()?.0, key.clone()));
        let mut keys: Vec<(u64, ConcurrencyKey)> = self.new_waiters.iter().filter_map(first).collect();
        keys.sort();
        let key = keys.into_iter().map(|(_, key)| key).find(|key| self.free(key) > 0)?;
        let queue = self.new_waiters.get_mut(&key)?;
        let sender = queue.pop_front();
        if queue.is_empty() {
            self.new_waiters.remove(&key);
        }
        sender.map(|(_, sender)| (key, sender))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.lock().release(&self.key);
            slots.grant_free_slots();
        }
    }
}
