//! Tunnels through HTTP proxies.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use brigade_http_client::Proxy;
use hyper::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_service::Service;

use super::failure::root_cause;

/// Longer response heads of a proxy are rejected.
const MAX_HEAD_BYTES: usize = 8 * 1024;
const HEAD_END: &[u8] = b"\r\n\r\n";

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
        let connecting = self.tcp.call(proxy.uri().clone());
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
    if let Some(credentials) = proxy.basic_auth() {
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
    use brigade_base::Secret;
    use brigade_http_client::Proxies;
    use url::Url;

    use super::*;

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
