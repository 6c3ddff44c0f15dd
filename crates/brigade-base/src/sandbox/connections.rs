//! Record of the connections that a proxy allowed and denied.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_core::network::{BlockedAddress, Target};

/// Maximum number of recorded connections. Connections to the same target with the same outcome count as one.
const MAX_RECORDS: usize = 256;
/// Maximum number of messages about denied connections.
const MAX_MESSAGES: usize = 10;

/// Connections of the commands of a [`CommandSandbox`](super::CommandSandbox) through its proxy.
#[derive(Clone, Default)]
pub struct ConnectionLog(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    records: Vec<ConnectionRecord>,
    unrecorded: u64,
    is_requested: bool,
}

/// Connections to the same target with the same outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// The host and the port. `None` if the request did not name them properly.
    pub target: Option<Target>,
    /// Outcome of the connections.
    pub outcome: ConnectionOutcome,
    /// Number of connections.
    pub count: u64,
    /// Bytes that the command sent over the finished ones.
    pub sent_bytes: u64,
    /// Bytes that the command received over the finished ones.
    pub received_bytes: u64,
}

/// Outcome of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionOutcome {
    /// It was made.
    Allowed,
    /// It was allowed, but the host could not be reached.
    Failed,
    /// It was denied.
    Denied(Denial),
}

/// Reason why a connection was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// Neither the settings nor the call allow the host, and no user is available.
    NotAllowed,
    /// The host was asked about and not approved.
    NotApproved,
    /// The target is not public; the text continues "the host is".
    NotPublic(&'static str),
    /// The name leads to an address that is not public.
    BlockedAddress(BlockedAddress),
    /// The connection is not TLS, although its port requires it.
    NotTls,
    /// The server name of the TLS handshake is missing, unreadable or not the host.
    ServerName,
    /// The request is invalid.
    Request(&'static str),
    /// Too many hosts are undecided.
    TooManyQuestions,
}

impl ConnectionLog {
    /// All connections so far, in the order of their first occurrence.
    pub fn records(&self) -> Vec<ConnectionRecord> {
        self.lock().records.clone()
    }

    /// Messages about the denied connections, each with the cause and a remedy.
    pub fn denials(&self) -> Vec<String> {
        let log = self.lock();
        let denied = log.records.iter().filter_map(|record| match &record.outcome {
            ConnectionOutcome::Denied(denial) => Some(denial.message(record.target.as_ref())),
            ConnectionOutcome::Allowed | ConnectionOutcome::Failed => None,
        });
        let mut messages: Vec<String> = denied.collect();
        let omitted = messages.len().saturating_sub(MAX_MESSAGES);
        messages.truncate(MAX_MESSAGES);
        if omitted > 0 || log.unrecorded > 0 {
            messages.push("More connections were denied; only the first ones are listed.".to_owned());
        }
        messages
    }

    /// Whether a command was to get a proxy.
    pub fn is_requested(&self) -> bool {
        self.lock().is_requested
    }

    /// Notes that a command is to get a proxy.
    pub(super) fn set_requested(&self) {
        self.lock().is_requested = true;
    }

    /// Records a connection without traffic.
    pub(super) fn record(&self, target: Option<&Target>, outcome: ConnectionOutcome) {
        let shown = target.map(ToString::to_string).unwrap_or_default();
        tracing::debug!(target: "brigade::sandbox", to = shown, ?outcome, "connection refused");
        self.add(ConnectionRecord {
            target: target.cloned(),
            outcome,
            count: 1,
            sent_bytes: 0,
            received_bytes: 0,
        });
    }

    /// Starts to record an allowed connection.
    pub(super) fn open(&self, target: &Target) -> OpenConnection {
        tracing::debug!(target: "brigade::sandbox", to = target.to_string(), "connection opened");
        let traffic = Traffic::default();
        OpenConnection { log: self.clone(), target: target.clone(), traffic, denial: None }
    }

    fn add(&self, new: ConnectionRecord) {
        let mut log = self.lock();
        let Log { records, unrecorded, .. } = &mut *log;
        let is_same =
            |record: &ConnectionRecord| record.target == new.target && record.outcome == new.outcome;
        let same = records.iter().position(is_same);
        let is_full = records.len() >= MAX_RECORDS;
        match same.and_then(|index| records.get_mut(index)) {
            Some(record) => {
                record.count = record.count.saturating_add(new.count);
                record.sent_bytes = record.sent_bytes.saturating_add(new.sent_bytes);
                record.received_bytes = record.received_bytes.saturating_add(new.received_bytes);
            }
            None if !is_full => records.push(new),
            None if matches!(new.outcome, ConnectionOutcome::Denied(_)) => {
                *unrecorded = unrecorded.saturating_add(1);
            }
            None => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConnectionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.records()).finish()
    }
}

/// Bytes that were transferred so far.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

impl Traffic {
    pub(super) fn total(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).wrapping_add(self.received.load(Ordering::Relaxed))
    }
}

