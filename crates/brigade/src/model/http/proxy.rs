//! HTTP proxies for requests to providers, MCP servers and search engines.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_service::Service;
use url::Url;

use super::endpoint::{Locality, locality};
use super::failure::root_cause;
use crate::secret::Secret;

/// Longer response heads of a proxy are rejected.
const MAX_HEAD_BYTES: usize = 8 * 1024;
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Proxy settings in the format of the variables `HTTPS_PROXY` and `NO_PROXY`. They apply to `https`
/// addresses. A server on this machine is always reached directly.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    /// Address of the proxy for `https`, such as `http://user:password@host:3128`. It may contain a password.
    pub https: Option<Secret>,
    /// Hosts that are reached directly, separated by commas: domains with their subdomains, IP addresses,
    /// networks such as `10.0.0.0/8`, or `*` for all.
    pub exempt: String,
}

impl Proxies {
    /// Converts the settings for `reqwest`. Returns `None` if the server at this address is reached directly.
    pub(crate) fn for_reqwest(&self, server: &Url) -> Result<Option<reqwest::Proxy>, &'static str> {
        match (self.for_address(server)?, &self.https) {
            (Some(_), Some(address)) => reqwest::Proxy::https(address.expose().trim())
                .map(Some)
                .map_err(|_| "the proxy address is not a URL such as http://host:3128"),
            _ => Ok(None),
        }
    }

    /// Returns the proxy for a provider at this address, or `None` if the provider is reached directly.
    pub(super) fn for_address(&self, base: &Url) -> Result<Option<Proxy>, &'static str> {
        let Some(address) = self.https.as_ref().map(|address| address.expose().trim()) else {
            return Ok(None);
        };
        if address.is_empty() || base.scheme() != "https" || locality(base) == Locality::Local {
            return Ok(None);
        }
        let to = Uri::try_from(base.as_str()).map_err(|_| "the server address is not valid")?;
        let proxy = |exempt: &str| Matcher::builder().https(address).no(exempt).build().intercept(&to);
        // An invalid proxy address and an exempt host both yield no proxy, so they are checked separately.
        let all = proxy("").ok_or("the proxy address is not a URL such as http://host:3128")?;
        if proxy(&self.exempt).is_none() {
            return Ok(None);
        }
        match all.uri().scheme_str() {
            Some("http") => Ok(Some(Proxy(all))),
            _ => Err("only proxies with an http:// address are supported"),
        }
    }
}

/// A proxy that opens tunnels with the CONNECT method.
#[derive(Debug, Clone)]
pub(super) struct Proxy(Intercept);

impl Proxy {
    /// Returns the address without user name and password.
    fn display_address(&self) -> String {
        self.0.uri().authority().map(ToString::to_string).unwrap_or_default()
    }
}

/// Reasons why a tunnel was not opened.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum TunnelError {
    /// The proxy cannot be reached.
    #[error("cannot connect to the proxy {proxy}: {cause}")]
    Unreachable { proxy: String, cause: String },
    /// The proxy requires a user name and a password, or rejects the given ones.
    #[error("the proxy {proxy} returned 407: it requires a user name and a password")]
    Unauthorised { proxy: String },
    /// The proxy answered with an error status.
    #[error("the proxy {proxy} refused the connection with status {status}")]
    Refused { proxy: String, status: u16 },
    /// The answer is not HTTP, or is too long.
    #[error("the proxy {proxy} did not send an HTTP response")]
    NotHttp { proxy: String },
}

/// A connector that reaches every address through a proxy.
#[derive(Debug, Clone)]
pub(super) struct Tunnel {
    tcp: HttpConnector,
    proxy: Proxy,
}

impl Tunnel {
    pub(super) fn new(tcp: HttpConnector, proxy: Proxy) -> Tunnel {
        Tunnel { tcp, proxy }
    }
}

impl Service<Uri> for Tunnel {
    type Response = TokioIo<TcpStream>;
    type Error = TunnelError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, TunnelError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TunnelError>> {
        // Each connection is made by a clone that no other request uses.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let proxy = self.proxy.clone();
        let connecting = self.tcp.call(proxy.0.uri().clone());
        Box::pin(async move {
            let unreachable = |cause| TunnelError::Unreachable { proxy: proxy.display_address(), cause };
            let stream = connecting.await.map_err(|error| unreachable(root_cause(&error)))?;
            let mut stream = stream.into_inner();
            let head = exchange(&mut stream, &request(&to, &proxy)).await;
            let head = head.map_err(|error| unreachable(root_cause(&error)))?;
            match status(&head) {
                // Bytes after the head would be lost to the tunnel.
                Some(200..=299) if head.ends_with(HEAD_END) => Ok(TokioIo::new(stream)),
                Some(200..=299) => Err(TunnelError::NotHttp { proxy: proxy.display_address() }),
                Some(407) => Err(TunnelError::Unauthorised { proxy: proxy.display_address() }),
                Some(status) => Err(TunnelError::Refused { proxy: proxy.display_address(), status }),
                None => Err(TunnelError::NotHttp { proxy: proxy.display_address() }),
            }
        })
    }
}

