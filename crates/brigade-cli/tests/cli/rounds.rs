//! Long conversations in one process.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use brigade_testing::Script;

use crate::cli::support::Home;

/// Bytes that a process has read so far, from files and from its input.
fn bytes_read(process: u32) -> u64 {
    let counters = std::fs::read_to_string(format!("/proc/{process}/io")).unwrap();
    let read = counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    read.parse().unwrap()
}

#[test]
fn bytes_read_per_round_of_a_chat_do_not_grow_with_its_log() {
    let home = Home::new();
    let model = home.script(Script::new().reply("turn {turn}: {heard}"));
    let mut command = home.command(&["chat", "--model", &model]);
    let mut chat = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut answers = BufReader::new(chat.stdout.take().unwrap()).lines();
    let mut input = chat.stdin.take().unwrap();
    let mut rounds = |count: u32| {
        let before = bytes_read(chat.id());
        for _ in 0..count {
            writeln!(input, "a message of some length, so that a log of many of them is long").unwrap();
            answers.next().unwrap().unwrap();
        }
        (bytes_read(chat.id()) - before) / u64::from(count)
    };
    rounds(20);
    let early = rounds(10);
    rounds(160);
    let late = rounds(10);
    println!("bytes read per round: {early} early, {late} late");
    assert!(late < early + early / 2, "{early} bytes in early rounds, {late} in late ones");
    drop(input);
    assert!(chat.wait().unwrap().success());
}
