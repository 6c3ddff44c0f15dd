//! Transfer of bytes between a command and a host.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brigade_core::network::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::client_hello::{self, Hello, HelloError};
use crate::sandbox::connections::{Denial, Traffic};

/// Time without any byte after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Time that a client has for the first message of its TLS handshake.
const HELLO_TIMEOUT: Duration = Duration::from_secs(30);
const BUFFER_BYTES: usize = 16 << 10;

/// Content of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// TLS that names the host.
    Tls,
    /// Anything. If it is TLS, it names the host.
    Any,
}

/// End of a tunnel.
pub(super) enum TunnelError {
    Denied(Denial),
    /// The connection ended, which is not an error of either side.
    Closed,
}

impl From<io::Error> for TunnelError {
    fn from(_: io::Error) -> TunnelError {
        TunnelError::Closed
    }
}

/// Transfers bytes both ways until both sides have ended. `early` was received from the client already.
pub(super) async fn run(
    client: &mut TcpStream,
    server: &mut TcpStream,
    early: Vec<u8>,
    (content, host): (Content, &Host),
    traffic: &Traffic,
) -> Result<(), TunnelError> {
    let (mut client_read, mut client_write) = client.split();
    let (mut server_read, mut server_write) = server.split();
    let mut first = early;
    if content == Content::Tls {
        let checked = timeout(HELLO_TIMEOUT, check_first_bytes(&mut client_read, &mut first, content, host));
        checked.await.map_err(|_| TunnelError::Denied(Denial::NotTls))??;
    }
    let upload = async {
        if content == Content::Any {
            check_first_bytes(&mut client_read, &mut first, content, host).await?;
        }
        send(&mut server_write, &first, &traffic.sent).await?;
        drop(first);
        copy(&mut client_read, &mut server_write, &traffic.sent, traffic).await?;
        server_write.shutdown().await?;
        Ok::<_, TunnelError>(())
    };
    let download = async {
        copy(&mut server_read, &mut client_write, &traffic.received, traffic).await?;
        client_write.shutdown().await?;
        Ok(())
    };
    tokio::try_join!(upload, download).map(|_| ())
}

/// Reads until the first bytes of the client are known to be allowed.
async fn check_first_bytes(
    client: &mut ReadHalf<'_>,
    first: &mut Vec<u8>,
    content: Content,
    host: &Host,
) -> Result<(), TunnelError> {
    loop {
        match first.first() {
            Some(byte) if content == Content::Any && !client_hello::is_tls(*byte) => return Ok(()),
            Some(_) => match client_hello::parse(first) {
                Ok(Hello::Incomplete) => {}
                Ok(Hello::Complete { server_name }) if is_name_of(server_name.as_deref(), host) => {
                    return Ok(());
                }
                Err(HelloError::NotTls) => return Err(TunnelError::Denied(Denial::NotTls)),
                Ok(Hello::Complete { .. }) | Err(HelloError::Malformed) => {
                    return Err(TunnelError::Denied(Denial::ServerName));
                }
            },
            None => {}
        }
        if client.read_buf(first).await? == 0 {
            // An incomplete part is not sent.
            return Err(TunnelError::Closed);
        }
    }
}

/// Whether a server name is that of a host. Addresses have none.
fn is_name_of(server_name: Option<&str>, host: &Host) -> bool {
    match (server_name, host) {
        (Some(server_name), Host::Name(host)) => server_name.eq_ignore_ascii_case(host),
        (None, Host::Address(_)) => true,
        (Some(_), Host::Address(_)) | (None, Host::Name(_)) => false,
    }
}

/// Sends one request with its body, and the response until the server closes the connection. Bytes after the body end the
/// connection: they are a request that nothing has checked.
pub(super) async fn forward(
    client: &mut TcpStream,
    server: &mut TcpStream,
    (head, body): (&[u8], &[u8]),
    body_bytes: u64,
    traffic: &Traffic,
) -> Result<(), TunnelError> {
    let (mut client_read, mut client_write) = client.split();
    let (mut server_read, mut server_write) = server.split();
    let missing = body_bytes.checked_sub(body.len() as u64).ok_or(TunnelError::Closed)?;
    let upload = async {
        send(&mut server_write, head, &traffic.sent).await?;
        send(&mut server_write, body, &traffic.sent).await?;
        let mut rest = (&mut client_read).take(missing);
        copy(&mut rest, &mut server_write, &traffic.sent, traffic).await?;
        if rest.limit() > 0 || client_read.read(&mut [0]).await? > 0 {
            return Err(TunnelError::Closed);
        }
        // The client sends nothing more and waits for the response.
        std::future::pending::<Result<(), TunnelError>>().await
    };
    let download = async {
        copy(&mut server_read, &mut client_write, &traffic.received, traffic).await?;
        client_write.shutdown().await?;
        Ok(())
    };
    tokio::select! {
        result = upload => result,
        result = download => result,
    }
}

/// Copies bytes until the end of the input. It ends if neither direction makes progress.
async fn copy(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut WriteHalf<'_>,
    count: &AtomicU64,
    traffic: &Traffic,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let before = traffic.total();
        let length = match timeout(IDLE_TIMEOUT, from.read(&mut buffer)).await {
            Ok(length) => length?,
            Err(_) if traffic.total() != before => continue,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        match buffer.get(..length) {
            Some(bytes) if length > 0 => send(to, bytes, count).await?,
            _ => return Ok(()),
        }
    }
}

async fn send(to: &mut WriteHalf<'_>, bytes: &[u8], count: &AtomicU64) -> io::Result<()> {
    timeout(IDLE_TIMEOUT, to.write_all(bytes)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}
