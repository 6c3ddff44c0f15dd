//! Cost of delegation, compared with appending the same events without an engine.
//!
//! `cargo bench --profile dist -p brigade --bench foundation` prints a table. Every figure is the median of five
//! interleaved runs. Add a name to run one part: `cargo bench --profile dist -p brigade --bench foundation --
//! delegation`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a library")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::core::{Budget, Cursor, Event, SessionId, State, Text};
use brigade::model::script::Script;
use brigade::model::{Chunk, Ingest};
use brigade::store::sqlite::SqliteStore;
use brigade::store::{Append, Expect, Owner};
use brigade::{Models, Runtime, Settings, Store, Task, Workspace};

const RUNS: usize = 5;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if let [part, place] = arguments.as_slice()
        && part == "saturate"
    {
        return saturate(Path::new(place));
    }
    if let [part, count] = arguments.as_slice()
        && part == "live"
    {
        return live(count.parse().unwrap());
    }
    let wanted = |name: &str| arguments.first().is_none_or(|only| only == name);
    println!("{:<58} {:>12}  bound", "what (median of 5)", "figure");
    if wanted("delegation") {
        delegation();
    }
    if wanted("memory") {
        memory();
    }
    if wanted("append") {
        append_beside_a_saturated_process();
    }
    if wanted("chunks") {
        chunks();
    }
    if wanted("open") {
        open_a_long_session();
    }
}

fn row(what: &str, figure: String, bound: &str) {
    println!("{what:<58} {figure:>12}  {bound}");
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// CPU time of this process, over all threads.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

fn script(children: usize, delay_ms: u64) -> String {
    format!(
        "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
         arguments = {{ role = 'Child', task = 'CHILD {{n}}' }}\nrepeat = {children}\n\
         [[reply]]\nagent = 'lead'\ntext = 'all done'\n\
         [[reply]]\nagent = 'Child'\ntext = 'done'\ndelay_ms = {delay_ms}\n"
    )
}

fn settings(folder: &Path) -> Settings {
    let mut settings = Settings::new("script", Workspace::open(folder).unwrap());
    settings.delegation_styles.swarm.max_concurrent = u32::MAX;
    settings.limits.concurrency = usize::MAX;
    settings.budget = Budget::UNLIMITED;
    settings
}

fn threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Runs a fan of children on SQLite. Returns the CPU time per child in microseconds, and the bytes of its events.
fn fan(children: usize) -> (f64, f64) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("sessions.db")).unwrap());
    let models = Models::default().with("script", Script::parse(&script(children, 0)).unwrap());
    let runtime = Runtime::new(store.clone(), settings(folder.path()), models);
    let before = cpu();
    let bytes = threads().block_on(async {
        let result = runtime.start(Task::new("FANOUT")).await.unwrap().result().await.unwrap();
        assert_eq!(result.spent.agents, children as u64);
        result
    });
    let used = cpu() - before;
    let log = threads().block_on(store.tail(&bytes.session, Cursor::START, usize::MAX)).unwrap();
    let encoded: usize = log
        .iter()
        .filter(|record| !matches!(&record.event, Event::Replied { reply, .. } if !reply.calls.is_empty()))
        .map(|record| serde_json::to_string(&record.event).unwrap().len())
        .sum();
    (used.as_secs_f64() * 1e6 / children as f64, encoded as f64 / children as f64)
}

/// Baseline: the same number of events of the same size, appended in batches of a thousand without an engine.
fn floor(children: usize) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("sessions.db")).unwrap();
    let session = SessionId::root(7);
    let event = Event::CancelAsked { by: "x".repeat(150) };
    let before = cpu();
    threads().block_on(async {
        let lease = store.lease(&session, &Owner::this_process(), 1).await.unwrap();
        let mut length = 0;
        for _ in 0..(children * 7).div_ceil(1000) {
            let append = Append {
                session: session.clone(),
                expect: Expect::Length(length),
                events: vec![event.clone(); 1000].into(),
                blobs: Vec::new(),
                lease: Some(lease.clone()),
                at: 1,
            };
            store.append(append).await.unwrap();
            length += 1000;
        }
    });
    (cpu() - before).as_secs_f64() * 1e6 / children as f64
}

fn delegation() {
    let (mut thousand, mut ten_thousand, mut floors, mut bytes) = (vec![], vec![], vec![], vec![]);
    for _ in 0..RUNS {
        let (cost, size) = fan(1_000);
        thousand.push(cost);
        bytes.push(size);
        ten_thousand.push(fan(10_000).0);
        floors.push(floor(1_000));
    }
    let (one, ten, floor) = (median(thousand), median(ten_thousand), median(floors));
    row("1,000 delegations of one turn, synced: CPU each", format!("{one:.0} us"), "at most 120 us");
    row("10,000 delegations of one turn, synced: CPU each", format!("{ten:.0} us"), "");
    row("  as a ratio to 1,000", format!("{:.2}", ten / one), "at most 1.3");
    row("floor: the same facts in batches, no engine: CPU each", format!("{floor:.0} us"), "");
    row("  1,000 delegations as a ratio to the floor", format!("{:.1}", one / floor), "");
    row("a trivial delegation: bytes of encoded facts", format!("{:.0}", median(bytes)), "at most 2048");
}

