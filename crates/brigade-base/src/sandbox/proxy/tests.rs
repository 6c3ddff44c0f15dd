//! The proxy over real sockets on the loopback interface. Names and addresses of the outside are replaced.

mod heads;
mod hellos;
mod questions;

use std::collections::HashMap;
use std::net::Shutdown;

use self::hellos::client_hello;
use super::*;

/// Network in which names have lists of answers, and every address is the same local server.
struct FakeNetwork {
    answers: Mutex<HashMap<&'static str, Vec<Vec<&'static str>>>>,
    server: SocketAddr,
    connected: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Outside for FakeNetwork {
    fn resolve(&self, name: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let mut answers = self.answers.lock().unwrap();
        let found = answers.get_mut(name.as_str()).filter(|list| !list.is_empty()).map(|list| list.remove(0));
        let found =
            found.map(|list| list.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), port)).collect());
        Box::pin(async move { found.ok_or_else(|| io::Error::other("unknown")) })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> {
        self.connected.lock().unwrap().push(address);
        Box::pin(TcpStream::connect(self.server))
    }
}

/// A proxy, and the server to which all its connections lead.
struct Setup {
    proxy: SocketAddr,
    log: ConnectionLog,
    connected: Arc<Mutex<Vec<SocketAddr>>>,
    server: TcpListener,
    task: AbortOnDrop<()>,
}

const PUBLIC: &str = "93.184.216.34";
const PUBLIC_ANSWERS: [&[&str]; 20] = [&[PUBLIC]; 20];

impl Setup {
    async fn new(hosts: &[&str]) -> Setup {
        Setup::with(hosts, HostDecider::deny(), &[("ok.com", &PUBLIC_ANSWERS)]).await
    }

    async fn with(
        hosts: &[&str],
        decider: HostDecider,
        answers: &[(&'static str, &[&[&'static str]])],
    ) -> Setup {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connected = Arc::default();
        let answers =
            answers.iter().map(|(name, lists)| (*name, lists.iter().map(|list| list.to_vec()).collect()));
        let outside = FakeNetwork {
            answers: Mutex::new(answers.collect()),
            server: server.local_addr().unwrap(),
            connected: Arc::clone(&connected),
        };
        let log = ConnectionLog::default();
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let proxy = Proxy::new(hosts, decider, log.clone(), Box::new(outside));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let task = AbortOnDrop(task::spawn(proxy.serve(listener)));
        Setup { proxy: address, log, connected, server, task }
    }

    /// Sends a request and returns the connection.
    async fn open(&self, request: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.proxy).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        client
    }

    /// Sends a request and returns the whole response.
    async fn refused(&self, request: &str) -> String {
        rest(&mut self.open(request).await).await
    }

    /// Opens a tunnel and returns both ends.
    async fn tunnel(&self, to: &str) -> (TcpStream, TcpStream) {
        let mut client = self.open(&format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")).await;
        let (server, _) = soon(self.server.accept()).await.unwrap();
        let mut established = [0; 39];
        soon(client.read_exact(&mut established)).await.unwrap();
        assert_eq!(&established, b"HTTP/1.1 200 Connection established\r\n\r\n");
        (client, server)
    }

    fn connected(&self) -> Vec<String> {
        self.connected.lock().unwrap().iter().map(ToString::to_string).collect()
    }
}

