//! Observers of trees whose models answer over HTTP.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade::core::event::CallFault;
use brigade::core::{Cursor, Event, Record, SessionId, Status};
use brigade::model::{RateLimits, Timeouts};
use brigade::observer::{LostObservations, ModelExchange, ModelRequestFacts};
use brigade::{
    Models, Observation, Observer, ResumeOptions, Run, RunEvent, RunResult, Runtime, Settings, Task,
    Workspace,
};
use brigade_testing::{AfterResponse, HttpResponse, HttpServer};

use super::recorded::OPENAI_TEXT;
use super::server::limited_openai;
use super::tree::openai_stream;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps all observations.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Observation>>>);

impl Observer for Recorder {
    fn observe(&mut self, observation: Observation) {
        self.0.lock().unwrap().push(observation);
    }
}

impl Recorder {
    fn all(&self) -> Vec<Observation> {
        self.0.lock().unwrap().clone()
    }

    fn records(&self) -> Vec<Arc<Record>> {
        let record = |observation| match observation {
            Observation::Event(RunEvent::Record(record)) => Some(record),
            _ => None,
        };
        self.all().into_iter().filter_map(record).collect()
    }

    fn requests(&self) -> Vec<Arc<ModelRequestFacts>> {
        let facts = |observation| match observation {
            Observation::ModelRequest(facts) => Some(facts),
            _ => None,
        };
        self.all().into_iter().filter_map(facts).collect()
    }

    fn lost(&self) -> LostObservations {
        let mut lost = LostObservations::default();
        for observation in self.all() {
            if let Observation::Lost(more) = observation {
                lost.provisional += more.provisional;
                lost.other += more.other;
            }
        }
        lost
    }

    /// Number of drivers that run each session now.
    fn running(&self) -> BTreeMap<SessionId, i32> {
        let mut running = BTreeMap::new();
        for observation in self.all() {
            match observation {
                Observation::SessionStarted(session) => *running.entry(session).or_default() += 1,
                Observation::SessionStopped(session) => *running.entry(session).or_default() -= 1,
                _ => {}
            }
        }
        running
    }
}

/// Passes observations to a recorder, and waits for a permit before each.
struct BlockedObserver {
    recorder: Recorder,
    permits: Receiver<()>,
    queue_length: usize,
}

impl BlockedObserver {
    fn new(recorder: &Recorder, queue_length: usize) -> (BlockedObserver, Sender<()>) {
        let (sender, permits) = channel();
        (BlockedObserver { recorder: recorder.clone(), permits, queue_length }, sender)
    }
}

impl Observer for BlockedObserver {
    fn observe(&mut self, observation: Observation) {
        // An error means that the sender is gone, and that the observer is no longer blocked.
        let _ = self.permits.recv();
        self.recorder.observe(observation);
    }

    fn queue_length(&self) -> usize {
        self.queue_length
    }
}

/// Panics at each event, and passes the rest to a recorder.
struct PanickingObserver(Recorder);

impl Observer for PanickingObserver {
    fn observe(&mut self, observation: Observation) {
        assert!(!matches!(observation, Observation::Event(_)), "this panic is part of the test");
        self.0.observe(observation);
    }
}

/// A lead that delegates to two children.
fn delegating_server(delay: Duration) -> HttpServer {
    HttpServer::start(move |request| HttpResponse::events(&openai_stream(&request.json())).delayed(delay))
}

fn runtime(server: &HttpServer, tweak: impl FnOnce(&mut Settings)) -> Runtime {
    let mut settings = Settings::new("mock/small", Workspace::open(&std::env::temp_dir()).unwrap());
    settings.limits.retry_pause = Duration::from_millis(5);
    tweak(&mut settings);
    let model = limited_openai(server, RateLimits::default(), Timeouts::default());
    Runtime::in_memory(settings, Models::default().with("mock", model))
}

fn observed(server: &HttpServer, tweak: impl FnOnce(&mut Settings)) -> (Runtime, Recorder) {
    let recorder = Recorder::default();
    let runtime = runtime(server, |settings| {
        settings.observers.add(recorder.clone()).unwrap();
        tweak(settings);
    });
    (runtime, recorder)
}

async fn start(runtime: &Runtime) -> Run {
    runtime.start(Task::new("Cook something.")).await.unwrap()
}

async fn finish(run: Run) -> RunResult {
    tokio::time::timeout(TEST_TIMEOUT, run.result()).await.expect("the run hangs").unwrap()
}

async fn flush(runtime: &Runtime) {
    tokio::time::timeout(TEST_TIMEOUT, runtime.settings().observers.flush())
        .await
        .expect("the observer hangs");
}

