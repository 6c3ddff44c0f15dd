//! Separate connection limits for authenticated and unauthenticated clients. The latter cannot use up the
//! capacity of the former.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Connections of a server.
pub(crate) struct ConnectionLimits {
    permits: Arc<Semaphore>,
    max_unauthenticated: usize,
    unauthenticated: Mutex<Unauthenticated>,
}

#[derive(Default)]
struct Unauthenticated {
    /// Unauthenticated connections, oldest first.
    connections: BTreeMap<u64, Arc<Notify>>,
    next: u64,
}

/// One connection. It is unregistered when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct ConnectionHandle(Arc<Connection>);

struct Connection {
    limits: Arc<ConnectionLimits>,
    number: u64,
    evict: Arc<Notify>,
    permit: OnceLock<OwnedSemaphorePermit>,
}

impl ConnectionLimits {
    /// Creates limits for this many authenticated and as many unauthenticated connections.
    pub(crate) fn new(max_connections: usize) -> Arc<ConnectionLimits> {
        let permits = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        let max_unauthenticated = max_connections;
        Arc::new(ConnectionLimits { permits, max_unauthenticated, unauthenticated: Mutex::default() })
    }

    /// Registers a new connection.
    pub(crate) fn register(self: &Arc<Self>) -> ConnectionHandle {
        let evict = Arc::new(Notify::new());
        let mut unauthenticated = self.unauthenticated();
        let number = unauthenticated.next;
        unauthenticated.next += 1;
        if unauthenticated.connections.len() >= self.max_unauthenticated
            && let Some((_, oldest)) = unauthenticated.connections.pop_first()
        {
            oldest.notify_one();
        }
        unauthenticated.connections.insert(number, evict.clone());
        drop(unauthenticated);
        ConnectionHandle(Arc::new(Connection {
            limits: self.clone(),
            number,
            evict,
            permit: OnceLock::new(),
        }))
    }

    fn unauthenticated(&self) -> MutexGuard<'_, Unauthenticated> {
        self.unauthenticated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionHandle {
    /// Marks the connection as authenticated. Returns false if the limit is reached.
    pub(crate) fn authenticate(&self) -> bool {
        let connection = &self.0;
        if connection.permit.get().is_some() {
            return true;
        }
        let Ok(permit) = connection.limits.permits.clone().try_acquire_owned() else { return false };
        // Requests of a connection are handled one at a time.
        let _ = connection.permit.set(permit);
        connection.limits.unauthenticated().connections.remove(&connection.number);
        true
    }

    /// Waits until the connection is replaced by another.
    pub(crate) async fn evicted(&self) {
        self.0.evict.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.limits.unauthenticated().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const MAX_CONNECTIONS: usize = 256;

    fn is_evicted(connection_handle: &ConnectionHandle) -> bool {
        connection_handle.evicted().now_or_never().is_some()
    }

    #[test]
    fn oldest_unauthenticated_connection_is_evicted() {
        let limits = ConnectionLimits::new(MAX_CONNECTIONS);
        let first = limits.register();
        let authenticated = limits.register();
        assert!(authenticated.authenticate());
        let others: Vec<ConnectionHandle> = (0..MAX_CONNECTIONS).map(|_| limits.register()).collect();
        assert!(is_evicted(&first) && !is_evicted(&authenticated) && !others.iter().any(is_evicted));
        drop(others);
        assert!(limits.unauthenticated().connections.is_empty());
    }

    #[test]
    fn authenticated_connections_are_limited_and_released() {
        let limits = ConnectionLimits::new(MAX_CONNECTIONS);
        let authenticated: Vec<ConnectionHandle> = (0..MAX_CONNECTIONS).map(|_| limits.register()).collect();
        assert!(
            authenticated.iter().all(ConnectionHandle::authenticate)
                && authenticated.iter().all(ConnectionHandle::authenticate)
        );
        let late = limits.register();
        assert!(!late.authenticate());
        drop(authenticated);
        assert!(late.authenticate());
    }
}