/// Waits for something that must happen. A test that waits for ever says nothing.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("this happens at once")
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = soon(stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn listed_hosts_are_reached_and_others_are_named() {
    let setup = Setup::new(&["ok.com", "10.0.0.5:5432"]).await;
    let (mut client, mut server) = setup.tunnel("10.0.0.5:5432").await;
    server.write_all(b"the server speaks first").await.unwrap();
    let mut greeting = [0; 23];
    client.read_exact(&mut greeting).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut server).await, "hello");
    server.write_all(b"bye").await.unwrap();
    drop(server);
    assert_eq!(rest(&mut client).await, "bye");
    assert_eq!(setup.connected(), ["10.0.0.5:5432"]);

    for (to, cause) in [
        ("evil.com:443", "the sandbox does not allow this host. Request it with `needs.hosts`"),
        ("ok.com:22", "the sandbox does not allow this host"),
        ("www.ok.com:443", "the sandbox does not allow this host"),
        ("ok.com.evil.com:443", "the sandbox does not allow this host"),
        ("8.8.8.8:443", "the sandbox does not allow this host"),
        ("10.0.0.5:5433", "it is in a private network"),
        ("10.0.0.6:5432", "it is in a private network"),
        ("127.0.0.1:5432", "it is an address of this machine"),
        ("localhost:5432", "it is an address of this machine"),
        ("[::ffff:10.0.0.5]:5432", "it is in a private network"),
        ("169.254.169.254:80", "it is a link-local address, where cloud metadata services listen"),
    ] {
        let response = setup.refused(&format!("CONNECT {to} HTTP/1.1\r\n\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{to}: {response}");
        assert!(response.contains(&format!("\r\n\r\ncannot connect to `{to}`: {cause}")), "{to}: {response}");
        let last = setup.log.records().pop().unwrap();
        assert_eq!(last.target.unwrap().to_string(), to);
        assert!(matches!(last.outcome, ConnectionOutcome::Denied(_)), "{to}");
    }
    let response = setup.refused("GET http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 403") && response.contains("`sandbox.network`"), "{response}");
    assert_eq!(setup.connected(), ["10.0.0.5:5432"], "nothing else was connected to");
    let records = setup.log.records();
    let allowed: Vec<_> =
        records.iter().filter(|record| record.outcome == ConnectionOutcome::Allowed).collect();
    assert_eq!(allowed.len(), 1, "{records:?}");
    assert_eq!((allowed[0].sent_bytes, allowed[0].received_bytes), (5, 26));
}

