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
    cap: usize,
    active: usize,
    faces: BTreeMap<Face, Lane>,
    returning: VecDeque<(Face, oneshot::Sender<Slot>)>,
}

struct Lane {
    cap: usize,
    active: usize,
    beginning: VecDeque<oneshot::Sender<Slot>>,
}

/// The right to be active, given back when dropped.
pub(crate) struct Slot {
    face: Face,
    slots: Option<Slots>,
}

impl Slots {
    pub(crate) fn new(cap: usize, faces: impl IntoIterator<Item = (Face, usize)>) -> Slots {
        let lane = |cap| Lane { cap, active: 0, beginning: VecDeque::new() };
        let faces = faces.into_iter().map(|(face, cap): (Face, usize)| (face, lane(cap.max(1)))).collect();
        Slots {
            inner: Arc::new(Mutex::new(Inner {
                cap: cap.max(1),
                active: 0,
                faces,
                returning: VecDeque::new(),
            })),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, face: Face) -> Slot {
        Slot { face, slots: Some(self.clone()) }
    }

    /// A slot for a session that begins, if one is free and nobody waits for it.
    pub(crate) fn try_begin(&self, face: Face) -> Option<Slot> {
        let mut inner = self.lock();
        let waited_for =
            !inner.returning.is_empty() || inner.lane(face).is_some_and(|lane| !lane.beginning.is_empty());
        if waited_for || inner.free(face) == 0 {
            return None;
        }
        inner.take(face);
        drop(inner);
        Some(self.slot(face))
    }

    /// How many sessions of this face could begin now.
    pub(crate) fn free(&self, face: Face) -> usize {
        self.lock().free(face)
    }

    /// Asks for a slot for a session that begins.
    pub(crate) fn begin(&self, face: Face) -> oneshot::Receiver<Slot> {
        let (sender, receiver) = oneshot::channel();
        if let Some(lane) = self.lock().lane(face) {
            lane.beginning.push_back(sender);
        }
        self.hand_out();
        receiver
    }

    /// Asks for a slot for a session that goes on.
    pub(crate) fn go_on(&self, face: Face) -> oneshot::Receiver<Slot> {
        let (sender, receiver) = oneshot::channel();
        self.lock().returning.push_back((face, sender));
        self.hand_out();
        receiver
    }

    /// Gives free slots to those that wait, one at a time and outside the lock: a receiver that is gone drops its
    /// slot, which comes back here.
    fn hand_out(&self) {
        loop {
            let mut inner = self.lock();
            let Some((face, sender)) = inner.next_waiting() else { return };
            inner.take(face);
            drop(inner);
            if let Err(mut slot) = sender.send(self.slot(face)) {
                slot.slots = None;
                self.lock().give_back(face);
            }
        }
    }
}

impl Inner {
    fn lane(&mut self, face: Face) -> Option<&mut Lane> {
        if face == Face::Run {
            return None;
        }
        Some(self.faces.entry(face).or_insert_with(|| Lane {
            cap: usize::MAX,
            active: 0,
            beginning: VecDeque::new(),
        }))
    }

    fn free(&mut self, face: Face) -> usize {
        let in_tree = self.cap.saturating_sub(self.active);
        self.lane(face).map_or(in_tree, |lane| in_tree.min(lane.cap.saturating_sub(lane.active)))
    }

    fn take(&mut self, face: Face) {
        self.active += 1;
        if let Some(lane) = self.lane(face) {
            lane.active += 1;
        }
    }

    fn give_back(&mut self, face: Face) {
        self.active = self.active.saturating_sub(1);
        if let Some(lane) = self.lane(face) {
            lane.active = lane.active.saturating_sub(1);
        }
    }

    fn next_waiting(&mut self) -> Option<(Face, oneshot::Sender<Slot>)> {
        let returning = (0..self.returning.len()).find(|&at| {
            let face = self.returning[at].0;
            self.free(face) > 0
        });
        if let Some(at) = returning {
            return self.returning.remove(at);
        }
        let faces: Vec<Face> = self.faces.keys().copied().collect();
        for face in faces {
            if self.free(face) > 0
                && let Some(sender) = self.lane(face).and_then(|lane| lane.beginning.pop_front())
            {
                return Some((face, sender));
            }
        }
        None
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.take() {
            slots.lock().give_back(self.face);
            slots.hand_out();
        }
    }
}
