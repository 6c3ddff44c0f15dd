//! Messages to a guard that are not as the runner sends them.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use brigade_sandbox::Confinement;
use serde_json::{Value, json};

use crate::sandbox::Place;
use crate::support::{guard, job};

/// Number of messages, unless `FUZZ` names another.
const CASES: u64 = 400;

/// Numbers that look random, the same in every run with this seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A complete message that runs `command` in the sandbox of a place.
fn message(place: &Place, command: &str) -> Value {
    let confinement = Confinement::Sandbox(Box::new(place.sandbox()));
    let directory: Vec<u8> = place.path("project").to_str().unwrap().bytes().collect();
    json!({ "Run": {
        "command": command,
        "directory": directory,
        "environment": [["PATH", "/usr/bin:/bin"]],
        "time_limit": { "secs": 5, "nanos": 0 },
        "output_limit": 1000,
        "limits": {},
        "confinement": serde_json::to_value(confinement).unwrap(),
        "streams": "Reported",
        "layers": { "directory": place.path("layers").into_os_string(), "shared": [] },
    } })
}

/// Values that take the place of others.
fn replacement(numbers: &mut Numbers, place: &Place) -> Value {
    let path = |name: &str| json!({ "Unix": place.path(name).to_str().unwrap().as_bytes() });
    let values = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!("off"),
        json!("proxy"),
        json!([]),
        json!({}),
        json!([[], {}, null]),
        path("project"),
        path("project/src/../../outside"),
        path("no/such"),
        json!({ "Unix": [] }),
        json!({ "Unix": [47, 0, 46] }),
        json!({ "Unix": [255, 254] }),
        json!([path("project"), path("project")]),
        json!("x".repeat(70_000)),
    ];
    values[numbers.below(values.len())].clone()
}

/// Changes one value somewhere, renames or removes a field, or adds one.
fn mutate(value: &mut Value, numbers: &mut Numbers, place: &Place) {
    let goes_deeper = numbers.below(4) > 0;
    match value {
        Value::Object(fields) if !fields.is_empty() && goes_deeper => {
            let name = fields.keys().nth(numbers.below(fields.len())).cloned().unwrap();
            match numbers.below(12) {
                0 => drop(fields.remove(&name)),
                1 => {
                    let moved = fields.remove(&name).unwrap();
                    fields.insert(format!("{name}2"), moved);
                }
                2 => drop(fields.insert("unknown".into(), replacement(numbers, place))),
                _ => mutate(fields.get_mut(&name).unwrap(), numbers, place),
            }
        }
        Value::Array(items) if !items.is_empty() && goes_deeper => {
            let index = numbers.below(items.len());
            match numbers.below(8) {
                0 => drop(items.remove(index)),
                1 => items.push(items[index].clone()),
                _ => mutate(&mut items[index], numbers, place),
            }
        }
        value => *value = replacement(numbers, place),
    }
}

/// Sends a message to a guard. Returns its exit code and what it wrote.
fn send(tag: &str, body: &[u8]) -> (Option<i32>, Vec<u8>, String) {
    let mut command = Command::new(guard().program);
    command.arg(tag).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // A guard that refuses the length does not read the rest.
    let _ = input.write_all(&(body.len() as u32).to_le_bytes()).and_then(|()| input.write_all(body));
    let (mut output, mut errors) = (Vec::new(), String::new());
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    // A served command gets this end as its input and output.
    let _ = child.stderr.take().unwrap().read_to_string(&mut errors);
    let code = child.wait().unwrap().code();
    drop(input);
    (code, output, errors)
}

/// The paths of a list in the sandbox of a message, if it is one.
fn listed<'a>(message: &'a Value, list: &str) -> Vec<&'a Value> {
    let sandbox = &message["Run"]["confinement"]["sandbox"];
    sandbox[list].as_array().into_iter().flatten().collect()
}

fn covers(listed: &Value, path: &Path) -> bool {
    let bytes: Option<Vec<u8>> = listed["Unix"]
        .as_array()
        .and_then(|bytes| bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).is_some_and(|text| path.starts_with(text))
}

/// Whatever the message, the guard does not panic, and a command does nothing that its description does not allow.
#[test]
fn no_message_makes_a_guard_panic_or_run_a_command_without_its_sandbox() {
    let place = Place::new();
    fs::create_dir(place.path("layers")).unwrap();
    let (cases, seed) = (number("FUZZ").unwrap_or(CASES), number("FUZZ_SEED").unwrap_or(1));
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (outside, secret) = (place.path("outside/file"), place.path("project/.env"));
    let command = "echo ran; cat .env; echo pwned > ../outside/file; echo pwned > .git/config";
    let valid = message(&place, command);
    let tag = job("").tag;
    let (mut ran, mut refused) = (0, 0);
    for case in 0..=cases {
        let mut message = valid.clone();
        for _ in 0..numbers.below(3).min(case as usize) + usize::from(case > 0) {
            mutate(&mut message, &mut numbers, &place);
        }
        let mut body = message.to_string().into_bytes();
        let is_damaged = case > 0 && numbers.below(4) == 0;
        if is_damaged {
            let index = numbers.below(body.len());
            match numbers.below(3) {
                0 => body.truncate(index),
                1 => body[index] ^= 1 << numbers.below(8),
                _ => drop(body.remove(index)),
            }
            // A changed byte may name another path.
            message = serde_json::from_slice(&body).unwrap_or(Value::Null);
        }
        let (code, output, errors) = send(&tag, &body);
        let shown = || format!("case {case} of seed {seed}: {}", String::from_utf8_lossy(&body));
        assert!(matches!(code, Some(0 | 3)), "{code:?} {errors} {}", shown());
        assert!(!errors.contains("panicked"), "{errors} {}", shown());
        let text = String::from_utf8_lossy(&output);
        let has_run = text.contains("ran\n");
        ran += u32::from(has_run);
        refused += u32::from(!has_run);
        let hides = listed(&message, "hidden").iter().any(|path| covers(path, &secret));
        assert!(!hides || !text.contains("CANARY"), "{text} {}", shown());
        let may_write = |path: &Path| {
            ["writable", "discarded"]
                .iter()
                .any(|list| listed(&message, list).iter().any(|of| covers(of, path)))
        };
        let written = fs::read_to_string(&outside).unwrap() != "outside";
        assert!(!written || may_write(&outside), "{}", shown());
        fs::write(&outside, "outside").unwrap();
        let config = place.path("project/.git/config");
        let protects = listed(&message, "protected").iter().any(|path| covers(path, &config));
        let is_same = fs::read_to_string(&config).is_ok_and(|text| text == "[core]\n");
        assert!(is_same || (may_write(&config) && !protects), "{}", shown());
        fs::write(&config, "[core]\n").unwrap();
        assert!(case > 0 || has_run, "the message itself is a good one: {text} {errors}");
    }
    assert!(ran > 0 && refused > 0, "{ran} {refused}");
}
