//! What a program did to files, in the order in which it did it, as strace tells it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The calls that are looked at. A program that writes by any other call would be seen as one that writes nothing.
const CALLS: &str = "openat,pwrite64,pwritev,write,writev,fsync,fdatasync,ftruncate,fallocate,unlink,unlinkat,rename,renameat,renameat2";

/// One step of a program.
#[derive(Debug)]
pub enum Step {
    /// A file is opened, and created if it is not there.
    Open(PathBuf),
    /// Bytes are written to a place of a file.
    Write(PathBuf, usize, Vec<u8>),
    /// A file gets another length.
    Truncate(PathBuf, usize),
    /// A file is removed.
    Remove(PathBuf),
    /// The sync of this number begins.
    SyncBegins(u64, PathBuf),
    /// The sync of this number is over.
    SyncEnds(u64),
    /// Bytes are written to standard output.
    Stdout(Vec<u8>),
}

/// Has strace watch a command, and gives what the command did. Fails if the command does.
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
    let output = strace.output().unwrap_or_else(|error| panic!("strace does not start: {error}"));
    assert!(output.status.success(), "{output:?}");
    steps(&std::fs::read_to_string(trace).unwrap())
}

fn steps(trace: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    // The sync that each thread waits for.
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
    // Numbers stand after the text, and before the result or the note that there is none yet.
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

/// The path of the file whose number comes first: `9<path>`.
fn path(arguments: &str) -> PathBuf {
    let path = arguments.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    PathBuf::from(String::from_utf8_lossy(&unescape(path.map_or("", |(path, _)| path))).into_owned())
}

/// All texts between quotes.
fn quoted(arguments: &str) -> Vec<Vec<u8>> {
    arguments.split('"').skip(1).step_by(2).map(unescape).collect()
}

/// Bytes that are written as `\x6f`.
fn unescape(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).filter_map(|digits| u8::from_str_radix(digits.get(..2)?, 16).ok()).collect()
}
