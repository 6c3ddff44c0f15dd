//! Hosts in permission rules: `example.com`, or `*.example.com` for its subdomains.

/// Maximum length of a DNS name.
const MAX_HOST_BYTES: usize = 253;

pub(super) struct HostRule {
    /// Normalised host.
    host: String,
    scope: HostScope,
}

/// Hosts that a pattern matches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HostScope {
    Exact,
    Below,
}

impl HostRule {
    /// Parses a pattern, or describes the problem with it.
    pub(super) fn parse(pattern: &str) -> Result<Self, &'static str> {
        let (host, scope) = match pattern.strip_prefix("*.") {
            Some(rest) => (rest, HostScope::Below),
            None => (pattern, HostScope::Exact),
        };
        let host = fold(host);
        if pattern.contains(['/', '@', '?', '#']) {
            return Err("use only the host, without scheme, path or user name");
        }
        if !host.is_ascii() {
            return Err("write the host in its ASCII form, which starts with `xn--`");
        }
        let address = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .is_some_and(|inside| scope == HostScope::Exact && inside.parse::<std::net::Ipv6Addr>().is_ok());
        let label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if !address && (host.len() > MAX_HOST_BYTES || !host.split('.').all(label)) {
            return Err("`*.` is allowed only at the start, and a port is not allowed");
        }
        Ok(HostRule { host, scope })
    }

    /// Whether the pattern matches no subdomains.
    pub(super) fn is_exact(&self) -> bool {
        self.scope == HostScope::Exact
    }

    /// Whether an `allow` rule covers the host.
    pub(super) fn allows(&self, target: &NormalizedHost) -> bool {
        match self.scope {
            HostScope::Exact => target.0 == self.host,
            HostScope::Below => {
                target.0.strip_suffix(&self.host).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }

    /// Whether a `deny` or `ask` rule covers the host. A rule about all subdomains covers the domain itself too.
    pub(super) fn binds(&self, target: &NormalizedHost) -> bool {
        self.allows(target) || target.0 == self.host
    }
}

/// Host, prepared to be compared with many patterns.
pub(super) struct NormalizedHost(String);

impl NormalizedHost {
    pub(super) fn new(host: &str) -> Self {
        NormalizedHost(fold(host))
    }
}

/// Normalises a host: lower case, and without a trailing dot, which means the same host.
fn fold(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}