/// Checks that the observer saw the log of each tree, in order.
async fn assert_saw_the_log(runtime: &Runtime, recorder: &Recorder, roots: &[&SessionId]) {
    for root in roots {
        let mut stored: BTreeMap<SessionId, Vec<Record>> = BTreeMap::new();
        for record in runtime.store().tail(root, Cursor::START, usize::MAX).await.unwrap() {
            stored.entry(record.session.clone()).or_default().push(record);
        }
        let mut seen: BTreeMap<SessionId, Vec<Record>> = BTreeMap::new();
        for record in recorder.records().iter().filter(|record| root.contains(&record.session)) {
            seen.entry(record.session.clone()).or_default().push(Record::clone(record));
        }
        assert_eq!(format!("{seen:#?}"), format!("{stored:#?}"));
    }
}

#[tokio::test]
async fn observer_of_two_trees_sees_all_events_and_requests() {
    let server = delegating_server(Duration::ZERO);
    let (runtime, recorder) = observed(&server, |_| {});
    // Other runtimes of the process have the same observers, for example those of a server.
    let model = limited_openai(&server, RateLimits::default(), Timeouts::default());
    let models = Models::default().with("mock", model);
    let other = Runtime::new(runtime.store().clone(), runtime.settings().clone(), models);
    let (one, two) = tokio::join!(start(&runtime), start(&other));
    let (one, two) = (finish(one).await, finish(two).await);
    assert_eq!((one.outcome.status, two.outcome.status), (Status::Done, Status::Done));
    flush(&runtime).await;
    assert_saw_the_log(&runtime, &recorder, &[&one.session, &two.session]).await;
    let requests = recorder.requests();
    assert_eq!((requests.len(), server.request_count()), (8, 8));
    for facts in &requests {
        assert_eq!((facts.provider.as_str(), facts.model.as_str()), ("mock", "small"));
        assert_eq!(facts.exchange, ModelExchange { sends: 1, status: Some(200) });
        assert!(facts.outcome.is_ok() && facts.attempt == 1, "{facts:?}");
        assert!(facts.timing.first_byte.unwrap() <= facts.timing.total, "{facts:?}");
        assert!(facts.spent.usage.total() > 0, "{facts:?}");
    }
    let running = recorder.running();
    assert_eq!(running.len(), 6);
    assert!(running.values().all(|count| *count == 0), "{running:?}");
    assert_eq!(recorder.lost(), LostObservations::default());
}

#[tokio::test]
async fn facts_of_a_refused_request_contain_its_wait_and_sends() {
    let server = HttpServer::start(|request| match request.number {
        0 => HttpResponse::with_headers("429 Too Many Requests", "retry-after-ms: 300\r\n", ""),
        _ => HttpResponse::events(OPENAI_TEXT).delayed(Duration::from_millis(150)),
    });
    let (runtime, recorder) = observed(&server, |_| {});
    finish(start(&runtime).await).await;
    flush(&runtime).await;
    let [facts] = &recorder.requests()[..] else { panic!("{:?}", recorder.requests()) };
    assert_eq!(facts.exchange, ModelExchange { sends: 2, status: Some(200) });
    let timing = &facts.timing;
    assert!(timing.queue_wait >= Duration::from_millis(300), "{timing:?}");
    assert!(timing.first_byte.unwrap() >= Duration::from_millis(150), "{timing:?}");
    assert!(timing.total >= timing.queue_wait + timing.first_byte.unwrap(), "{timing:?}");
    assert!(timing.started_at > 0);
}

#[tokio::test]
async fn facts_of_failed_attempts_contain_their_status_and_fault() {
    let server = HttpServer::start(|request| match request.number {
        0 => HttpResponse::new("500 Internal Server Error", "{}"),
        1 => HttpResponse::nothing(),
        _ => HttpResponse::events(OPENAI_TEXT),
    });
    let (runtime, recorder) = observed(&server, |_| {});
    finish(start(&runtime).await).await;
    flush(&runtime).await;
    let requests = recorder.requests();
    let seen: Vec<_> =
        requests.iter().map(|facts| (facts.attempt, facts.exchange.status, facts.outcome.is_ok())).collect();
    assert_eq!(seen, [(1, Some(500), false), (2, None, false), (3, Some(200), true)]);
    assert!(matches!(requests[0].outcome, Err(CallFault::Transient { .. })), "{:?}", requests[0]);
    assert_eq!((requests[1].timing.first_byte, requests[1].exchange.sends), (None, 1));
}

