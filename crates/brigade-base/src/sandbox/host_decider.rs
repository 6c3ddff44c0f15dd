//! Decisions about hosts that no setting allows.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

/// Host to which a command in a sandbox wants to connect, and which neither the settings nor the call allow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HostRequest {
    /// Name in lower case, or a public IP address; an IPv6 address has brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl HostRequest {
    /// Creates a request.
    pub fn new(host: impl Into<String>, port: u16) -> HostRequest {
        HostRequest { host: host.into(), port }
    }
}

impl fmt::Display for HostRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Decides whether a command may connect to a host that no setting allows. The connection waits meanwhile.
///
/// **Contract.** It is called once for each host and port of a command, and its answer holds until the command ends. At
/// most [`MAX_OPEN`](Self::MAX_OPEN) calls of a command are open at the same time. The future is dropped when the command
/// ends; a question that it asked must then be withdrawn. `true` allows this port of this host only.
#[derive(Clone, Default)]
pub struct HostDecider(Option<Arc<Decide>>);

type Decide = dyn Fn(HostRequest) -> BoxFuture<'static, bool> + Send + Sync;

impl HostDecider {
    /// Maximum number of undecided hosts of a command. Further ones are denied.
    pub const MAX_OPEN: usize = 8;

    /// Creates a decider from a function.
    pub fn new(
        decide: impl Fn(HostRequest) -> BoxFuture<'static, bool> + Send + Sync + 'static,
    ) -> HostDecider {
        HostDecider(Some(Arc::new(decide)))
    }

    /// Denies all hosts.
    pub fn deny() -> HostDecider {
        HostDecider(None)
    }

    /// Whether hosts can be allowed at all.
    pub fn can_allow(&self) -> bool {
        self.0.is_some()
    }

    /// Decides about one host.
    pub async fn decide(&self, request: HostRequest) -> bool {
        match &self.0 {
            Some(decide) => decide(request).await,
            None => false,
        }
    }
}

impl fmt::Debug for HostDecider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.can_allow() { "HostDecider(..)" } else { "HostDecider::deny()" })
    }
}
