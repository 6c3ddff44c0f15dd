//! `kill -9` at many points of a run over HTTP, then `brigade resume`. A proxy records every request as
//! evidence.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use brigade_outer_tests::{Aimock, FORMATS, Format, RecordingServer, TestEnv};
use serde_json::Value;

use crate::aimock::fixtures;

/// Minimum number of runs that have to be killed.
const MIN_KILLS: u32 = 24;
/// Maximum number of runs. Some end before the signal arrives.
const MAX_RUNS: u32 = 80;

/// Each task, and a text that only its second request contains. A request belongs to the first task that it
/// contains.
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
    ["the starter is served", "the main course is on the plate", "the dessert is in dessert.txt"];

type Turn = (&'static str, u64);

struct KillTest {
    env: TestEnv,
    server: RecordingServer,
}

impl KillTest {
    fn new(format: &Format, aimock: &Aimock) -> KillTest {
        let server = RecordingServer::forwarding_to(&aimock.address);
        let provider = format.provider("it", &server.address);
        let env = TestEnv::new(&format!("model = 'it/small'\n[swarm]\nmax_depth = 3\n{provider}"));
        KillTest { env, server }
    }

    fn start(&self) -> std::process::Child {
        let arguments = ["run", "cook the whole meal", "--output-format", "json"];
        self.env.start(self.env.command(&arguments).env("THE_KEY", Aimock::KEY))
    }

    /// Number of requests for each turn.
    fn requests_per_turn(&self) -> BTreeMap<Turn, u32> {
        let mut requests_per_turn = BTreeMap::new();
        // An incomplete request costs nothing.
        for request in self.server.requests().iter().filter(|request| request.json().is_object()) {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let (task, second) = TASKS.iter().find(|(task, _)| body.contains(task)).unwrap();
            let turn = if second.is_some_and(|mark| body.contains(mark)) { 2 } else { 1 };
            *requests_per_turn.entry((*task, turn)).or_default() += 1;
        }
        requests_per_turn
    }
}

/// The task of an event's session.
fn task(events: &[Value], session: &Value) -> &'static str {
    let started =
        events.iter().find(|event| event["session"] == *session && event["event"]["type"] == "started");
    let text = started.unwrap()["event"]["delegation"]["task"].as_str().unwrap();
    TASKS.iter().map(|(task, _)| *task).find(|task| text.contains(task)).unwrap()
}

/// The turns with a recorded reply.
fn replied(events: &[Value]) -> Vec<Turn> {
    let replied = events.iter().filter(|event| event["event"]["type"] == "replied");
    replied.map(|event| (task(events, &event["session"]), event["event"]["turn"].as_u64().unwrap())).collect()
}

/// The sessions of the calls that the crash interrupted, once per call.
fn interrupted(events: &[Value]) -> Vec<&'static str> {
    let is = |event: &&Value| {
        event["event"]["type"] == "call_failed" && event["event"]["cause"]["kind"] == "interrupted"
    };
    events.iter().filter(is).map(|event| task(events, &event["session"])).collect()
}

#[test]
fn kill_and_resume_repeat_no_recorded_model_call() {
    // Slow chunks, so that most kills happen within a reply.
    let aimock = Aimock::start(&fixtures("meal.json"), &["--latency", "6", "--chunk-size", "6"]);
    let mut whole = whole_run(&aimock);
    let mut killed = 0;
    for run in 0..MAX_RUNS {
        // The golden ratio spreads the kill times evenly, whatever their number.
        let moment = (f64::from(run) * 0.618_033_988_75).fract();
        let format = FORMATS.iter().cycle().nth(run as usize).unwrap();
        match one_kill(format, &aimock, whole.mul_f64(moment)) {
            Hit::Yes => killed += 1,
            Hit::BeforeTheFirstEvent => {}
            // Runs are faster than the first one.
            Hit::AfterTheEnd => whole = whole.mul_f64(moment.max(0.5)),
        }
        if killed == MIN_KILLS {
            return;
        }
    }
    panic!("only {killed} runs were hit");
}

fn whole_run(aimock: &Aimock) -> Duration {
    let test = KillTest::new(&FORMATS[0], aimock);
    let started = Instant::now();
    let output = test.env.finish(test.start());
    assert_eq!(output.code, 0, "{output:?}");
    let requests_per_turn = test.requests_per_turn();
    assert!(
        requests_per_turn.len() == TURNS && requests_per_turn.values().all(|times| *times == 1),
        "{requests_per_turn:?}"
    );
    started.elapsed()
}

enum Hit {
    Yes,
    BeforeTheFirstEvent,
    AfterTheEnd,
}

/// Kills a run after this time and resumes it.
fn one_kill(format: &Format, aimock: &Aimock, after: Duration) -> Hit {
    let test = KillTest::new(format, aimock);
    let mut run = test.start();
    std::thread::sleep(after);
    if run.try_wait().unwrap().is_some() {
        return Hit::AfterTheEnd;
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let Some(root) = test.env.sessions().first().cloned() else { return Hit::BeforeTheFirstEvent };
    let recorded = replied(&test.env.events(&root));
    let output = test.env.run_with_key(Aimock::KEY, &["resume", &root, "--output-format", "json"]);
    assert_eq!(output.code, 0, "{format:?} {output:?}");
    assert_eq!(output.report()["result"], "The meal is ready: starter, main course and dessert.");
    let cake = std::fs::read_to_string(test.env.path("work/dessert.txt")).unwrap();
    assert_eq!(cake, "one cake");
    check_requests(&test, &root, &recorded);
    Hit::Yes
}

fn check_requests(test: &KillTest, root: &str, recorded: &[Turn]) {
    let requests_per_turn = test.requests_per_turn();
    let events = test.env.events(root);
    assert_eq!((requests_per_turn.len(), replied(&events).len()), (TURNS, TURNS), "{requests_per_turn:?}");
    for turn in recorded {
        assert_eq!(requests_per_turn[turn], 1, "a recorded reply was bought again: {turn:?}");
    }
    let interrupted = interrupted(&events);
    for (task, _) in TASKS {
        let again: u32 =
            requests_per_turn.iter().filter(|(turn, _)| turn.0 == task).map(|(_, times)| times - 1).sum();
        let calls = interrupted.iter().filter(|of| **of == task).count();
        assert!(calls <= 1, "{task}: one crash interrupted {calls} calls");
        assert!(again as usize <= calls, "{task}: {again} bought again, {calls} interrupted");
    }
    let requests = test.server.requests();
    let last = String::from_utf8_lossy(&requests.last().unwrap().body).into_owned();
    for result in RESULTS {
        assert_eq!(last.matches(result).count(), 1, "{result} in {last}");
    }
}
