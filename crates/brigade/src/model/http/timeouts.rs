//! How long the parts of an exchange may take.

use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Models that think first, or have to be loaded, may say nothing for minutes. A child with the usual time limit has room
/// for a second attempt after this.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(240);
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// Longer times mean the same, and clocks do not reach so far.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a provider may take. What is left out has a default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection: 10 s.
    pub connect: Option<Duration>,
    /// From the request to the head of the reply, and from there to its first byte: 4 minutes.
    pub first_byte: Option<Duration>,
    /// Without a single byte in the middle of a reply: 2 minutes.
    pub idle: Option<Duration>,
    /// For a whole reply: 30 minutes.
    pub total: Option<Duration>,
    /// How long a provider may ask to wait before the request is given up: 2 minutes.
    pub longest_wait: Option<Duration>,
}

/// The times, with nothing left out.
#[derive(Debug, Clone)]
pub(super) struct ResolvedTimeouts {
    pub(super) connect: Duration,
    pub(super) first_byte: Duration,
    pub(super) idle: Duration,
    pub(super) total: Duration,
    pub(super) longest_wait: Duration,
}

impl Timeouts {
    pub(super) fn resolve(self) -> ResolvedTimeouts {
        let limit = |given: Option<Duration>, default| given.unwrap_or(default).min(MAX_TIMEOUT);
        ResolvedTimeouts {
            connect: limit(self.connect, CONNECT_TIMEOUT),
            first_byte: limit(self.first_byte, FIRST_BYTE_TIMEOUT),
            idle: limit(self.idle, IDLE_TIMEOUT),
            total: limit(self.total, TOTAL_TIMEOUT),
            longest_wait: limit(self.longest_wait, LONGEST_WAIT),
        }
    }
}
