//! `kill -9` at many moments of a run over HTTP, then `brigade resume`. The witness is a server between the two that
//! keeps every request.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use brigade_outer_tests::{Aimock, FORMATS, Format, Place, Server};
use serde_json::Value;

use crate::fixtures;

/// Runs that have to be hit.
const POINTS: u32 = 24;
/// Runs in all: some have ended before the signal comes.
const MOST_RUNS: u32 = 80;

/// Each task, and what only the second request about it has. A request is about the first task that it names.
const TASKS: [(&str, Option<&str>); 6] = [
    ("the whole meal", Some("make the starter")),
    ("make the main course", Some("roast the meat")),
    ("make the dessert", Some("dessert.txt")),
    ("make the starter", None),
    ("roast the meat", None),
    ("stir the sauce", None),
];
const TURNS: usize = 9;
const RESULTS: [&str; 3] =
    ["the starter is served", "the main course is on the plate", "the dessert stands in dessert.txt"];

/// A task and the number of the turn.
type Turn = (&'static str, u64);

struct Kitchen {
    place: Place,
    server: Server,
}

impl Kitchen {
    fn new(format: &Format, aimock: &Aimock) -> Kitchen {
        let server = Server::before(&aimock.address);
        let provider = format.provider("it", &server.address);
        let place = Place::new(&format!("model = 'it/small'\n[swarm]\nmax_depth = 3\n{provider}"));
        Kitchen { place, server }
    }

    fn start(&self) -> std::process::Child {
        let arguments = ["run", "cook the whole meal", "--output-format", "json"];
        self.place.start(self.place.command(&arguments).env("THE_KEY", Aimock::KEY))
    }

    /// How often each turn was bought.
    fn bought(&self) -> BTreeMap<Turn, u32> {
        let mut bought = BTreeMap::new();
        // A request that was cut off in the middle buys nothing.
        for asked in self.server.asked().iter().filter(|asked| asked.json().is_object()) {
            let body = String::from_utf8_lossy(&asked.body).into_owned();
            let (task, second) = TASKS.iter().find(|(task, _)| body.contains(task)).unwrap();
            let turn = if second.is_some_and(|mark| body.contains(mark)) { 2 } else { 1 };
            *bought.entry((*task, turn)).or_default() += 1;
        }
        bought
    }
}

/// The task of a fact's session.
fn task(facts: &[Value], session: &Value) -> &'static str {
    let started = facts.iter().find(|fact| fact["session"] == *session && fact["event"]["type"] == "started");
    let text = started.unwrap()["event"]["delegation"]["task"].as_str().unwrap();
    TASKS.iter().map(|(task, _)| *task).find(|task| text.contains(task)).unwrap()
}

/// The turns with a recorded reply.
fn replied(facts: &[Value]) -> Vec<Turn> {
    let replied = facts.iter().filter(|fact| fact["event"]["type"] == "replied");
    replied.map(|fact| (task(facts, &fact["session"]), fact["event"]["turn"].as_u64().unwrap())).collect()
}

/// The sessions with a call that the crash interrupted, each as often as it has one.
fn interrupted(facts: &[Value]) -> Vec<&'static str> {
    let is = |fact: &&Value| {
        fact["event"]["type"] == "call_failed" && fact["event"]["cause"]["kind"] == "interrupted"
    };
    facts.iter().filter(is).map(|fact| task(facts, &fact["session"])).collect()
}

#[test]
fn kill_nine_and_resume_buy_nothing_twice_that_was_recorded() {
    // Slow pieces, so that most moments are within a reply.
    let aimock = Aimock::start(&fixtures("meal.json"), &["--latency", "6", "--chunk-size", "6"]);
    let mut whole = whole_run(&aimock);
    let mut killed = 0;
    for run in 0..MOST_RUNS {
        // The golden ratio spreads the moments evenly, however many there will be.
        let moment = (f64::from(run) * 0.618_033_988_75).fract();
        let format = FORMATS.iter().cycle().nth(run as usize).unwrap();
        match one_kill(format, &aimock, whole.mul_f64(moment)) {
            Hit::Yes => killed += 1,
            Hit::BeforeTheFirstFact => {}
            // Runs are quicker than the first one was.
            Hit::AfterTheEnd => whole = whole.mul_f64(moment.max(0.5)),
        }
        if killed == POINTS {
            return;
        }
    }
    panic!("only {killed} runs were hit");
}

fn whole_run(aimock: &Aimock) -> Duration {
    let kitchen = Kitchen::new(&FORMATS[0], aimock);
    let started = Instant::now();
    let done = kitchen.place.finish(kitchen.start());
    assert_eq!(done.code, 0, "{done:?}");
    let bought = kitchen.bought();
    assert!(bought.len() == TURNS && bought.values().all(|times| *times == 1), "{bought:?}");
    started.elapsed()
}

enum Hit {
    Yes,
    BeforeTheFirstFact,
    AfterTheEnd,
}

/// Kills a run after this long and resumes it.
fn one_kill(format: &Format, aimock: &Aimock, after: Duration) -> Hit {
    let kitchen = Kitchen::new(format, aimock);
    let mut run = kitchen.start();
    std::thread::sleep(after);
    if run.try_wait().unwrap().is_some() {
        return Hit::AfterTheEnd;
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let Some(root) = kitchen.place.sessions().first().cloned() else { return Hit::BeforeTheFirstFact };
    let recorded = replied(&kitchen.place.facts(&root));
    let done = kitchen.place.with_key(Aimock::KEY, &["resume", &root, "--output-format", "json"]);
    assert_eq!(done.code, 0, "{format:?} {done:?}");
    assert_eq!(done.report()["result"], "The meal is ready: starter, main course and dessert.");
    let cake = std::fs::read_to_string(kitchen.place.path("work/dessert.txt")).unwrap();
    assert_eq!(cake, "one cake");
    check_purchases(&kitchen, &root, &recorded);
    Hit::Yes
}

fn check_purchases(kitchen: &Kitchen, root: &str, recorded: &[Turn]) {
    let bought = kitchen.bought();
    let facts = kitchen.place.facts(root);
    assert_eq!((bought.len(), replied(&facts).len()), (TURNS, TURNS), "{bought:?}");
    for turn in recorded {
        assert_eq!(bought[turn], 1, "a recorded reply was bought again: {turn:?}");
    }
    let interrupted = interrupted(&facts);
    for (task, _) in TASKS {
        let again: u32 = bought.iter().filter(|(turn, _)| turn.0 == task).map(|(_, times)| times - 1).sum();
        let calls = interrupted.iter().filter(|of| **of == task).count();
        assert!(calls <= 1, "{task}: one crash interrupted {calls} calls");
        assert!(again as usize <= calls, "{task}: {again} bought again, {calls} interrupted");
    }
    let asked = kitchen.server.asked();
    let last = String::from_utf8_lossy(&asked.last().unwrap().body).into_owned();
    for result in RESULTS {
        assert_eq!(last.matches(result).count(), 1, "{result} in {last}");
    }
}
