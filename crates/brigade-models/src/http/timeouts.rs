//! Timeouts of an exchange with a provider.

use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Models that reason first, or have to be loaded, may be silent for minutes. A child with the default time
/// limit still has time for a second attempt after this.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(240);
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// Longer times are capped, because clocks cannot represent them.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Timeouts of a provider. Absent values have defaults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Time to establish a connection. Default: 10 s.
    pub connect: Option<Duration>,
    /// Time from the request to the response head, and from there to the first byte of the body. Default: 4
    /// minutes.
    pub first_byte: Option<Duration>,
    /// Time without a single byte in the middle of a reply. Default: 2 minutes.
    pub idle: Option<Duration>,
    /// Time for a whole reply. Default: 30 minutes.
    pub total: Option<Duration>,
    /// The longest wait that a provider may ask for before the request fails. Default: 2 minutes.
    pub longest_wait: Option<Duration>,
}

/// Timeouts with all defaults filled in.
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
