//! Fuzz tests of every adapter with randomly corrupted recordings. `FUZZ=N` sets the number of cases;
//! `FUZZ_SEED=N` with `FUZZ=1` reproduces one of them.

use std::sync::Arc;
use std::sync::LazyLock;

use brigade_core::{Message, Purpose, Reply, SessionId};
use serde_json::Value;
use serde_json::value::RawValue;

use super::http::{ChunkBuffer, Decoder, Endpoint, arguments_object};
use super::sse::{SseEvent, SseParser};
use super::{Ingest, Request, anthropic, gemini, openai, responses};

#[path = "../../brigade/tests/models/recorded.rs"]
mod recorded;

/// Default number of cases. They take a few seconds.
const CASES: u64 = 4_000;

static ENDPOINT: LazyLock<Endpoint> =
    LazyLock::new(|| Endpoint::new("mock", "http://127.0.0.1:1", None).expect("an address"));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Chat,
    Messages,
    Responses,
    Gemini,
}

const APIS: [Api; 4] = [Api::Chat, Api::Messages, Api::Responses, Api::Gemini];

const STREAMS: [(Api, &str); 8] = [
    (Api::Chat, recorded::OPENAI_TEXT),
    (Api::Chat, recorded::OPENAI_CALLS),
    (Api::Messages, recorded::ANTHROPIC_TEXT),
    (Api::Messages, recorded::ANTHROPIC_CALLS),
    (Api::Responses, recorded::RESPONSES_TEXT),
    (Api::Responses, recorded::RESPONSES_CALLS),
    (Api::Gemini, recorded::GEMINI_TEXT),
    (Api::Gemini, recorded::GEMINI_CALLS),
];

/// Fragments that are inserted to corrupt a stream.
const SNIPPETS: [&str; 24] = [
    "null",
    "[]",
    "{}",
    "-1",
    "1e999",
    "18446744073709551616",
    "0",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "true",
    "[DONE]",
    "\n",
    "\r",
    "\n\n",
    "data: ",
    "event: error\n",
    ": note\n",
    "{\"error\":",
    "\u{feff}",
    "\u{1F980}",
    "{",
    "}",
];

/// Deterministic random numbers (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which must not be 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("below a usize")
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// Returns a random range within `length` bytes.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let from = self.below(length + 1);
        let longest = if self.one_in(4) { length - from } else { (length - from).min(40) };
        (from, from + self.below(longest + 1))
    }
}

/// Prints the seed of the current case if it panics.
struct PrintSeedOnPanic(u64);

impl Drop for PrintSeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run it again with FUZZ=1 FUZZ_SEED={}", self.0);
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let (from, to) = rng.range(bytes.len());
    match rng.below(10) {
        0 if !bytes.is_empty() => {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        1 if !bytes.is_empty() => {
            let at = rng.below(bytes.len());
            bytes[at] = rng.next().to_le_bytes()[0];
        }
        2 => bytes.truncate(from),
        3 => drop(bytes.drain(from..to)),
        4 => {
            let twice = bytes[from..to].to_vec();
            bytes.splice(to..to, twice);
        }
        5 => {
            let other = rng.pick(&STREAMS).1.as_bytes();
            let (start, end) = rng.range(other.len());
            bytes.splice(from..to, other[start..end].iter().copied());
        }
        6 => drop(bytes.splice(from..from, rng.pick(&SNIPPETS).bytes())),
        7 => replace_value(bytes, from, rng),
        _ => mutate_events(bytes, rng),
    }
}

/// Replaces the next JSON value with a random fragment.
fn replace_value(bytes: &mut Vec<u8>, from: usize, rng: &mut Rng) {
    let Some(colon) = bytes[from..].iter().position(|byte| *byte == b':') else { return };
    let start = from + colon + 1;
    let length = bytes[start..].iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b'\n'));
    let piece = rng.pick(&SNIPPETS);
    bytes.splice(start..start + length.unwrap_or_default(), piece.bytes());
}

