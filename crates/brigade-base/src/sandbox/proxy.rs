//! Proxy for the commands of a sandbox: HTTP requests and tunnels to hosts that a list or the user allows.
//!
//! **Contract.** A name is resolved once, all its addresses are checked, and the connection goes to a checked one. A tunnel
//! carries TLS that names the host, unless its port was allowed explicitly. Nothing reaches a host before these checks.

mod client_hello;
mod head;
mod questions;
#[cfg(test)]
mod tests;
mod tunnel;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_core::network::{Host, HostList, Listing, Target};
use brigade_sandbox::Job;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::head::{ForwardRequest, HeadError, ProxyRequest};
use self::questions::Questions;
use self::tunnel::{Content, TunnelError};
use super::HostDecider;
use super::connections::{ConnectionLog, ConnectionOutcome, Denial};
use crate::task::{self, AbortOnDrop};

/// Maximum number of connections of a command at the same time. Further ones wait.
const MAX_CONNECTIONS: usize = 64;
/// Connections of all commands that this process may still accept. Each takes two descriptors.
static FREE_CONNECTIONS: Semaphore = Semaphore::const_new(256);
/// Maximum number of addresses of a name that are tried.
const MAX_ATTEMPTS: usize = 6;
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after a failure to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time in which the client of a refused request can read the response.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of bytes of a refused request that are read and dropped.
const LINGER_BYTES: u64 = 1 << 20;

/// TLS alert "unrecognized_name", which makes clients report the cause.
const WRONG_NAME_ALERT: [u8; 7] = [21, 3, 1, 0, 2, 2, 112];

/// Resolution of names, and connections to addresses.
trait Outside: Send + Sync {
    fn resolve(&self, name: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>>;
}

/// The resolver of the system and the network of the host.
struct HostNetwork;

impl Outside for HostNetwork {
    fn resolve(&self, name: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, port)).await?.collect()) })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(address))
    }
}

/// Proxy of one command.
struct Proxy {
    hosts: HostList,
    questions: Questions,
    log: ConnectionLog,
    outside: Box<dyn Outside>,
}

/// Response to a request that is not carried out.
struct Refusal {
    status: u16,
    target: Option<Target>,
    outcome: ConnectionOutcome,
    text: String,
}

impl Refusal {
    fn denied(target: &Target, denial: Denial) -> Refusal {
        let text = denial.message(Some(target));
        Refusal {
            status: 403,
            target: Some(target.clone()),
            outcome: ConnectionOutcome::Denied(denial),
            text,
        }
    }

    fn failed(target: &Target, cause: &str) -> Refusal {
        let text = format!("cannot connect to `{target}`: {cause}. Check the host, or try again later.");
        Refusal { status: 502, target: Some(target.clone()), outcome: ConnectionOutcome::Failed, text }
    }
}

impl From<HeadError> for Refusal {
    fn from(HeadError { status, problem }: HeadError) -> Refusal {
        let denial = Denial::Request(problem);
        let text = denial.message(None);
        Refusal { status, target: None, outcome: ConnectionOutcome::Denied(denial), text }
    }
}

/// Lets the proxy of a job's sandbox allow these hosts. It ends with the job.
pub(super) fn serve_for(job: Job, hosts: HostList, decider: HostDecider, log: ConnectionLog) -> Job {
    job.on_proxy(handler(hosts, decider, log))
}

/// Function that serves the listener of a proxy until it is dropped.
fn handler(
    hosts: HostList,
    decider: HostDecider,
    log: ConnectionLog,
) -> impl Fn(std::net::TcpListener) + Send + Sync + 'static {
    let running = Mutex::new(None);
    move |listener| {
        let proxy = Proxy::new(hosts.clone(), decider.clone(), log.clone(), Box::new(HostNetwork));
        let task = AbortOnDrop(task::spawn(proxy.serve(listener)));
        *running.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }
}

impl Proxy {
    fn new(hosts: HostList, decider: HostDecider, log: ConnectionLog, outside: Box<dyn Outside>) -> Proxy {
        Proxy { hosts, questions: Questions::new(decider), log, outside }
    }

