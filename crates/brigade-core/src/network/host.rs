//! Hosts and ports, parsed strictly: a text that two programs could read as different hosts is refused.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of a DNS name.
const MAX_NAME_BYTES: usize = 253;
/// Maximum length of one label of a DNS name.
const MAX_LABEL_BYTES: usize = 63;

/// DNS name or IP address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// Name in lower case, without a dot at its end.
    Name(String),
    /// Address.
    Address(IpAddr),
}

/// Host and port of a connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

/// Reason why a text is not a host. It continues a sentence after a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The text is empty.
    #[error("the host is missing")]
    Empty,
    /// The name or one of its labels is too long.
    #[error("the name is too long")]
    TooLong,
    /// A character is not allowed in a name.
    #[error("a host consists of letters, digits, `-` and `.`")]
    Character,
    /// A label is empty, or starts or ends with a hyphen.
    #[error("a part of the name is empty, or starts or ends with `-`")]
    Label,
    /// Not the usual form of an IP address.
    #[error("an IPv4 address must consist of four decimal numbers, and an IPv6 address needs brackets")]
    Address,
    /// The port is missing.
    #[error("the port is missing")]
    MissingPort,
    /// The port is not a number from 1 to 65535.
    #[error("the port must be a number from 1 to 65535")]
    Port,
}

impl Host {
    /// Parses a name, an IPv4 address, or an IPv6 address in brackets.
    ///
    /// Names consist of letters, digits and hyphens; other alphabets need their ASCII form (`xn--`). A dot at the end of a
    /// name is dropped. Other forms of IPv4 addresses, such as `127.1` or `0x7f.0.0.1`, are refused.
    pub fn parse(text: &str) -> Result<Host, HostError> {
        if let Some(rest) = text.strip_prefix('[') {
            let address = rest.strip_suffix(']').ok_or(HostError::Address)?;
            return address
                .parse::<Ipv6Addr>()
                .map(|address| Host::Address(address.into()))
                .map_err(|_| HostError::Address);
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(HostError::Empty);
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(HostError::TooLong);
        }
        if name.contains(':') {
            return Err(HostError::Address);
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')) {
            return Err(HostError::Character);
        }
        for label in name.split('.') {
            if label.is_empty() || label.starts_with('-') || label.ends_with('-') {
                return Err(HostError::Label);
            }
            if label.len() > MAX_LABEL_BYTES {
                return Err(HostError::TooLong);
            }
        }
        if name.rsplit('.').next().is_some_and(is_number) {
            // The address has no dot at its end.
            let address = text.parse::<Ipv4Addr>().map_err(|_| HostError::Address)?;
            return Ok(Host::Address(address.into()));
        }
        Ok(Host::Name(name.to_ascii_lowercase()))
    }
}

/// Whether a label is a number to some program. A host that ends in one is an IPv4 address.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x").or(label.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Whether programs take the name for their own machine without asking a name server.
pub(super) fn is_local(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl Target {
    /// Parses `host:port`. A host alone gets the default port.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Target, HostError> {
        let (host, port) = split_port(text);
        let host = Host::parse(host)?;
        let port = match port {
            Some(port) => parse_port(port)?,
            None => default_port.ok_or(HostError::MissingPort)?,
        };
        Ok(Target { host, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Splits off what follows the last colon outside of brackets.
pub(super) fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    }
}

/// Parses a port without a sign or leading zeros.
pub(super) fn parse_port(text: &str) -> Result<u16, HostError> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain).ok_or(HostError::Port)
}
