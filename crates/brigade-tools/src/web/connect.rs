//! Connections to checked addresses only.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Proxy, Response, header};
use url::Host;

use super::address::WebUrl;
use super::error::{FetchFailure, root_cause};
use super::{USER_AGENT, WebSettings};
use brigade_core::network::{AddressClass, address_class};
use brigade_http_client::tls;

const ACCEPT: &str = "text/html, text/markdown, text/plain, application/json, text/*;q=0.8, */*;q=0.1";

/// Sends a GET request without following redirects.
pub(super) async fn get(address: &WebUrl, settings: &WebSettings) -> Result<Response, FetchFailure> {
    let checked = resolve_checked(address, settings).await?;
    // Building a client reads the system's certificates from disk.
    let client = tokio::task::spawn_blocking(move || client(Resolver::Only(checked)))
        .await
        .map_err(|error| FetchFailure::ClientSetup(error.to_string()))??;
    let request = client.get(address.url().clone());
    let request = request.header(header::ACCEPT, ACCEPT).header(header::ACCEPT_ENCODING, "gzip");
    request.send().await.map_err(|error| send_failure(&error))
}

/// Failure of a request without a response.
pub(super) fn send_failure(error: &reqwest::Error) -> FetchFailure {
    let cause = root_cause(error);
    if error.is_connect() { FetchFailure::Connection(cause) } else { FetchFailure::BrokenResponse(cause) }
}

/// Name resolution of a client.
pub(super) enum Resolver {
    /// Connects to these addresses, whatever the host name.
    Only(Vec<SocketAddr>),
    /// Resolves names with the system's resolver, or leaves that to a proxy.
    System(Option<Box<Proxy>>),
}

/// Builds a client without cookies and redirects.
pub(super) fn client(resolver: Resolver) -> Result<Client, FetchFailure> {
    let builder = tls::client_builder()
        .user_agent(USER_AGENT)
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        .pool_max_idle_per_host(0);
    let builder = match resolver {
        Resolver::Only(addresses) => builder.dns_resolver(Pinned(addresses.into())),
        Resolver::System(Some(proxy)) => builder.proxy(*proxy),
        Resolver::System(None) => builder,
    };
    builder.build().map_err(|error| FetchFailure::ClientSetup(root_cause(&error)))
}

/// Resolves every name to the checked addresses.
struct Pinned(Arc<[SocketAddr]>);

impl Resolve for Pinned {
    fn resolve(&self, _name: Name) -> Resolving {
        let addresses: Addrs = Box::new(Vec::from(&self.0[..]).into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// Resolves a host and checks all of its addresses.
async fn resolve_checked(address: &WebUrl, settings: &WebSettings) -> Result<Vec<SocketAddr>, FetchFailure> {
    let port = address.port();
    if !is_web_port(port) && !settings.allow_loopback {
        return Err(FetchFailure::BlockedPort(port));
    }
    let addresses = match address.url().host() {
        Some(Host::Ipv4(address)) => vec![SocketAddr::new(address.into(), port)],
        Some(Host::Ipv6(address)) => vec![SocketAddr::new(address.into(), port)],
        Some(Host::Domain(name)) => tokio::net::lookup_host((name, port))
            .await
            .map_err(|error| FetchFailure::UnknownHost(root_cause(&error)))?
            .collect(),
        None => Vec::new(),
    };
    if addresses.is_empty() {
        return Err(FetchFailure::UnknownHost("it has no addresses".to_owned()));
    }
    for address in &addresses {
        check_address(address.ip(), port, settings)?;
    }
    Ok(addresses)
}

/// Checks one address. A single blocked address rejects the whole host: no legitimate host has both kinds.
fn check_address(address: IpAddr, port: u16, settings: &WebSettings) -> Result<(), FetchFailure> {
    match address_class(address) {
        AddressClass::Public if is_web_port(port) => Ok(()),
        AddressClass::Public => Err(FetchFailure::BlockedPort(port)),
        AddressClass::Loopback if settings.allow_loopback => Ok(()),
        AddressClass::Loopback => Err(FetchFailure::Loopback(address)),
        AddressClass::Blocked(place) => Err(FetchFailure::BlockedAddress { address, place }),
    }
}

fn is_web_port(port: u16) -> bool {
    matches!(port, 80 | 443)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn address_and_port_are_checked_together() {
        let open = WebSettings { allow_loopback: true, ..WebSettings::default() };
        let closed = WebSettings::default();
        let says = |address: &str, port, settings| check_address(address.parse().unwrap(), port, settings);
        assert_eq!(says("1.1.1.1", 443, &closed), Ok(()));
        assert_eq!(says("1.1.1.1", 8443, &closed), Err(FetchFailure::BlockedPort(8443)));
        assert_eq!(says("1.1.1.1", 8443, &open), Err(FetchFailure::BlockedPort(8443)));
        assert_eq!(says("127.0.0.1", 8443, &open), Ok(()));
        assert!(matches!(says("127.0.0.1", 80, &closed), Err(FetchFailure::Loopback(_))));
        for address in ["10.0.0.1", "169.254.169.254", "0.0.0.0", "fd00:ec2::254", "64:ff9b::7f00:1"] {
            assert!(
                matches!(says(address, 80, &open), Err(FetchFailure::BlockedAddress { .. })),
                "{address}"
            );
        }
    }

    /// The connection uses the checked address even if the name resolves differently the next time.
    #[tokio::test]
    async fn client_connects_only_to_the_pinned_address() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let client = client(Resolver::Only(vec![address])).unwrap();
        for name in ["moves.example", "localhost.", "xn--bcher-kva.example"] {
            let url = format!("http://{name}:{}/", address.port());
            if name == "moves.example" {
                assert_eq!(client.get(url).send().await.unwrap().status(), 204);
            } else {
                assert!(client.get(url).send().await.is_err(), "the server is gone, and no other is asked");
            }
        }
        assert!(answering.join().unwrap().to_lowercase().contains("host: moves.example"));
    }
}
