//! The test program itself as a command inside a sandbox, for what a shell cannot try.
#![expect(unsafe_code, reason = "system calls without a wrapper")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use brigade_sandbox::{GuardCommand, single_quoted};
use rustix::net::{AddressFamily, SocketType, socket};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// A command that runs a probe. Its results are lines that start with `probe: `.
pub(crate) fn probe(what: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let program = single_quoted(program.to_str().unwrap());
    format!("PROBE={} {program} --exact probe::entry --ignored --nocapture 2>&1", single_quoted(what))
}

/// A guard that is denied these system calls, as by a container or an old kernel. `clone` is denied only with a new user
/// namespace.
pub(crate) fn guard_that_cannot(denied: &[libc::c_long], guard: &GuardCommand) -> GuardCommand {
    let numbers: Vec<String> = denied.iter().map(libc::c_long::to_string).collect();
    let what = format!("exec {} {}", numbers.join(","), guard.program.display());
    // The output of the test harness must not reach the runner.
    let script = format!("exec 3>&1 >/dev/null; export TAG=\"$0\"; {}", probe(&what).replace(" 2>&1", ""));
    GuardCommand { program: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] }
}

#[test]
#[ignore = "a command for other tests"]
fn entry() {
    let what = std::env::var("PROBE").unwrap();
    let words: Vec<&str> = what.split(' ').collect();
    let report = |line: String| println!("\nprobe: {line}");
    match words.as_slice() {
        ["rename", from, to] => report(format!("{:?}", fs::rename(from, to))),
        ["read", path] => report(format!("{:?}", fs::read_to_string(path))),
        ["tcp", address] => {
            report(outcome(TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(2))));
        }
        ["unix", path] => report(outcome(UnixStream::connect(path))),
        ["abstract", name] => {
            report(outcome(UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap())));
        }
        ["own-network"] => own_network().into_iter().for_each(report),
        ["socket"] => report(outcome(socket(AddressFamily::INET, SocketType::STREAM, None))),
        ["proxy"] => report(proxy()),
        ["memory", mebibytes] => {
            let memory = vec![1_u8; mebibytes.parse::<usize>().unwrap() << 20];
            std::thread::sleep(Duration::from_secs(60));
            drop(memory);
        }
        ["system-calls"] => system_calls().into_iter().for_each(report),
        ["exec", numbers, program] => exec_without(numbers, program),
        _ => panic!("{what}"),
    }
    std::process::exit(0);
}

fn outcome<T, E: std::fmt::Display>(result: Result<T, E>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "connected".to_owned())
}

/// Sockets on the loopback interface, and attempts to leave it.
fn own_network() -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = outcome(TcpStream::connect(listener.local_addr().unwrap()));
    let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
    let mut lines = vec![own, outcome(udp.send_to(b"x", "192.0.2.1:53"))];
    // AF_PACKET, AF_VSOCK and AF_ALG.
    for family in [17, 40, 38] {
        lines.push(outcome(socket(AddressFamily::from_raw(family), SocketType::RAW, None)));
    }
    lines
}

fn proxy() -> String {
    let address = std::env::var("http_proxy").unwrap();
    let mut stream = TcpStream::connect(address.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(b"ping").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Calls that could undo a sandbox, with their errors.
fn system_calls() -> Vec<String> {
    let call = |name: &str, number: libc::c_long, flags: libc::c_int| {
        // SAFETY: the arguments are zero or flags, so that a call that is not denied fails or does nothing that this
        // process, which exits, would notice.
        let answer = unsafe { libc::syscall(number, flags, 0, 0, 0, 0) };
        format!("{name} {answer} {}", std::io::Error::last_os_error())
    };
    let user = libc::CLONE_NEWUSER;
    let mut lines: Vec<String> = [
        ("bpf", libc::SYS_bpf),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("keyctl", libc::SYS_keyctl),
        ("mount", libc::SYS_mount),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("open_tree", libc::SYS_open_tree),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("pivot_root", libc::SYS_pivot_root),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("ptrace", libc::SYS_ptrace),
        ("setns", libc::SYS_setns),
        ("umount2", libc::SYS_umount2),
        ("unshare", libc::SYS_unshare),
        ("userfaultfd", libc::SYS_userfaultfd),
    ]
    .map(|(name, number)| call(name, number, user))
    .into();
    lines.push(call("clone", libc::SYS_clone, user | libc::SIGCHLD));
    lines.push(call("clone3", libc::SYS_clone3, 0));
    #[cfg(target_arch = "x86_64")]
    lines.push(call("x32", 0x4000_0000 | libc::SYS_getpid, 0));
    lines
}

/// Starts a guard under a filter.
fn exec_without(numbers: &str, program: &str) {
    let user = libc::CLONE_NEWUSER as u64;
    let has_user =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(user), user).unwrap();
    let rule = |number: libc::c_long| match number {
        libc::SYS_clone => (number, vec![SeccompRule::new(vec![has_user.clone()]).unwrap()]),
        number => (number, Vec::new()),
    };
    let rules: BTreeMap<_, _> = numbers.split(',').map(|number| rule(number.parse().unwrap())).collect();
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&filter).unwrap();
    let tag = std::env::var("TAG").unwrap();
    // SAFETY: the descriptor is the output that the shell kept, and nothing else uses it.
    let output: std::os::fd::OwnedFd = unsafe { std::os::fd::FromRawFd::from_raw_fd(3) };
    rustix::stdio::dup2_stdout(output).unwrap();
    let error = Command::new(program).arg(tag).env_clear().exec();
    assert_eq!(error.raw_os_error(), None, "cannot start the guard: {error}");
}