#[tokio::test]
async fn tunnel_needs_the_tls_handshake_of_its_host() {
    let setup = Setup::new(&["ok.com", "ok.com:443", "ok.com:8443", "*.ok.com"]).await;
    let hello = client_hello("ok.com");
    for to in ["ok.com:443", "OK.com.:443", "ok.com:8443"] {
        let (mut client, mut server) = setup.tunnel(to).await;
        // In pieces, as networks deliver it.
        for piece in hello.chunks(50) {
            client.write_all(piece).await.unwrap();
            client.flush().await.unwrap();
        }
        client.write_all(b"more").await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        soon(server.read_to_end(&mut received)).await.unwrap();
        assert_eq!(received, [&hello[..], b"more"].concat(), "{to}");
    }
    let (evil, other) = (client_hello("evil.com"), client_hello("www.ok.com"));
    let unnamed = client_hello("10.0.0.5");
    let alert = "\u{15}\u{3}\u{1}\0\u{2}\u{2}p";
    for (to, first, last) in [
        ("ok.com:443", &evil[..], alert),
        ("ok.com:443", &other, alert),
        ("ok.com:443", &unnamed, alert),
        ("ok.com:8443", &evil, alert),
        ("ok.com:443", b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n", ""),
        ("ok.com:80", b"GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n", ""),
        ("ok.com:443", b"SSH-2.0-x\r\n", ""),
    ] {
        let (mut client, mut server) = setup.tunnel(to).await;
        client.write_all(first).await.unwrap();
        assert_eq!(rest(&mut client).await, last, "{to}");
        assert_eq!(rest(&mut server).await, "", "{to}: nothing reaches the server");
    }
    let denials = setup.log.denials().join("\n");
    assert!(denials.contains("`ok.com:443`: the TLS handshake does not name this host"), "{denials}");
    assert!(denials.contains("`ok.com:80`: the sandbox allows only TLS on this port"), "{denials}");
    // A port that is allowed explicitly carries anything.
    let (mut client, mut server) = setup.tunnel("ok.com:8443").await;
    client.write_all(b"SSH-2.0-x\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut server).await, "SSH-2.0-x\r\n");
}

/// The client can send its handshake with the request.
#[tokio::test]
async fn early_bytes_of_a_tunnel_are_checked_too() {
    let setup = Setup::new(&["ok.com"]).await;
    let request = b"CONNECT ok.com:443 HTTP/1.1\r\n\r\n";
    for (host, arrives) in [("ok.com", true), ("evil.com", false)] {
        let hello = client_hello(host);
        let mut client = TcpStream::connect(setup.proxy).await.unwrap();
        client.write_all(&[&request[..], &hello].concat()).await.unwrap();
        client.shutdown().await.unwrap();
        let (mut server, _) = soon(setup.server.accept()).await.unwrap();
        let mut received = Vec::new();
        soon(server.read_to_end(&mut received)).await.unwrap();
        assert_eq!(received == hello, arrives);
        assert!(arrives || received.is_empty());
    }
}

#[tokio::test]
async fn request_is_forwarded_once() {
    let setup = Setup::new(&["ok.com"]).await;
    let post = "POST http://ok.com/x HTTP/1.1\r\nHost: ok.com\r\nContent-Length: 4\r\nProxy-Connection: keep-alive\r\n\r\n";
    let mut client = setup.open(&format!("{post}bo")).await;
    let (mut server, _) = soon(setup.server.accept()).await.unwrap();
    client.write_all(b"dy").await.unwrap();
    let expected = "POST /x HTTP/1.1\r\nHost: ok.com\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody";
    let mut received = vec![0; expected.len()];
    soon(server.read_exact(&mut received)).await.unwrap();
    assert_eq!(String::from_utf8(received).unwrap(), expected);
    server.write_all(b"HTTP/1.1 200 OK\r\n\r\nanswer").await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, "HTTP/1.1 200 OK\r\n\r\nanswer");
    assert_eq!(rest(&mut server).await, "");

    // A second request on the same connection is not forwarded.
    let second = "GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n";
    let response = setup.refused(&format!("{post}body{second}")).await;
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    let mut client = setup.open(post).await;
    let (mut server, _) = soon(setup.server.accept()).await.unwrap();
    client.write_all(format!("body{second}").as_bytes()).await.unwrap();
    assert_eq!(rest(&mut server).await, expected);
    assert_eq!(rest(&mut client).await, "");
    // Only tunnels reach the port of HTTPS.
    let response = setup.refused("GET http://ok.com:443/ HTTP/1.1\r\nHost: ok.com:443\r\n\r\n").await;
    assert!(response.contains("only TLS on this port"), "{response}");
}

#[tokio::test]
async fn invalid_requests_are_refused_without_a_connection() {
    let setup = Setup::new(&["ok.com"]).await;
    let long = format!("GET http://ok.com/{} HTTP/1.1\r\n", "a".repeat(40 << 10));
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: ok.com\r\n\r\n", "400"),
        ("GET http://ok.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n", "400"),
        ("CONNECT ok.com@evil.com:443 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT ok.com\0.evil.com:443 HTTP/1.1\r\n\r\n", "400"),
        ("POST http://ok.com/ HTTP/1.1\r\nHost: ok.com\r\nTransfer-Encoding: chunked\r\n\r\n", "411"),
        (long.as_str(), "431"),
        ("CONNECT unknown.ok.com:443 HTTP/1.1\r\n\r\n", "403"),
    ] {
        let response = setup.refused(request).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.60}: {response}");
    }
    let unresolved = Setup::new(&["gone.example"]).await;
    let response = unresolved.refused("CONNECT gone.example:443 HTTP/1.1\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 502") && response.contains("cannot be resolved"), "{response}");
    assert!(unresolved.log.denials().is_empty(), "a missing host is not denied");
    assert!(setup.connected().is_empty() && unresolved.connected().is_empty());
}

