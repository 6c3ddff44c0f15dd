//! Access checks of requests: the host, the origin and the token.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use url::{Host, Url};

use crate::Policy;

/// Reason why a request was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The host is not one of this server's names.
    #[error("Forbidden: unknown Host header. Allow it with --host NAME.")]
    Host,
    /// A web page from another origin sent it.
    #[error("Forbidden: this Origin is not allowed. Allow it with --origin URL.")]
    Origin,
    /// The token is missing.
    #[error("Unauthorized: missing token. Send `Authorization: Bearer TOKEN`.")]
    NoToken,
    /// The token is wrong.
    #[error("Unauthorized: invalid token")]
    WrongToken,
    /// Too many clients are connected.
    #[error("Too many clients are connected. Try again later.")]
    Full,
}

impl IntoResponse for Rejected {
    fn into_response(self) -> Response {
        let (status, extra) = match self {
            Rejected::Host | Rejected::Origin => (StatusCode::FORBIDDEN, None),
            Rejected::NoToken => {
                (StatusCode::UNAUTHORIZED, Some((header::WWW_AUTHENTICATE, "Bearer realm=\"brigade\"")))
            }
            Rejected::WrongToken => (
                StatusCode::UNAUTHORIZED,
                Some((header::WWW_AUTHENTICATE, "Bearer realm=\"brigade\", error=\"invalid_token\"")),
            ),
            Rejected::Full => (StatusCode::SERVICE_UNAVAILABLE, Some((header::RETRY_AFTER, "60"))),
        };
        let mut response = (status, format!("{self}\n")).into_response();
        if let Some((name, value)) = extra {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

impl Policy {
    /// Checks the host and the origin. Returns the origin if a web page sent the request.
    pub(crate) fn check_source(&self, request: &Request) -> Result<Option<HeaderValue>, Rejected> {
        if !self.allows_host(request) {
            return Err(Rejected::Host);
        }
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) => Ok(None),
            (Some(origin), None) if self.allows_origin(origin) => Ok(Some(origin.clone())),
            _ => Err(Rejected::Origin),
        }
    }

    /// Checks the token.
    pub(crate) fn check_token(&self, headers: &HeaderMap) -> Result<(), Rejected> {
        let Some(token) = &self.token else { return Ok(()) };
        let credentials = headers.get(header::AUTHORIZATION).ok_or(Rejected::NoToken)?;
        let (scheme, credentials) = credentials
            .to_str()
            .ok()
            .and_then(|credentials| credentials.split_once(' '))
            .ok_or(Rejected::NoToken)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Rejected::NoToken);
        }
        if token.matches(credentials.trim()) { Ok(()) } else { Err(Rejected::WrongToken) }
    }

    fn allows_host(&self, request: &Request) -> bool {
        let mut named = request.headers().get_all(header::HOST).iter();
        let (Some(host), None) = (named.next(), named.next()) else { return false };
        let Ok(host) = host.to_str().map(str::to_ascii_lowercase) else { return false };
        // An absolute request target must not contradict the header.
        if request.uri().authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(&host))
        {
            return false;
        }
        let name = without_port(&host);
        is_loopback(name) || self.hosts.iter().any(|known| *known == host || known == name)
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str().map(str::to_ascii_lowercase) else { return false };
        if self.origins.contains(&origin) {
            return true;
        }
        let Ok(url) = Url::parse(&origin) else { return false };
        let is_local = match url.host() {
            Some(Host::Domain(name)) => is_loopback(name),
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        is_local && matches!(url.scheme(), "http" | "https")
    }
}

/// Returns `name` of `name:port`. IPv6 addresses are in brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn is_loopback(name: &str) -> bool {
    let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match in_brackets {
        Some(address) => address.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()),
        None => name == "localhost" || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use crate::Token;

    fn check(policy: &Policy, headers: &[(&str, &str)]) -> Result<Option<HeaderValue>, Rejected> {
        let request =
            headers.iter().fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
        policy.check_source(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn only_loopback_hosts_are_allowed_by_default() {
        let policy = Policy::without_token();
        for allowed in
            ["localhost", "localhost:4748", "127.0.0.1:1", "127.9.9.9", "[::1]:80", "[::1]", "LOCALHOST:1"]
        {
            assert_eq!(check(&policy, &[("host", allowed)]), Ok(None), "{allowed}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
            "localhost@evil.example",
            "::1:80",
        ] {
            assert_eq!(check(&policy, &[("host", other)]), Err(Rejected::Host), "{other}");
        }
        assert_eq!(check(&policy, &[]), Err(Rejected::Host));
        assert_eq!(check(&policy, &[("host", "localhost"), ("host", "evil.example")]), Err(Rejected::Host));
    }

    #[test]
    fn foreign_origins_are_rejected() {
        let policy = Policy::without_token();
        let from = |origin: &str| check(&policy, &[("host", "localhost"), ("origin", origin)]);
        for allowed in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:9"] {
            assert!(from(allowed).is_ok(), "{allowed}");
        }
        for other in [
            "https://evil.example",
            "null",
            "",
            "http://localhost.evil.example",
            "http://localhost@evil.example",
            "file:///x",
            "chrome-extension://localhost",
        ] {
            assert_eq!(from(other), Err(Rejected::Origin), "{other}");
        }
    }

    #[test]
    fn configured_hosts_and_origins_are_allowed() {
        let policy = Policy::without_token()
            .allow_host("agents.example")
            .allow_host("other.example:8443")
            .allow_origin("https://app.example/");
        for allowed in ["agents.example", "agents.example:99", "other.example:8443"] {
            assert!(check(&policy, &[("host", allowed)]).is_ok(), "{allowed}");
        }
        assert_eq!(check(&policy, &[("host", "other.example")]), Err(Rejected::Host));
        assert!(check(&policy, &[("host", "localhost"), ("origin", "https://app.example")]).is_ok());
        assert!(check(&policy, &[("host", "localhost"), ("origin", "http://app.example")]).is_err());
    }

    #[test]
    fn token_must_match_completely() {
        let policy = Policy::with_token(Token::new("a-long-enough-token").unwrap());
        let check_header = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            policy.check_token(&headers)
        };
        assert_eq!(check_header("Bearer a-long-enough-token"), Ok(()));
        assert_eq!(check_header("bearer a-long-enough-token"), Ok(()));
        assert_eq!(check_header("Bearer a-long-enough-toke"), Err(Rejected::WrongToken));
        assert_eq!(check_header("Bearer "), Err(Rejected::WrongToken));
        assert_eq!(check_header("Basic a-long-enough-token"), Err(Rejected::NoToken));
        assert_eq!(policy.check_token(&HeaderMap::new()), Err(Rejected::NoToken));
    }
}