    /// Serves a listener. Never returns; all connections end when the future is dropped.
    async fn serve(self, listener: std::net::TcpListener) {
        let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
        let Ok(listener) = listener else { return };
        let (proxy, free) = (Arc::new(self), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = free.clone().acquire_owned().await else { return };
            let Ok(shared_permit) = FREE_CONNECTIONS.acquire().await else { return };
            while connections.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((client, _)) => {
                    let proxy = proxy.clone();
                    connections.spawn(async move {
                        proxy.serve_connection(client).await;
                        drop((permit, shared_permit));
                    });
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    async fn serve_connection(&self, mut client: TcpStream) {
        let _ = client.set_nodelay(true);
        if let Err(refusal) = self.handle_request(&mut client).await {
            self.log.record(refusal.target.as_ref(), refusal.outcome);
            respond(&mut client, refusal.status, &refusal.text).await;
        }
    }

    async fn handle_request(&self, client: &mut TcpStream) -> Result<(), Refusal> {
        let Ok(head) = timeout(HEAD_TIMEOUT, read_head(client)).await else { return Ok(()) };
        let Some((head, early)) = head? else { return Ok(()) };
        match head::parse(&head)? {
            ProxyRequest::Connect(target) => self.tunnel(client, &target, early).await,
            ProxyRequest::Forward(request) => self.forward(client, &request, &early).await,
        }
    }

    async fn tunnel(&self, client: &mut TcpStream, target: &Target, early: Vec<u8>) -> Result<(), Refusal> {
        let content = match self.permit(target).await? {
            Listing::ListedWithPort if target.port != 443 => Content::Any,
            _ => Content::Tls,
        };
        let mut server = self.connect(target).await?;
        let connection = self.log.open(target);
        if client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_err() {
            return Ok(());
        }
        let what = (content, &target.host);
        let result = tunnel::run(client, &mut server, early, what, &connection.traffic).await;
        if let Err(TunnelError::Denied(denial)) = result {
            let alert: &[u8] = if denial == Denial::ServerName { &WRONG_NAME_ALERT } else { &[] };
            connection.deny(denial);
            drop(server);
            say_last(client, alert).await;
        }
        Ok(())
    }

    async fn forward(
        &self,
        client: &mut TcpStream,
        request: &ForwardRequest,
        early: &[u8],
    ) -> Result<(), Refusal> {
        if early.len() as u64 > request.body_bytes {
            return Err(head::TRAILING.into());
        }
        if request.target.port == 443 {
            return Err(Refusal::denied(&request.target, Denial::NotTls));
        }
        self.permit(&request.target).await?;
        let mut server = self.connect(&request.target).await?;
        let connection = self.log.open(&request.target);
        let message = (request.head.as_slice(), early);
        let _ = tunnel::forward(client, &mut server, message, request.body_bytes, &connection.traffic).await;
        Ok(())
    }

    /// Checks a target against the list, and asks if the list does not contain it.
    async fn permit(&self, target: &Target) -> Result<Listing, Refusal> {
        match self.hosts.listing(target) {
            Listing::Blocked(place) => Err(Refusal::denied(target, Denial::NotPublic(place))),
            Listing::Unlisted => match self.questions.ask(target).await {
                Ok(true) => Ok(Listing::ListedWithPort),
                Ok(false) if self.questions.can_ask() => Err(Refusal::denied(target, Denial::NotApproved)),
                Ok(false) => Err(Refusal::denied(target, Denial::NotAllowed)),
                Err(questions::TooMany) => Err(Refusal::denied(target, Denial::TooManyQuestions)),
            },
            listed => Ok(listed),
        }
    }

    /// Resolves the name of a target and connects to one of its addresses, all of which are checked.
    async fn connect(&self, target: &Target) -> Result<TcpStream, Refusal> {
        let addresses = match &target.host {
            Host::Address(address) => vec![SocketAddr::new(*address, target.port)],
            Host::Name(name) => {
                let resolved =
                    timeout(RESOLVE_TIMEOUT, self.outside.resolve(name.clone(), target.port)).await;
                match resolved {
                    Ok(Ok(addresses)) => addresses,
                    Ok(Err(_)) => return Err(Refusal::failed(target, "the name cannot be resolved")),
                    Err(_) => return Err(Refusal::failed(target, "the name server does not answer")),
                }
            }
        };
        for address in &addresses {
            // The resolver returns the port that it was given, but the check must not depend on that.
            let check = self.hosts.check_address(SocketAddr::new(address.ip(), target.port));
            check.map_err(|blocked| Refusal::denied(target, Denial::BlockedAddress(blocked)))?;
        }
        for address in addresses.iter().take(MAX_ATTEMPTS) {
            let address = SocketAddr::new(address.ip(), target.port);
            if let Ok(Ok(server)) = timeout(CONNECT_TIMEOUT, self.outside.connect(address)).await {
                let _ = server.set_nodelay(true);
                return Ok(server);
            }
        }
        Err(Refusal::failed(target, "no address of the host accepts the connection"))
    }
}

/// Reads the head of a request, and what was received after it. `None` if the client sends none.
async fn read_head(client: &mut TcpStream) -> Result<Option<(Vec<u8>, Vec<u8>)>, HeadError> {
    let mut bytes = Vec::new();
    loop {
        if let Some(length) = head::head_length(&bytes) {
            let rest = bytes.split_off(length);
            return if length > head::MAX_HEAD_BYTES {
                Err(head::TOO_LARGE)
            } else {
                Ok(Some((bytes, rest)))
            };
        }
        if bytes.len() > head::MAX_HEAD_BYTES {
            return Err(head::TOO_LARGE);
        }
        match client.read_buf(&mut bytes).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Ok(None),
        }
    }
}

/// Sends a response with a text.
async fn respond(client: &mut TcpStream, status: u16, text: &str) {
    let reason = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        411 => "Length Required",
        431 => "Request Header Fields Too Large",
        _ => "Bad Gateway",
    };
    let length = text.len() + 1;
    let response = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{text}\n"
    );
    say_last(client, response.as_bytes()).await;
}

/// Sends the last bytes of a connection, and lets the client read them. Closing it with unread input would discard them.
async fn say_last(client: &mut TcpStream, bytes: &[u8]) {
    let end = async {
        client.write_all(bytes).await?;
        client.shutdown().await?;
        tokio::io::copy(&mut client.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    let _ = timeout(LINGER_TIMEOUT, end).await;
}
