//! Bound address of a server.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// Machines that may reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Only this machine.
    Loopback,
    /// Other machines, too.
    Network,
}

/// Reason why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Other machines can reach the address.
    #[error(
        "cannot listen on {0}: other machines can reach it. Listen on 127.0.0.1, or pass --allow-remote."
    )]
    Remote(SocketAddr),
    /// The system refused the address.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, io::Error),
}

/// Bound TCP listener whose address is within its [`Reach`].
#[derive(Debug)]
pub struct Listener {
    pub(crate) tcp: TcpListener,
    address: SocketAddr,
}

impl Reach {
    /// Checks that a server with this reach may listen on the address.
    pub fn check(self, address: SocketAddr) -> Result<(), ListenError> {
        match self {
            Reach::Loopback if !address.ip().is_loopback() => Err(ListenError::Remote(address)),
            Reach::Loopback | Reach::Network => Ok(()),
        }
    }
}

impl Listener {
    /// Binds the address. With port 0, the system chooses a free port.
    pub async fn bind(address: SocketAddr, reach: Reach) -> Result<Listener, ListenError> {
        reach.check(address)?;
        let refused = |error| ListenError::Bind(address, error);
        let tcp = TcpListener::bind(address).await.map_err(refused)?;
        let address = tcp.local_addr().map_err(refused)?;
        Ok(Listener { tcp, address })
    }

    /// Returns the bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
