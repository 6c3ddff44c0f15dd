//! Connections by whether they have shown the token. Those that have not do not take the places of those that have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Connections that have shown the token, at once.
const MAX_AUTHENTICATED: usize = 256;

/// Connections that have not shown it, at once. A further one takes the place of the oldest.
const MAX_UNAUTHENTICATED: usize = 256;

/// All connections of a server.
pub(super) struct Visitors {
    places: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Connections that have not shown the token, the oldest first.
    connections: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// One connection. It leaves when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Visitor(Arc<Connection>);

struct Connection {
    all: Arc<Visitors>,
    number: u64,
    leave: Arc<Notify>,
    place: OnceLock<OwnedSemaphorePermit>,
}

impl Visitors {
    pub(super) fn new() -> Arc<Visitors> {
        let places = Arc::new(Semaphore::new(MAX_AUTHENTICATED));
        Arc::new(Visitors { places, waiting: Mutex::default() })
    }

    /// Takes a new connection in.
    pub(super) fn enter(self: &Arc<Self>) -> Visitor {
        let leave = Arc::new(Notify::new());
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        if waiting.connections.len() >= MAX_UNAUTHENTICATED
            && let Some((_, oldest)) = waiting.connections.pop_first()
        {
            oldest.notify_one();
        }
        waiting.connections.insert(number, leave.clone());
        drop(waiting);
        Visitor(Arc::new(Connection { all: self.clone(), number, leave, place: OnceLock::new() }))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visitor {
    /// Takes a place among those that have shown the token. False if there is none.
    pub(super) fn authenticate(&self) -> bool {
        let connection = &self.0;
        if connection.place.get().is_some() {
            return true;
        }
        let Ok(place) = connection.all.places.clone().try_acquire_owned() else { return false };
        // Requests of a connection come one after the other.
        let _ = connection.place.set(place);
        connection.all.waiting().connections.remove(&connection.number);
        true
    }

    /// Waits until the connection has to make room for another.
    pub(super) async fn told_to_leave(&self) {
        self.0.leave.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.waiting().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn has_to_leave(visitor: &Visitor) -> bool {
        visitor.told_to_leave().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_connection_without_the_token_makes_room() {
        let all = Visitors::new();
        let first = all.enter();
        let known = all.enter();
        assert!(known.authenticate());
        let others: Vec<Visitor> = (0..MAX_UNAUTHENTICATED).map(|_| all.enter()).collect();
        assert!(has_to_leave(&first) && !has_to_leave(&known) && !others.iter().any(has_to_leave));
        drop(others);
        assert!(all.waiting().connections.is_empty());
    }

    #[test]
    fn places_of_authenticated_connections_are_bounded_and_given_back() {
        let all = Visitors::new();
        let known: Vec<Visitor> = (0..MAX_AUTHENTICATED).map(|_| all.enter()).collect();
        assert!(known.iter().all(Visitor::authenticate) && known.iter().all(Visitor::authenticate));
        let late = all.enter();
        assert!(!late.authenticate());
        drop(known);
        assert!(late.authenticate());
    }
}