/// Builds the CONNECT request.
fn request(to: &Uri, proxy: &Proxy) -> Vec<u8> {
    let (host, port) = (to.host().unwrap_or_default(), to.port_u16().unwrap_or(443));
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
    if let Some(credentials) = proxy.0.basic_auth() {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(credentials.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

/// Sends the request and reads the head of the answer. The proxy sends nothing more until the client does.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request).await?;
    let mut head = Vec::new();
    while !is_whole(&head) && head.len() < MAX_HEAD_BYTES {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
        }
    }
    Ok(head)
}

fn is_whole(head: &[u8]) -> bool {
    head.windows(HEAD_END.len()).any(|bytes| bytes == HEAD_END)
}

/// Parses the status of a complete response head.
fn status(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(b"HTTP/1.").filter(|_| is_whole(head))?;
    let code = rest.split(|byte| *byte == b' ').nth(1)?;
    std::str::from_utf8(code.get(..3)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(https: &str, exempt: &str, base: &str) -> Result<Option<String>, &'static str> {
        let https = Some(https).filter(|https| !https.is_empty()).map(Secret::new);
        let proxies = Proxies { https, exempt: exempt.to_owned() };
        let found = proxies.for_address(&Url::parse(base).unwrap())?;
        Ok(found.map(|proxy| proxy.display_address()))
    }

    #[test]
    fn only_remote_https_addresses_use_the_proxy() {
        let through = |base: &str| proxy("http://proxy.test:3128", "", base).unwrap();
        assert_eq!(through("https://api.example.com/v1").as_deref(), Some("proxy.test:3128"));
        for direct in [
            "http://api.example.com/v1",
            "https://localhost:8000/v1",
            "https://127.0.0.1:8000/v1",
            "https://127.8.9.10/v1",
            "https://[::1]:8000/v1",
        ] {
            assert_eq!(through(direct), None, "{direct}");
        }
        assert_eq!(proxy("", "", "https://api.example.com"), Ok(None));
        assert_eq!(
            proxy("proxy.test:3128", "", "https://api.example.com").unwrap().as_deref(),
            Some("proxy.test:3128")
        );
    }

    #[test]
    fn exempt_hosts_are_reached_directly() {
        let is_direct =
            |exempt: &str, base: &str| proxy("http://proxy.test:3128", exempt, base).unwrap().is_none();
        for (exempt, base) in [
            ("example.com", "https://api.example.com"),
            (".example.com", "https://api.example.com"),
            ("other.test, API.example.com", "https://api.example.com"),
            ("10.0.0.0/8", "https://10.1.2.3:8443/v1"),
            ("*", "https://api.example.com"),
        ] {
            assert!(is_direct(exempt, base), "{exempt} {base}");
        }
        for (exempt, base) in [
            ("", "https://api.example.com"),
            ("ample.com", "https://api.example.com"),
            ("api.example.com", "https://example.com"),
            ("10.0.0.0/8", "https://11.1.2.3/v1"),
        ] {
            assert!(!is_direct(exempt, base), "{exempt} {base}");
        }
    }

    #[test]
    fn unusable_proxy_address_is_refused() {
        for wrong in
            ["http://", "not a url", "ftp://proxy.test", "socks5://proxy.test:1080", "https://proxy.test"]
        {
            assert!(proxy(wrong, "", "https://api.example.com").is_err(), "{wrong}");
            assert_eq!(proxy(wrong, "", "http://127.0.0.1:8000"), Ok(None), "no proxy is needed here");
        }
    }

    #[test]
    fn proxy_password_is_sent_and_never_shown() {
        let proxies =
            Proxies { https: Some(Secret::new("http://me:s%40same@proxy.test:3128")), exempt: String::new() };
        let proxy = proxies.for_address(&Url::parse("https://api.example.com/v1").unwrap()).unwrap().unwrap();
        let request =
            String::from_utf8(request(&Uri::from_static("https://api.example.com/v1"), &proxy)).unwrap();
        assert!(request.starts_with("CONNECT api.example.com:443 HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("Proxy-Authorization: Basic bWU6c0BzYW1l\r\n"), "{request}");
        let shown = format!("{proxies:?} {proxy:?} {}", proxy.display_address());
        assert!(!shown.contains("same") && !shown.contains("bWU6"), "{shown}");
    }

    #[test]
    fn incomplete_proxy_response_has_no_status() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 407 x\r\nA: b\r\n\r\n"), Some(407));
        for wrong in [
            &b"HTTP/1.1 200 OK\r\n"[..],
            b"",
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 2\r\n\r\n",
            b"\xff\xff \r\n\r\n",
        ] {
            assert_eq!(status(wrong), None);
        }
    }
}
