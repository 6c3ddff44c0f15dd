//! Entries of a list of hosts.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::host::{Host, HostError, Target, is_local, parse_port, split_port};

/// Ports of an entry without one: HTTP and HTTPS.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// Entry of a list of hosts: `example.com`, `*.example.com` for its subdomains, or an IP address; each with an optional
/// port. Without a port, the ports 80 and 443 are meant. An address needs a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    host: Host,
    scope: Scope,
    port: Option<u16>,
}

/// Hosts that a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Scope {
    Exact,
    /// Subdomains, but not the domain itself.
    Below,
}

/// Reason why a text is not an entry of a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    /// The host or the port is invalid.
    #[error(
        "`{pattern}` is not a host: {cause}. Use a name such as `example.com`, `*.example.com` or `example.com:8443`"
    )]
    Host {
        /// The text, shortened, without control characters.
        pattern: String,
        /// Problem with it.
        cause: HostError,
    },
    /// The text is a URL.
    #[error(
        "`{0}` is not a host: it contains `/` or `@`. Use only the host, without scheme, user name or path"
    )]
    Url(String),
    /// The text would match almost everything.
    #[error(
        "`{0}` matches too many hosts. Use `*.` with a domain of at least two parts, such as `*.example.com`"
    )]
    TooWide(String),
    /// An address has no port.
    #[error("`{0}` is an IP address without a port. Add the port, such as `{0}:443`")]
    AddressWithoutPort(String),
    /// The name means the machine itself.
    #[error("`{0}` is the sandbox itself. To allow a server of this machine, use `127.0.0.1` and its port")]
    Local(String),
}

impl HostPattern {
    /// Parses an entry.
    pub fn parse(text: &str) -> Result<HostPattern, HostPatternError> {
        let shown = || text.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
        let invalid = |cause| HostPatternError::Host { pattern: shown(), cause };
        if text.contains(['/', '@']) {
            return Err(HostPatternError::Url(shown()));
        }
        let (host, port) = split_port(text);
        let (name, scope) = match host.strip_prefix("*.") {
            Some(rest) => (rest, Scope::Below),
            None => (host, Scope::Exact),
        };
        if host == "*" {
            return Err(HostPatternError::TooWide(shown()));
        }
        let host = Host::parse(name).map_err(invalid)?;
        let port = port.map(parse_port).transpose().map_err(invalid)?;
        match (&host, scope) {
            (Host::Address(_), Scope::Below) => Err(invalid(HostError::Character)),
            (Host::Address(_), Scope::Exact) if port.is_none() => {
                Err(HostPatternError::AddressWithoutPort(host.to_string()))
            }
            (Host::Name(name), _) if is_local(name) => Err(HostPatternError::Local(shown())),
            (Host::Name(name), Scope::Below) if !name.contains('.') => {
                Err(HostPatternError::TooWide(shown()))
            }
            _ => Ok(HostPattern { host, scope, port }),
        }
    }

    /// Creates the entry for one port of one host.
    pub fn exactly(target: Target) -> HostPattern {
        HostPattern { host: target.host, scope: Scope::Exact, port: Some(target.port) }
    }

    /// The host, or the domain whose subdomains are meant.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// The port, if the entry has one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether the entry is about subdomains.
    pub fn is_wildcard(&self) -> bool {
        self.scope == Scope::Below
    }

    /// Whether the entry contains this target.
    pub fn matches(&self, target: &Target) -> bool {
        let has_port = match self.port {
            Some(port) => port == target.port,
            None => DEFAULT_PORTS.contains(&target.port),
        };
        has_port
            && match (self.scope, &self.host, &target.host) {
                (Scope::Exact, host, target) => host == target,
                (Scope::Below, Host::Name(domain), Host::Name(name)) => name
                    .strip_suffix(domain.as_str())
                    .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
                (Scope::Below, ..) => false,
            }
    }

    /// Whether the entry is this address with this port.
    pub(super) fn names(&self, address: SocketAddr) -> bool {
        self.host == Host::Address(address.ip()) && self.port == Some(address.port())
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.is_wildcard() { "*." } else { "" };
        write!(f, "{below}{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<HostPattern, HostPatternError> {
        HostPattern::parse(text)
    }
}

impl TryFrom<String> for HostPattern {
    type Error = HostPatternError;

    fn try_from(text: String) -> Result<HostPattern, HostPatternError> {
        HostPattern::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> String {
        pattern.to_string()
    }
}
