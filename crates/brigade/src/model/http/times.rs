//! How long the parts of an exchange may take.

use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(10);
/// Models that think first, or have to be loaded, may say nothing for minutes. A child with the usual time limit has room
/// for a second attempt after this.
const FIRST_BYTE: Duration = Duration::from_secs(240);
const IDLE: Duration = Duration::from_secs(120);
const TOTAL: Duration = Duration::from_secs(30 * 60);
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// Longer times mean the same, and clocks do not reach so far.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long a provider may take. What is left out has a default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
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
pub(super) struct Limits {
    pub(super) connect: Duration,
    pub(super) first_byte: Duration,
    pub(super) idle: Duration,
    pub(super) total: Duration,
    pub(super) longest_wait: Duration,
}

impl Times {
    pub(super) fn resolve(self) -> Limits {
        let limit = |given: Option<Duration>, default| given.unwrap_or(default).min(FOREVER);
        Limits {
            connect: limit(self.connect, CONNECT),
            first_byte: limit(self.first_byte, FIRST_BYTE),
            idle: limit(self.idle, IDLE),
            total: limit(self.total, TOTAL),
            longest_wait: limit(self.longest_wait, LONGEST_WAIT),
        }
    }
}