/// A name is resolved once for each connection, and only the addresses that were checked are connected to.
#[tokio::test]
async fn rebound_names_reach_nothing_private() {
    let answers: [&[&'static str]; 4] =
        [&[PUBLIC], &["127.0.0.1"], &[PUBLIC, "10.0.0.1"], &["::ffff:a9fe:a9fe"]];
    let setup = Setup::with(&["ok.com"], HostDecider::deny(), &[("ok.com", &answers)]).await;
    let (client, server) = setup.tunnel("ok.com:443").await;
    drop((client, server));
    for place in ["an address of this machine", "in a private network", "metadata"] {
        let response = setup.refused("CONNECT ok.com:443 HTTP/1.1\r\n\r\n").await;
        assert!(response.starts_with("HTTP/1.1 403") && response.contains(place), "{place}: {response}");
    }
    assert_eq!(setup.connected(), [format!("{PUBLIC}:443")], "the second answer would be private");

    // An entry with the exact address and port allows a name to lead there.
    let answers: [&[&'static str]; 2] = [&["10.0.0.1"]; 2];
    let hosts = ["intranet.example", "10.0.0.1:443"];
    let setup = Setup::with(&hosts, HostDecider::deny(), &[("intranet.example", &answers)]).await;
    drop(setup.tunnel("intranet.example:443").await);
    let response = setup.refused("CONNECT intranet.example:80 HTTP/1.1\r\n\r\n").await;
    assert!(response.contains("Request `10.0.0.1:80` with `needs.hosts` too"), "{response}");
    assert_eq!(setup.connected(), ["10.0.0.1:443"]);
}

#[tokio::test]
async fn connections_end_with_the_proxy() {
    let setup = Setup::new(&["10.0.0.5:80"]).await;
    let (mut client, mut server) = setup.tunnel("10.0.0.5:80").await;
    client.write_all(b"x").await.unwrap();
    server.read_exact(&mut [0]).await.unwrap();
    drop(setup.task);
    assert_eq!((rest(&mut client).await, rest(&mut server).await), (String::new(), String::new()));
    // The listener is closed too.
    let late = tokio::task::spawn_blocking(move || {
        std::net::TcpStream::connect(setup.proxy).and_then(|stream| stream.shutdown(Shutdown::Both))
    });
    assert!(late.await.unwrap().is_err());
}

/// The job owns the function that serves its proxy, and drops it when it ends.
#[tokio::test]
async fn proxy_ends_when_its_job_is_dropped() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = server.local_addr().unwrap().to_string();
    let hosts = [to.parse().unwrap()].into_iter().collect();
    let serve = handler(hosts, HostDecider::deny(), ConnectionLog::default());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    serve(listener);
    client.write_all(format!("CONNECT {to} HTTP/1.1\r\n\r\nearly").as_bytes()).await.unwrap();
    let (mut stream, _) = server.accept().await.unwrap();
    stream.read_exact(&mut [0; 5]).await.unwrap();
    drop(serve);
    assert_eq!(rest(&mut stream).await, "");
    assert!(rest(&mut client).await.starts_with("HTTP/1.1 200"));
}

/// Deterministic random numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    /// Changes, removes, repeats or inserts a few bytes.
    fn mutate(&mut self, bytes: &mut Vec<u8>, pieces: &[&str]) {
        let from = self.below(bytes.len() + 1);
        let to = from + self.below((bytes.len() - from).min(12) + 1);
        match self.below(5) {
            0 if from < bytes.len() => bytes[from] ^= 1 << self.below(8),
            1 => drop(bytes.drain(from..to)),
            2 => {
                let twice = bytes[from..to].to_vec();
                bytes.splice(to..to, twice);
            }
            3 => bytes.truncate(from),
            _ => drop(bytes.splice(from..from, pieces[self.below(pieces.len())].bytes())),
        }
    }
}

/// Number of cases of a fuzz test.
#[expect(clippy::disallowed_methods, reason = "only a long run by hand sets it")]
fn fuzz_cases(default: u64) -> u64 {
    std::env::var("FUZZ").map_or(default, |cases| cases.parse().unwrap())
}