#[tokio::test]
async fn facts_of_a_child_that_waited_contain_the_wait_for_its_slot() {
    const DELAY: Duration = Duration::from_millis(200);
    let server = delegating_server(DELAY);
    let (runtime, recorder) = observed(&server, |settings| settings.limits.concurrency = 1);
    finish(start(&runtime).await).await;
    flush(&runtime).await;
    let mut waits: Vec<Duration> = recorder
        .requests()
        .iter()
        .filter(|facts| !facts.session.is_root())
        .map(|facts| facts.timing.slot_wait)
        .collect();
    waits.sort();
    assert!(matches!(waits[..], [first, second] if first < DELAY && second >= DELAY), "{waits:?}");
}

/// The runtime has one thread, so that an observer which blocked it would stop the run for good.
#[tokio::test(flavor = "current_thread")]
async fn blocked_observer_delays_no_run_and_is_told_what_it_lost() {
    const QUEUE_LENGTH: usize = 8;
    let server = delegating_server(Duration::ZERO);
    let (blocked, all) = (Recorder::default(), Recorder::default());
    let (observer, permits) = BlockedObserver::new(&blocked, QUEUE_LENGTH);
    let runtime = runtime(&server, |settings| {
        settings.observers.add(observer).unwrap();
        settings.observers.add(all.clone()).unwrap();
    });
    let ending = finish(start(&runtime).await).await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(blocked.all().is_empty(), "it was blocked");
    drop(permits);
    flush(&runtime).await;
    let count = |recorder: &Recorder| {
        let is_lost = |observation: &&Observation| matches!(observation, Observation::Lost(_));
        (recorder.all().len() - recorder.all().iter().filter(is_lost).count()) as u64
    };
    let lost = blocked.lost();
    assert!(lost.other > 0, "{lost:?}");
    assert!(count(&blocked) <= QUEUE_LENGTH as u64 + 1);
    assert_eq!(count(&blocked) + lost.other + lost.provisional, count(&all));
    assert_eq!(all.lost(), LostObservations::default(), "the other observer has a queue of its own");
}

#[tokio::test]
async fn panicking_observer_affects_no_run_and_is_called_again() {
    let server = delegating_server(Duration::ZERO);
    let (panicking, all) = (Recorder::default(), Recorder::default());
    let runtime = runtime(&server, |settings| {
        settings.observers.add(PanickingObserver(panicking.clone())).unwrap();
        settings.observers.add(all.clone()).unwrap();
    });
    let ending = finish(start(&runtime).await).await;
    assert_eq!(ending.outcome.status, Status::Done);
    flush(&runtime).await;
    let events = all.all().iter().filter(|seen| matches!(seen, Observation::Event(_))).count() as u64;
    assert!(events > 0);
    assert_eq!(panicking.lost().other, events);
    assert_eq!(panicking.requests().len(), 4);
}

#[tokio::test]
async fn dropped_run_is_reported_as_stopped_and_its_resume_as_started() {
    let server = HttpServer::start(|request| match request.number {
        0 => HttpResponse::nothing().then(AfterResponse::Stall),
        _ => HttpResponse::events(OPENAI_TEXT),
    });
    let (runtime, recorder) = observed(&server, |_| {});
    let run = start(&runtime).await;
    let session = run.session().clone();
    let sent = async {
        while server.request_count() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, sent).await.expect("the request is not sent");
    drop(run);
    let stopped = async {
        while recorder.running().get(&session) != Some(&0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, stopped).await.expect("the stop is not reported");
    assert!(recorder.requests().is_empty());
    let ending = finish(runtime.resume(&session, ResumeOptions::default()).await.unwrap()).await;
    assert_eq!(ending.outcome.status, Status::Done);
    flush(&runtime).await;
    assert_eq!(recorder.running()[&session], 0);
    assert!(recorder.records().iter().any(|record| matches!(record.event, Event::Resumed { .. })));
    assert_saw_the_log(&runtime, &recorder, &[&session]).await;
}

/// Observers are dropped with their settings, so that they can write what they have collected.
#[tokio::test]
async fn observer_without_settings_is_dropped() {
    struct DropReport(Sender<()>);
    impl Observer for DropReport {
        fn observe(&mut self, _: Observation) {}
    }
    impl Drop for DropReport {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let server = HttpServer::always(HttpResponse::events(OPENAI_TEXT));
    let (sender, dropped) = channel();
    let runtime = runtime(&server, |settings| settings.observers.add(DropReport(sender)).unwrap());
    finish(start(&runtime).await).await;
    assert!(dropped.try_recv().is_err());
    drop(runtime);
    tokio::task::spawn_blocking(move || dropped.recv_timeout(TEST_TIMEOUT).unwrap()).await.unwrap();
}
