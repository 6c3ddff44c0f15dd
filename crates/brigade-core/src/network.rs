//! Hosts that commands in a sandbox may connect to. Everything here is pure: names are resolved elsewhere, and every
//! address is checked here afterwards.

mod address_class;
mod host;
mod pattern;
mod target_text;

use std::fmt;
use std::net::SocketAddr;

pub use address_class::{AddressClass, address_class};
pub use host::{Host, HostError, Target};
pub use pattern::{HostPattern, HostPatternError};

/// Hosts that can be connected to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostList(Vec<HostPattern>);

/// Result of looking up a target in a [`HostList`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// An entry without a port matches.
    Listed,
    /// An entry with this port matches.
    ListedWithPort,
    /// No entry matches, but one may be added.
    Unlisted,
    /// No entry matches, and the target is not public. Only an entry with the exact address and port allows it. The
    /// description continues the sentence "The host is".
    Blocked(&'static str),
}

/// Address that a name must not lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockedAddress {
    /// The address.
    pub address: SocketAddr,
    /// Its network; it continues the sentence "The address is".
    pub place: &'static str,
}

impl fmt::Display for BlockedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}", self.address.ip(), self.place)
    }
}

/// Description of loopback addresses.
const THIS_MACHINE: &str = "an address of this machine";

impl HostList {
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = &HostPattern> {
        self.0.iter()
    }

    /// Adds entries.
    pub fn extend(&mut self, patterns: impl IntoIterator<Item = HostPattern>) {
        self.0.extend(patterns);
    }

    /// Looks up a target.
    pub fn listing(&self, target: &Target) -> Listing {
        let mut matching = self.0.iter().filter(|pattern| pattern.matches(target)).peekable();
        if matching.peek().is_some() {
            let has_port = matching.any(|pattern| pattern.port().is_some());
            return if has_port { Listing::ListedWithPort } else { Listing::Listed };
        }
        match &target.host {
            Host::Address(address) => match address_class(*address) {
                AddressClass::Public => Listing::Unlisted,
                AddressClass::Loopback => Listing::Blocked(THIS_MACHINE),
                AddressClass::Blocked(place) => Listing::Blocked(place),
            },
            Host::Name(name) if host::is_local(name) => Listing::Blocked(THIS_MACHINE),
            Host::Name(_) => Listing::Unlisted,
        }
    }

    /// Checks an address to which a name resolved. It must be public, or an entry must name it with its port.
    pub fn check_address(&self, address: SocketAddr) -> Result<(), BlockedAddress> {
        let place = match address_class(address.ip()) {
            AddressClass::Public => return Ok(()),
            AddressClass::Loopback => THIS_MACHINE,
            AddressClass::Blocked(place) => place,
        };
        match self.0.iter().any(|pattern| pattern.names(address)) {
            true => Ok(()),
            false => Err(BlockedAddress { address, place }),
        }
    }

    /// Whether an entry names a port of this address.
    pub fn names_ip(&self, address: std::net::IpAddr) -> bool {
        self.0.iter().any(|pattern| *pattern.host() == Host::Address(address) && !pattern.is_wildcard())
    }
}

impl FromIterator<HostPattern> for HostList {
    fn from_iter<T: IntoIterator<Item = HostPattern>>(patterns: T) -> HostList {
        HostList(patterns.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
