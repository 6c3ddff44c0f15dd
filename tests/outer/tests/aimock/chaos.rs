//! A server with rate limits, disconnects and malformed replies.

use brigade_outer_tests::{Aimock, CommandOutput, FORMATS, Format, TestEnv};
use serde_json::{Value, json};

use crate::aimock::test_env;

/// Random rejections slow down the rate limiter more and more. Many short runs keep each of them fast.
const CHILDREN: usize = 8;
const RUNS: usize = 16;
/// Numbers of chunks after which a reply is cut. Some replies have fewer.
const PIECES: usize = 20;
/// With this few chunks no call is complete.
const SURELY_CUT: usize = 2;

const CHAOS: [&str; 10] = [
    "--chaos-ratelimit",
    "0.2",
    "--chaos-disconnect",
    "0.1",
    "--chaos-malformed",
    "0.1",
    "--latency",
    "2",
    "--chunk-size",
    "8",
];

/// A lead with many children. Each writes a file and reports it.
fn many() -> Value {
    let numbers = || (0..CHILDREN).map(|number| format!("part{number:02}"));
    let calls: Vec<Value> = numbers()
        .map(|part| json!({ "name": "delegate", "arguments": { "role": part, "task": format!("write {part}") } }))
        .collect();
    let lead = |answered: bool| json!({ "userMessage": "write all parts", "hasToolResult": answered });
    let mut fixtures = vec![
        json!({ "match": lead(false), "response": { "toolCalls": calls } }),
        json!({ "match": lead(true), "response": { "content": "all parts are seen to" } }),
    ];
    for part in numbers() {
        let child =
            |answered: bool| json!({ "userMessage": format!("write {part}"), "hasToolResult": answered });
        let write = json!({ "path": format!("{part}.txt"), "content": format!("this is {part}") });
        let call = json!({ "toolCalls": [{ "name": "write_file", "arguments": write }] });
        fixtures.push(json!({ "match": child(false), "response": call }));
        fixtures
            .push(json!({ "match": child(true), "response": { "content": format!("{part} is written") } }));
    }
    json!({ "fixtures": fixtures })
}

fn start(fixtures: &Value, flags: &[&str]) -> Aimock {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fixtures.json");
    std::fs::write(&file, fixtures.to_string()).unwrap();
    Aimock::start(&file, flags)
}

#[test]
fn random_faults_are_reported_accurately() {
    let aimock = start(&many(), &CHAOS);
    let mut failed = 0;
    for format in FORMATS.iter().cycle().take(RUNS) {
        let env = test_env(format, &aimock.address);
        let output = env.run_with_key(Aimock::KEY, &["run", "write all parts", "--output-format", "json"]);
        failed += check_run(&env, &output);
    }
    let journal = aimock.journal();
    let spoilt = |action: &str| journal.iter().any(|entry| entry["response"]["chaosAction"] == action);
    assert!(["rateLimit", "disconnect", "malformed"].into_iter().all(spoilt), "there was no chaos");
    assert!(failed < CHILDREN, "{failed} of {} children failed", CHILDREN * RUNS);
}

/// Checks that the report, the log and the files agree. Returns the number of failed children.
fn check_run(env: &TestEnv, output: &CommandOutput) -> usize {
    let report = output.report();
    let events = env.events(report["session_id"].as_str().unwrap());
    let children = report["agents"].as_array().unwrap().iter().skip(1);
    let mut failed = 0;
    for child in children {
        let (part, session) = (child["agent"].as_str().unwrap(), &child["session_id"]);
        let of_child = |kind: &str| {
            let is = |event: &&Value| event["session"] == *session && event["event"]["type"] == kind;
            events.iter().filter(is).collect::<Vec<_>>()
        };
        assert_eq!(of_child("ended").len(), 1, "{part}");
        let wrote = std::fs::read_to_string(env.path("work").join(format!("{part}.txt"))).ok();
        match child["status"].as_str().unwrap() {
            "done" => {
                let ended = of_child("ended");
                assert_eq!(ended[0]["event"]["outcome"]["text"], format!("{part} is written"));
                assert_eq!(wrote, Some(format!("this is {part}")));
                assert_eq!(of_child("tool_started").len(), 1, "{part}");
            }
            "failed" => {
                failed += 1;
                assert!(child["error"].as_str().is_some_and(|error| error.contains("attempts")), "{child}");
                assert_eq!(wrote.is_some(), of_child("tool_started").len() == 1, "{part}");
            }
            status => panic!("{part} is {status}"),
        }
    }
    failed
}

/// Replies with a call, each cut after a different number of chunks. The chunks are sent one by one, because
/// a single write would be lost with the connection.
fn cuts() -> Value {
    let write = json!({ "path": "cut.txt", "content": "a text that is long enough for several pieces" });
    let call =
        json!({ "content": "I write it.", "toolCalls": [{ "name": "write_file", "arguments": write }] });
    let of = |pieces: usize| {
        let task = format!("cut it after {pieces}.");
        [
            json!({ "match": { "userMessage": task, "hasToolResult": false }, "response": call, "chunkSize": 16, "latency": 3,
                    "truncateAfterChunks": pieces }),
            json!({ "match": { "userMessage": task, "hasToolResult": true }, "response": { "content": "written" } }),
        ]
    };
    json!({ "fixtures": (1..=PIECES).flat_map(of).collect::<Vec<_>>() })
}

#[test]
fn calls_of_a_truncated_reply_do_not_run() {
    let aimock = &start(&cuts(), &[]);
    std::thread::scope(|scope| {
        for format in FORMATS {
            scope.spawn(move || {
                let written = (1..=PIECES).filter(|pieces| writes(format, &aimock.address, *pieces)).count();
                assert!(
                    (1..=PIECES - SURELY_CUT).contains(&written),
                    "{format:?}: {written} of {PIECES} were whole"
                );
            });
        }
    });
}

/// Whether the file was written after a reply with this many chunks.
fn writes(format: &Format, address: &str, pieces: usize) -> bool {
    let env = test_env(format, address);
    let task = format!("cut it after {pieces}.");
    let output = env.run_with_key(Aimock::KEY, &["run", &task, "--output-format", "json"]);
    let report = output.report();
    let events = env.events(report["session_id"].as_str().unwrap());
    let is = |kind: &str| events.iter().any(|event| event["event"]["type"] == kind);
    let written = env.path("work").join("cut.txt").exists();
    assert_eq!(is("replied"), written, "{format:?} after {pieces} pieces: {output:?}");
    assert_eq!(is("tool_started"), written, "{format:?} after {pieces} pieces: {output:?}");
    assert_eq!(output.code == 0, written, "{format:?} after {pieces} pieces: {output:?}");
    assert!(!written || pieces > SURELY_CUT, "{format:?} after {pieces} pieces: {output:?}");
    written
}