/// Removes, duplicates or moves a whole event.
fn mutate_events(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut events: Vec<&str> = text.split_inclusive("\n\n").collect();
    if events.is_empty() {
        return;
    }
    let (at, to) = (rng.below(events.len()), rng.below(events.len()));
    match rng.below(3) {
        0 => drop(events.remove(at)),
        1 => events.insert(to, events[at]),
        _ => events.swap(at, to),
    }
    *bytes = events.concat().into_bytes();
}

/// Parses the data of an event. Decoders skip unknown keys, even with invalid numbers in them. Such an event
/// is returned as a string.
fn event_value(event: &SseEvent) -> Value {
    serde_json::from_str(&event.data).unwrap_or_else(|_| Value::String(event.data.clone()))
}

/// Whether an event has a string under `key`, in the list or object `parent`.
fn has_text(value: &Value, parent: &str, key: &str) -> bool {
    let is_text = |one: &Value| one.get(key).is_some_and(Value::is_string);
    match (value, value.get(parent)) {
        (Value::String(text), _) => text.contains(&format!("\"{key}\":\"")),
        (_, Some(Value::Array(list))) => list.iter().any(is_text),
        (_, other) => other.is_some_and(is_text),
    }
}

/// Whether the events end the reply, and the body was read to its end.
fn is_reply_complete(api: Api, events: &[SseEvent], has_end: bool) -> bool {
    let any = |parent: &str, key: &str| events.iter().any(|event| has_text(&event_value(event), parent, key));
    let is = |event: &SseEvent, kinds: &[&str]| match event_value(event) {
        Value::String(text) => kinds.iter().any(|kind| text.contains(kind)),
        value => {
            let kind = value["type"].as_str().filter(|kind| !kind.is_empty());
            kinds.contains(&kind.unwrap_or(&event.name))
        }
    };
    match api {
        Api::Chat => {
            let is_ended = has_end || events.iter().any(|event| event.data.trim() == "[DONE]");
            is_ended && any("choices", "finish_reason")
        }
        Api::Messages => {
            any("delta", "stop_reason") && events.iter().any(|event| is(event, &["message_stop"]))
        }
        Api::Responses => {
            events.iter().any(|event| is(event, &["response.completed", "response.incomplete"]))
        }
        Api::Gemini => {
            let is_listed = events.iter().any(|event| {
                let first = event_value(event).get(0).cloned().unwrap_or_default();
                has_text(&first, "candidates", "finishReason")
                    || has_text(&first, "promptFeedback", "blockReason")
            });
            has_end
                && (is_listed || any("candidates", "finishReason") || any("promptFeedback", "blockReason"))
        }
    }
}

/// Feeds the bytes to a decoder in random pieces. Asserts that only a complete stream yields a reply.
fn decode(api: Api, mut decoder: impl Decoder, bytes: &[u8], rng: &mut Rng) -> Option<Reply> {
    let (mut parser, mut seen, mut chunks) = (SseParser::default(), Vec::new(), ChunkBuffer::default());
    let (mut left, mut is_broken) = (bytes, false);
    while !left.is_empty() && !is_broken && !chunks.is_done() {
        let longest = if rng.one_in(3) { left.len() } else { left.len().min(30) };
        let (piece, rest) = left.split_at(1 + rng.below(longest));
        left = rest;
        let mut events = Vec::new();
        is_broken = parser.feed(piece, &mut events).is_err();
        for event in events {
            let taken = decoder.take(&event, &mut chunks);
            seen.push(event);
            if taken.is_err() {
                is_broken = true;
                break;
            }
            if chunks.is_done() {
                break;
            }
        }
    }
    let has_end = !is_broken && rng.one_in(2);
    if has_end && !chunks.is_done() {
        let _ = decoder.end(&mut chunks);
    }
    let mut ingest = Ingest::default();
    while let Some(chunk) = chunks.next() {
        ingest.take(chunk).expect("pieces that belong together, the terminal one last");
    }
    let reply = ingest.finish().ok().map(|(reply, _)| reply);
    assert!(
        reply.is_none() || is_reply_complete(api, &seen, has_end),
        "{api:?} gave a reply that was not over"
    );
    reply
}

