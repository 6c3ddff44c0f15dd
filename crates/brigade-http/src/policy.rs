//! Policy of a server: who may send requests, and how much of everything is accepted.

use std::time::Duration;

use crate::{Cors, Token};

/// Access rules and limits of a server.
///
/// Requests to loopback hosts and from web pages of loopback origins are always accepted. Without further settings, a
/// server accepts 256 connections, bodies of 4 MiB, and headers that are complete within 10 seconds.
#[derive(Debug, Clone)]
pub struct Policy {
    pub(crate) token: Option<Token>,
    pub(crate) hosts: Vec<String>,
    pub(crate) origins: Vec<String>,
    pub(crate) cors: Cors,
    pub(crate) max_connections: usize,
    pub(crate) max_body_bytes: usize,
    pub(crate) header_timeout: Duration,
}

impl Policy {
    /// Creates a policy that requires this token.
    pub fn with_token(token: Token) -> Policy {
        Policy { token: Some(token), ..Policy::without_token() }
    }

    /// Creates a policy without a token, for protocol tests whose clients send none.
    pub fn without_token() -> Policy {
        Policy {
            token: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            cors: Cors::default(),
            max_connections: 256,
            max_body_bytes: 4 * 1024 * 1024,
            header_timeout: Duration::from_secs(10),
        }
    }

    /// Also accepts requests to this host, such as `agents.example` or `agents.example:8443`. Without a port,
    /// any port matches.
    pub fn allow_host(mut self, host: &str) -> Policy {
        self.hosts.push(host.trim().to_ascii_lowercase());
        self
    }

    /// Also accepts requests from web pages of this origin, such as `https://app.example`.
    pub fn allow_origin(mut self, origin: &str) -> Policy {
        self.origins.push(origin.trim().trim_end_matches('/').to_ascii_lowercase());
        self
    }

    /// Sets what accepted web pages may send and read.
    pub fn cors(self, cors: Cors) -> Policy {
        Policy { cors, ..self }
    }

    /// Sets the maximum number of authenticated connections. As many unauthenticated ones are accepted besides; a
    /// further one replaces the oldest of them.
    pub fn max_connections(self, max_connections: usize) -> Policy {
        Policy { max_connections, ..self }
    }

    /// Sets the maximum size of a request body.
    pub fn max_body_bytes(self, max_body_bytes: usize) -> Policy {
        Policy { max_body_bytes, ..self }
    }

    /// Sets the time limit for the headers of a request.
    pub fn header_timeout(self, header_timeout: Duration) -> Policy {
        Policy { header_timeout, ..self }
    }
}