/// A connection that is recorded when it ends, also if its task is aborted.
pub(super) struct OpenConnection {
    log: ConnectionLog,
    target: Target,
    pub(super) traffic: Traffic,
    denial: Option<Denial>,
}

impl OpenConnection {
    /// Ends it, because its content is not allowed.
    pub(super) fn deny(mut self, denial: Denial) {
        self.denial = Some(denial);
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let outcome = match self.denial.take() {
            Some(denial) => ConnectionOutcome::Denied(denial),
            None => ConnectionOutcome::Allowed,
        };
        let sent_bytes = self.traffic.sent.load(Ordering::Relaxed);
        let received_bytes = self.traffic.received.load(Ordering::Relaxed);
        let to = self.target.to_string();
        tracing::debug!(target: "brigade::sandbox", to, ?outcome, sent_bytes, received_bytes, "connection closed");
        let target = Some(self.target.clone());
        self.log.add(ConnectionRecord { target, outcome, count: 1, sent_bytes, received_bytes });
    }
}

impl Denial {
    /// The message about a denied connection.
    pub(super) fn message(&self, target: Option<&Target>) -> String {
        let to = target.map_or_else(|| "a host".to_owned(), |target| format!("`{target}`"));
        let cause = match self {
            Denial::NotAllowed => "the sandbox does not allow this host. \
                Request it with `needs.hosts`, or ask the user to add it to the setting `sandbox.network`."
                .to_owned(),
            Denial::NotApproved => "the connection was not approved. Continue without this host.".to_owned(),
            Denial::NotPublic(place) => format!(
                "it is {place}. Only an exact IP address and port can be allowed: request them with `needs.hosts`, \
                 or ask the user to add them to the setting `sandbox.network`."
            ),
            Denial::BlockedAddress(blocked) => format!(
                "its address {blocked}. Request `{}` with `needs.hosts` too, \
                 or ask the user to add it to the setting `sandbox.network`.",
                blocked.address
            ),
            Denial::NotTls => "the sandbox allows only TLS on this port. \
                Use TLS, or request the host and a port other than 443 with `needs.hosts`."
                .to_owned(),
            Denial::ServerName => "the TLS handshake does not name this host. \
                Use a client that sends the host as TLS server name, without Encrypted Client Hello."
                .to_owned(),
            Denial::Request(problem) => (*problem).to_owned(),
            Denial::TooManyQuestions => "too many approval requests for other hosts are open. \
                Request the hosts with `needs.hosts`."
                .to_owned(),
        };
        format!("cannot connect to {to}: {cause}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(number: usize) -> Target {
        Target::parse(&format!("h{number}.example"), Some(443)).unwrap()
    }

    #[test]
    fn log_is_bounded_and_names_the_first_denied_hosts() {
        let log = ConnectionLog::default();
        for number in (0..MAX_RECORDS + 50).chain(0..5) {
            log.record(Some(&target(number)), ConnectionOutcome::Denied(Denial::NotAllowed));
        }
        let records = log.records();
        assert_eq!((records.len(), records[0].count), (MAX_RECORDS, 2));
        let denials = log.denials();
        assert_eq!(denials.len(), MAX_MESSAGES + 1);
        assert_eq!(
            denials[0],
            "cannot connect to `h0.example:443`: the sandbox does not allow this host. Request it with \
             `needs.hosts`, or ask the user to add it to the setting `sandbox.network`."
        );
        assert!(denials[MAX_MESSAGES].starts_with("More connections were denied"));
    }

    #[test]
    fn connections_are_recorded_when_they_end() {
        let log = ConnectionLog::default();
        let open = log.open(&target(1));
        open.traffic.sent.store(3, Ordering::Relaxed);
        assert!(log.records().is_empty());
        drop(open);
        log.open(&target(1)).deny(Denial::ServerName);
        let records = log.records();
        assert_eq!((&records[0].outcome, records[0].sent_bytes), (&ConnectionOutcome::Allowed, 3));
        assert_eq!(records[1].outcome, ConnectionOutcome::Denied(Denial::ServerName));
        assert_eq!(log.denials().len(), 1);
    }
}
