//! File operations of a program in order, as recorded by strace.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The traced system calls. Writes by any other call would be missed.
const CALLS: &str = "openat,pwrite64,pwritev,write,writev,fsync,fdatasync,ftruncate,fallocate,unlink,unlinkat,rename,renameat,renameat2";

/// One operation.
#[derive(Debug)]
pub enum Step {
    /// Opens a file, and creates it if it does not exist.
    Open(PathBuf),
    /// Writes bytes at an offset.
    Write(PathBuf, usize, Vec<u8>),
    /// Changes the length of a file.
    Truncate(PathBuf, usize),
    /// Removes a file.
    Remove(PathBuf),
    /// Begins the sync with this number.
    SyncBegins(u64, PathBuf),
    /// Ends the sync with this number.
    SyncEnds(u64),
    /// Writes bytes to standard output.
    Stdout(Vec<u8>),
}

/// Runs a command under strace and returns its operations. Fails if the command fails.
#[expect(clippy::disallowed_methods, reason = "the tests start the command")]
pub fn trace(command: &Command, trace: &Path) -> Vec<Step> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-xx", "-s", "100000000", "-e", &format!("trace={CALLS}"), "-o"]).arg(trace);
    strace.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        strace.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    let output = strace.output().unwrap_or_else(|error| panic!("cannot start strace: {error}"));
    assert!(output.status.success(), "{output:?}");
    steps(&std::fs::read_to_string(trace).unwrap())
}

fn steps(trace: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    // The sync that each thread is waiting for.
    let mut syncing: HashMap<&str, u64> = HashMap::new();
    let mut syncs = 0;
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(resumed) = rest.strip_prefix("<... ") {
            if resumed.starts_with("fsync") || resumed.starts_with("fdatasync") {
                steps.extend(syncing.remove(thread).map(Step::SyncEnds));
            }
            continue;
        }
        let Some((call, arguments)) = rest.split_once('(') else { continue };
        let is_unfinished = arguments.ends_with("<unfinished ...>");
        if !is_unfinished && arguments.contains(" = -1 ") {
            continue;
        }
        match call {
            "fsync" | "fdatasync" => {
                syncs += 1;
                steps.push(Step::SyncBegins(syncs, path(arguments)));
                if is_unfinished {
                    syncing.insert(thread, syncs);
                } else {
                    steps.push(Step::SyncEnds(syncs));
                }
            }
            _ => steps.extend(step(call, arguments)),
        }
    }
    steps
}

fn step(call: &str, arguments: &str) -> Option<Step> {
    let texts = quoted(arguments);
    let named = || PathBuf::from(String::from_utf8_lossy(texts.first().unwrap()).into_owned());
    // Numbers follow the text, before the result or the note that the call is unfinished.
    let numbers = || -> Vec<usize> {
        let rest = arguments.rsplit_once('"').map_or(arguments, |(_, rest)| rest);
        let rest = rest.split([')', '<']).next().unwrap_or_default();
        rest.split(',').filter_map(|number| number.trim().parse().ok()).collect()
    };
    match call {
        "openat" => arguments.contains("O_CREAT").then(|| Step::Open(named())),
        "pwrite64" => Some(Step::Write(path(arguments), *numbers().last()?, texts.into_iter().next()?)),
        "write" => {
            arguments.starts_with("1<").then(|| Step::Stdout(texts.into_iter().next().unwrap_or_default()))
        }
        "ftruncate" => {
            let rest = arguments.split_once('>')?.1.split([')', '<']).next()?;
            Some(Step::Truncate(path(arguments), rest.trim_start_matches(',').trim().parse().ok()?))
        }
        "unlink" | "unlinkat" => Some(Step::Remove(named())),
        _ => None,
    }
}

/// The path of the first file descriptor: `9<path>`.
fn path(arguments: &str) -> PathBuf {
    let path = arguments.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    PathBuf::from(String::from_utf8_lossy(&unescape(path.map_or("", |(path, _)| path))).into_owned())
}

/// All quoted strings.
fn quoted(arguments: &str) -> Vec<Vec<u8>> {
    arguments.split('"').skip(1).step_by(2).map(unescape).collect()
}

/// Decodes bytes that are written as `\x6f`.
fn unescape(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).filter_map(|digits| u8::from_str_radix(digits.get(..2)?, 16).ok()).collect()
}
