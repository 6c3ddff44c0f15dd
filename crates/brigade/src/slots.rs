//! How many sessions of a tree are active at once.
//!
//! A session holds a slot only while it is active. One that waits for its children gives its slot back and asks again
//! when it goes on; those that go on come before those that begin, so that loans are given back soon.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use brigade_core::Face;
use tokio::sync::oneshot;

/// The slots of a tree.
#[derive(Clone)]
pub(crate) struct Slots {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    tree: Count,
    faces: BTreeMap<Face, Count>,
    agents: BTreeMap<Arc<str>, Count>,
    /// Those that wait to begin, with the number of their ticket.
    beginning: BTreeMap<Lane, VecDeque<(u64, oneshot::Sender<Slot>)>>,
    tickets: u64,
    returning: VecDeque<(Lane, oneshot::Sender<Slot>)>,
}

struct Count {
    cap: usize,
    active: usize,
}

impl Count {
    fn new(cap: usize) -> Count {
        Count { cap: cap.max(1), active: 0 }
    }

    fn free(&self) -> usize {
        self.cap.saturating_sub(self.active)
    }
}

/// What a session counts for: its face, and its agent where that has a limit of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lane {
    pub(crate) face: Face,
    pub(crate) agent: Option<(Arc<str>, u32)>,
}

/// The right to be active, given back when dropped.
pub(crate) struct Slot {
    lane: Lane,
    slots: Option<Slots>,
}

impl Slot {
    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }
}

impl Slots {
    pub(crate) fn new(cap: usize, faces: impl IntoIterator<Item = (Face, usize)>) -> Slots {
        let faces = faces.into_iter().map(|(face, cap): (Face, usize)| (face, Count::new(cap))).collect();
        Slots {
            inner: Arc::new(Mutex::new(Inner {
                tree: Count::new(cap),
                faces,
                agents: BTreeMap::new(),
                beginning: BTreeMap::new(),
                tickets: 0,
                returning: VecDeque::new(),
            })),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, lane: Lane) -> Slot {
        Slot { lane, slots: Some(self.clone()) }
    }

    /// A slot for a session that begins, if one is free and nobody waits for it.
    pub(crate) fn try_begin(&self, lane: &Lane) -> Option<Slot> {
        let mut inner = self.lock();
        let waited_for = !inner.returning.is_empty() || inner.beginning.contains_key(lane);
        if waited_for || inner.free(lane) == 0 {
            return None;
        }
        inner.take(lane);
        drop(inner);
        Some(self.slot(lane.clone()))
    }

    /// How many sessions of this lane could begin now.
    pub(crate) fn free(&self, lane: &Lane) -> usize {
        self.lock().free(lane)
    }

    /// Asks for a slot for a session that begins.
    pub(crate) fn begin(&self, lane: &Lane) -> oneshot::Receiver<Slot> {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.lock();
        inner.tickets += 1;
        let ticket = inner.tickets;
        inner.beginning.entry(lane.clone()).or_default().push_back((ticket, sender));
        drop(inner);
        self.hand_out();
        receiver
    }

    /// Asks for a slot for a session that goes on.
    pub(crate) fn go_on(&self, lane: &Lane) -> oneshot::Receiver<Slot> {
        let (sender, receiver) = oneshot::channel();
        self.lock().returning.push_back((lane.clone(), sender));
        self.hand_out();
        receiver
    }

    /// Gives free slots to those that wait, one at a time and outside the lock: a receiver that is gone drops its
    /// slot, which comes back here.
    fn hand_out(&self) {
        loop {
            let mut inner = self.lock();
            let Some((lane, sender)) = inner.next_waiting() else { return };
            inner.take(&lane);
            drop(inner);
            if let Err(mut slot) = sender.send(self.slot(lane)) {
                slot.slots = None;
                self.lock().give_back(&slot.lane);
            }
        }
    }
}

impl Inner {
    /// The counts that a session of this lane is part of.
    fn counts(&mut self, lane: &Lane) -> impl Iterator<Item = &mut Count> {
        let face = self.faces.get_mut(&lane.face);
        let agent = lane.agent.as_ref().map(|(agent, cap)| {
            self.agents.entry(agent.clone()).or_insert_with(|| Count::new(*cap as usize))
        });
        [Some(&mut self.tree), face, agent].into_iter().flatten()
    }

    fn free(&mut self, lane: &Lane) -> usize {
        self.counts(lane).map(|count| count.free()).min().unwrap_or(0)
    }

    fn take(&mut self, lane: &Lane) {
        self.counts(lane).for_each(|count| count.active += 1);
    }

    fn give_back(&mut self, lane: &Lane) {
        self.counts(lane).for_each(|count| count.active = count.active.saturating_sub(1));
    }

    fn next_waiting(&mut self) -> Option<(Lane, oneshot::Sender<Slot>)> {
        let returning = (0..self.returning.len()).find(|&at| {
            let lane = self.returning[at].0.clone();
            self.free(&lane) > 0
        });
        if let Some(at) = returning {
            return self.returning.remove(at);
        }
        // Whoever asked first comes first, whatever lane it is in.
        let first = |(lane, queue): (&Lane, &VecDeque<(u64, _)>)| Some((queue.front()?.0, lane.clone()));
        let mut lanes: Vec<(u64, Lane)> = self.beginning.iter().filter_map(first).collect();
        lanes.sort();
        let lane = lanes.into_iter().map(|(_, lane)| lane).find(|lane| self.free(lane) > 0)?;
        let queue = self.beginning.get_mut(&lane)?;
        let sender = queue.pop_front();
        if queue.is_empty() {
            self.beginning.remove(&lane);
        }
        sender.map(|(_, sender)| (lane, sender))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.lock().give_back(&self.lane);
            slots.hand_out();
        }
    }
}
