//! First messages of TLS clients, made by rustls and mutated.

use std::io::Cursor;
use std::sync::Arc;

use rustls::client::ClientConnection;
use rustls::crypto::ring;
use rustls::server::Acceptor;
use rustls::{ClientConfig, RootCertStore};

use super::super::client_hello::{Hello, HelloError, parse};
use super::Rng;

/// First message of a client that connects to a host.
pub(super) fn client_hello(host: &str) -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = host.to_owned().try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

fn named(name: &str) -> Result<Hello, HelloError> {
    Ok(Hello::Complete { server_name: Some(name.to_owned()) })
}

/// The same message in several records.
fn in_records(hello: &[u8], length: usize) -> Vec<u8> {
    let records = hello[5..].chunks(length).map(|part| {
        let [high, low] = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[22, 3, 1, high, low], part].concat()
    });
    records.collect::<Vec<_>>().concat()
}

#[test]
fn server_name_is_found_in_the_message_of_a_real_client() {
    let hello = client_hello("registry.example");
    assert_eq!(parse(&hello), named("registry.example"));
    for length in 0..hello.len() {
        assert_eq!(parse(&hello[..length]), Ok(Hello::Incomplete), "{length}");
    }
    for length in [1, 3, 100] {
        let records = in_records(&hello, length);
        assert_eq!(parse(&records), named("registry.example"));
        assert_eq!(parse(&records[..records.len() - 1]), Ok(Hello::Incomplete));
    }
    // The handshake of an address has no server name.
    assert_eq!(parse(&client_hello("10.0.0.5")), Ok(Hello::Complete { server_name: None }));
}

/// A message with these extensions.
fn hello_with(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let list = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let extensions: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, content)| [kind.to_be_bytes().to_vec(), list(content)].concat())
        .collect();
    let body = [&[3, 3][..], &[7; 32], &[0], &list(&[0x13, 0x01]), &[1, 0], &list(&extensions)].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1], &length[1..], &body].concat();
    [&[22, 3, 1][..], &list(&message)].concat()
}

fn name_extension(names: &[(u8, &str)]) -> (u16, Vec<u8>) {
    let list = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let names: Vec<u8> =
        names.iter().flat_map(|(kind, name)| [vec![*kind], list(name.as_bytes())].concat()).collect();
    (0, list(&names))
}

#[test]
fn messages_without_one_plain_name_are_refused() {
    let ok = name_extension(&[(0, "ok.com")]);
    assert_eq!(parse(&hello_with(std::slice::from_ref(&ok))), named("ok.com"));
    assert_eq!(parse(&hello_with(&[])), Ok(Hello::Complete { server_name: None }));
    for extensions in [
        vec![ok.clone(), name_extension(&[(0, "evil.com")])],
        vec![name_extension(&[(0, "ok.com"), (0, "evil.com")])],
        vec![name_extension(&[(1, "ok.com")])],
        vec![name_extension(&[])],
        vec![name_extension(&[(0, "")])],
        vec![name_extension(&[(0, "ok.com\0.evil.com")])],
        vec![name_extension(&[(0, "ok.com\r\n")])],
        vec![name_extension(&[(0, "b\u{fc}cher.example")])],
        // Encrypted Client Hello.
        vec![ok.clone(), (0xfe0d, vec![0, 0, 1, 0, 1])],
        vec![ok.clone(), (51, vec![]), (51, vec![])],
        vec![(0, vec![])],
        vec![(0, vec![0, 3, 0, 0])],
    ] {
        assert_eq!(parse(&hello_with(&extensions)), Err(HelloError::Malformed), "{extensions:?}");
    }
    let hello = hello_with(std::slice::from_ref(&ok));
    let changed = |at: usize, byte: u8| {
        let mut hello = hello.clone();
        hello[at] = byte;
        parse(&hello)
    };
    assert_eq!(changed(0, 21), Err(HelloError::NotTls));
    assert_eq!(changed(0, b'G'), Err(HelloError::NotTls));
    assert_eq!(changed(1, 2), Err(HelloError::NotTls));
    assert_eq!(changed(5, 2), Err(HelloError::Malformed), "a ServerHello");
    assert_eq!(changed(6, 1), Err(HelloError::Malformed), "a message of 64 KiB");
    assert_eq!(parse(&[22, 3, 1, 0, 0]), Err(HelloError::Malformed), "an empty record");
    assert_eq!(parse(&[22, 3, 1, 0x40, 1]), Err(HelloError::Malformed), "a record of more than 16 KiB");
    assert_eq!(parse(b"SSH-2.0-x\r\n"), Err(HelloError::NotTls));
    // A second message in the record of the first one.
    let mut twice = hello.clone();
    twice.extend_from_slice(&hello[5..]);
    let [high, low] = u16::try_from(twice.len() - 5).unwrap().to_be_bytes();
    (twice[3], twice[4]) = (high, low);
    assert_eq!(parse(&twice), Err(HelloError::Malformed));
    // A message in so many records that it is not read to its end.
    let endless = [&[22, 3, 1, 0, 4, 1, 0, 0x40, 0][..], &[22, 3, 1, 0, 1, 0].repeat(4000)].concat();
    assert_eq!(parse(&endless[..1000]), Ok(Hello::Incomplete));
    assert_eq!(parse(&endless), Err(HelloError::Malformed));
}

/// The server name that rustls finds.
fn rustls_name(bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = Acceptor::default();
    acceptor.read_tls(&mut Cursor::new(bytes)).ok()?;
    let accepted = acceptor.accept().ok()??;
    Some(accepted.client_hello().server_name().map(str::to_owned))
}

/// A mutated message never panics, and rustls finds no other server name in it. `FUZZ=N` sets the number of cases.
#[test]
fn mutated_messages_have_no_second_meaning() {
    let cases = super::fuzz_cases(20_000);
    let seeds = [
        client_hello("ok.com"),
        in_records(&client_hello("a.b.example"), 60),
        hello_with(&[name_extension(&[(0, "ok.com")]), (43, vec![2, 3, 4])]),
        client_hello("10.0.0.5"),
    ];
    let (mut accepted, mut agreed) = (0, 0);
    for case in 0..cases {
        let mut rng = Rng(case);
        let mut bytes = seeds[rng.below(seeds.len())].clone();
        for _ in 0..=rng.below(2) {
            rng.mutate(
                &mut bytes,
                &["\0", "\0\0\0\x09\0\x07\0\0\x04evil", "\x16\x03\x01\0\x01\x01", "evil.com"],
            );
        }
        let Ok(Hello::Complete { server_name }) = parse(&bytes) else { continue };
        accepted += 1;
        if let Some(Some(other)) = rustls_name(&bytes) {
            agreed += 1;
            let ours = server_name.map(|name| name.to_ascii_lowercase());
            assert_eq!(ours.as_deref(), Some(other.to_ascii_lowercase().as_str()), "case {case}");
        }
    }
    assert!(cases < 10_000 || (accepted > cases / 50 && agreed > cases / 100), "{accepted} {agreed}");
}