fn decode_as(api: Api, bytes: &[u8], rng: &mut Rng) -> Option<Reply> {
    let (endpoint, name) = (ENDPOINT.clone(), "gemini-3".to_owned());
    match api {
        Api::Chat => decode(api, openai::reply::Decoder::new(endpoint, 9, true), bytes, rng),
        Api::Messages => decode(api, anthropic::reply::Decoder::new(endpoint, 9), bytes, rng),
        Api::Responses => decode(api, responses::reply::Decoder::new(endpoint, name, 9), bytes, rng),
        Api::Gemini => decode(api, gemini::reply::Decoder::new(endpoint, name, 9), bytes, rng),
    }
}

/// Writes a request that contains this reply, for every API.
fn write_requests_with(reply: Reply) {
    let request = Request {
        session: SessionId::root(7),
        agent: "lead".to_owned(),
        role: None,
        turn: 1,
        attempt: 1,
        purpose: Purpose::Turn,
        model: "gemini-3".to_owned(),
        system: "You help.".into(),
        tools: [].into(),
        messages: vec![Message::Assistant(Arc::new(reply))],
        max_tokens: 9,
        temperature: None,
        remote_context: None,
    };
    openai::OpenAi::compatible(ENDPOINT.clone()).write(&request).expect("a request");
    anthropic::Anthropic::new(ENDPOINT.clone()).write(&request).expect("a request");
    responses::Responses::new(ENDPOINT.clone()).write(&request).expect("a request");
    gemini::Gemini::new(ENDPOINT.clone()).write(&request).expect("a request");
}

/// Arguments are always sent as an object, whatever the model wrote.
fn check_arguments(text: &str) {
    let _ = brigade_core::json::parse(text);
    let sent = arguments_object(text);
    let is_json = serde_json::from_str::<&RawValue>(&sent).is_ok();
    assert!(is_json && sent.trim_start().starts_with('{'), "{sent}");
}

fn run_case(seed: u64) -> bool {
    let _case = PrintSeedOnPanic(seed);
    let mut rng = Rng(seed);
    let (recorded_api, stream) = rng.pick(&STREAMS);
    let mut bytes = stream.as_bytes().to_vec();
    if rng.one_in(20) {
        bytes = (0..rng.below(300)).map(|_| rng.next().to_le_bytes()[0]).collect();
    }
    for _ in 0..rng.below(6) {
        mutate(&mut bytes, &mut rng);
    }
    let api = if rng.one_in(5) { rng.pick(&APIS) } else { recorded_api };
    let reply = decode_as(api, &bytes, &mut rng);
    let (from, to) = rng.range(bytes.len());
    check_arguments(&String::from_utf8_lossy(&bytes[from..to]));
    let is_reply = reply.is_some();
    if let Some(reply) = reply {
        reply.calls.iter().for_each(|call| check_arguments(call.arguments.as_str()));
        write_requests_with(reply);
    }
    is_reply
}

#[test]
#[expect(clippy::disallowed_methods, reason = "only a long run by hand sets them")]
fn mutated_streams_never_panic() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (cases, seed) = (number("FUZZ").unwrap_or(CASES), number("FUZZ_SEED").unwrap_or(1));
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let count = |first: u64| {
        (seed + first..seed + cases).step_by(threads as usize).filter(|seed| run_case(*seed)).count()
    };
    let replies: usize = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads.min(cases)).map(|first| scope.spawn(move || count(first))).collect();
        runs.into_iter().map(|run| run.join().expect("no case falls over")).sum()
    });
    println!("{cases} streams, {replies} replies");
    // One case in ten is barely corrupted, so that whole replies are covered too.
    assert!(cases < 100 || replies as u64 > cases / 20, "only {replies} of {cases} are replies");
}