/// Holds `count` children that wait for their model, and prints the resident kilobytes per child.
fn live(count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("sessions.db")).unwrap());
    let models = Models::default().with("script", Script::parse(&script(count, 600_000)).unwrap());
    let runtime = Runtime::new(store.clone(), settings(folder.path()), models);
    threads().block_on(async {
        let before = resident_kilobytes();
        let mut run = runtime.start(Task::new("FANOUT")).await.unwrap();
        // Without a reader, queued events would count towards the memory of the agents.
        drop(run.take_events());
        let root = run.session().clone();
        while store.sessions(&root).await.unwrap().len() < count + 1 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        println!("{}", (resident_kilobytes() - before) as f64 / count as f64);
    });
}

fn resident_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[expect(clippy::disallowed_methods, reason = "the benchmark measures processes of its own")]
fn again(arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}

fn memory() {
    let measure = || {
        let output = again(&["live", "10000"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<f64>().unwrap()
    };
    let figures = (0..RUNS).map(|_| measure()).collect();
    row("10,000 live sub-agents: resident each", format!("{:.1} KB", median(figures)), "at most 20 KB");
}

/// Appends as fast as possible until it is killed.
fn saturate(place: &Path) {
    let store = Arc::new(SqliteStore::open(place).unwrap());
    threads().block_on(async move {
        let tasks = (0..64).map(|number: u128| {
            let store = store.clone();
            async move {
                let session = SessionId::root(1000 + number);
                let lease = store.lease(&session, &Owner::this_process(), 1).await.unwrap();
                for length in 0.. {
                    store.append(one_fact(&session, length, lease.clone())).await.unwrap();
                }
            }
        });
        futures::future::join_all(tasks).await;
    });
}

fn one_fact(session: &SessionId, length: u64, lease: brigade::store::Lease) -> Append {
    Append {
        session: session.clone(),
        expect: Expect::Length(length),
        events: vec![Event::CancelAsked { by: "x".repeat(150) }].into(),
        blobs: Vec::new(),
        lease: Some(lease),
        at: 1,
    }
}

fn append_beside_a_saturated_process() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("sessions.db");
    let store = SqliteStore::open(&place).unwrap();
    let mut other = again(&["saturate", place.to_str().unwrap()]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let session = SessionId::root(1);
    let mut times = Vec::new();
    threads().block_on(async {
        let lease = store.lease(&session, &Owner::this_process(), 1).await.unwrap();
        for length in 0..1_000 {
            let started = Instant::now();
            store.append(one_fact(&session, length, lease.clone())).await.unwrap();
            times.push(started.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    other.kill().unwrap();
    other.wait().unwrap();
    times.sort_by(f64::total_cmp);
    row("append beside a saturated process: p50", format!("{:.1} ms", times[500]), "");
    row("append beside a saturated process: p99", format!("{:.1} ms", times[990]), "under 50 ms");
}

fn chunks() {
    let measure = || {
        let started = Instant::now();
        let mut ingest = Ingest::default();
        for _ in 0..20_000 {
            ingest.take(Chunk::Text("token ".to_owned())).unwrap();
        }
        ingest.take(Chunk::Done(brigade::core::message::Stop::End)).unwrap();
        let (reply, _) = ingest.finish().unwrap();
        assert_eq!(reply.text.len(), 120_000);
        started.elapsed().as_secs_f64() * 1e6 / 20_000.0
    };
    row(
        "20,000 chunks folded: each",
        format!("{:.2} us", median((0..RUNS).map(|_| measure()).collect())),
        "at most 5 us",
    );
    let whole = || {
        let folder = tempfile::tempdir().unwrap();
        let text = "[[reply]]\nchunks = 20000\ntext = '''".to_owned() + &"token ".repeat(20_000) + "'''";
        let models = Models::default().with("script", Script::parse(&text).unwrap());
        let runtime = Runtime::in_memory(settings(folder.path()), models);
        let before = cpu();
        threads().block_on(async {
            let run = runtime.start(Task::new("stream")).await.unwrap();
            let mut watch = run.subscribe();
            let watching = async { while watch.next().await.is_some() {} };
            let (result, ()) = tokio::join!(run.result(), watching);
            result.unwrap();
        });
        (cpu() - before).as_secs_f64() * 1e6 / 20_000.0
    };
    let figure = median((0..RUNS).map(|_| whole()).collect());
    row("20,000 chunks through the driver, watched: CPU each", format!("{figure:.2} us"), "at most 5 us");
}

fn open_a_long_session() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("sessions.db");
    let text =
        "[[reply]]\ntext = 'working'\n[[reply.call]]\ntool = 'echo'\narguments = { text = 'again {turn}' }\n";
    let models = Models::default().with("script", Script::parse(text).unwrap());
    let mut settings = settings(folder.path());
    settings.limits.lead_turns = 2_500;
    let store = Arc::new(SqliteStore::open(&place).unwrap());
    let runtime = Runtime::new(store, settings, models);
    let session = threads()
        .block_on(async { runtime.start(Task::new("long")).await.unwrap().result().await.unwrap().session });
    drop(runtime);
    let measure = || {
        let started = Instant::now();
        let store = SqliteStore::open(&place).unwrap();
        let records = threads().block_on(store.read(&session, 0)).unwrap();
        let state = State::fold(session.clone(), records.iter().map(|record| &record.event));
        assert!(records.len() >= 10_000 && state.ended().is_some());
        assert!(matches!(state.last_text(), Text::Inline(_)));
        started.elapsed().as_secs_f64() * 1e3
    };
    let figure = median((0..RUNS).map(|_| measure()).collect());
    row("opening a session of 10,000 facts", format!("{figure:.1} ms"), "under 50 ms");
}
