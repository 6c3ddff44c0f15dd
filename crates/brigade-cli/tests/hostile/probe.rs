//! The test program itself as a command of an agent, for connections that a shell cannot make.

use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;

use brigade_testing::TestProgram;

const PROBE: TestProgram = TestProgram::new(module_path!(), "probe_entry");

/// Command line that makes the attempt in the variable `ATTEMPT`, such as `udp 53`.
pub(crate) fn command() -> String {
    let (program, arguments) = PROBE.command();
    let quoted =
        std::iter::once(program).chain(arguments).map(|word| format!("'{}'", word.replace('\'', "'\\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "the entry point of a program, not a test"]
fn probe_entry() {
    if !PROBE.is_running() {
        return;
    }
    let attempt = std::env::var("ATTEMPT").unwrap();
    let done = match attempt.split(' ').collect::<Vec<_>>().as_slice() {
        ["udp", port] => UdpSocket::bind("127.0.0.1:0").and_then(|socket| {
            socket.send_to(b"secret.evil.example", format!("127.0.0.1:{port}")).map(|_| ())
        }),
        ["tcp", port] => TcpStream::connect(format!("127.0.0.1:{port}")).map(|_| ()),
        ["unix", path] => UnixStream::connect(path).map(|_| ()),
        _ => panic!("{attempt}"),
    };
    eprintln!("probe: {attempt}: {done:?}");
}
