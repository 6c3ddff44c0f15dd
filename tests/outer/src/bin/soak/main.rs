//! Soak test: sequential and concurrent trees on one store, over HTTP, with a fault in one of a hundred
//! replies.
//!
//! `SOAK_SECONDS` sets the duration. Every tree is checked when it ends. Some trees are dropped in the middle
//! and resumed, some are cancelled. At the end the memory, open files and store are checked, and the
//! measurements are printed. The exit code is 1 if any check failed.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a program for tests")]

mod checks;
mod figures;
mod model;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brigade::core::{Cursor, SessionId, Status};
use brigade::model::openai::OpenAi;
use brigade::model::{Endpoint, RateLimits, Timeouts};
use brigade::store::Owner;
use brigade::store::sqlite::SqliteStore;
use brigade::{Models, ResumeOptions, Run, Runtime, Settings, Task, Workspace};

use figures::Figures;

/// The same allocator as in the `brigade` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DEFAULT_SECONDS: u64 = 25;
/// Number of concurrent trees.
const WORKERS: usize = 6;
/// Time limit of a tree on a busy machine.
const TREE_TIMEOUT: Duration = Duration::from_secs(120);
/// One in this many trees is dropped in the middle and resumed, and one is cancelled.
const DISTURBED_EVERY: u64 = 40;
/// One in this many trees stays in the store, to be read again at the end.
const KEPT_EVERY: u64 = 50;

fn main() -> ExitCode {
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if std::env::args().nth(1).as_deref() == Some("serve") {
        threads.block_on(model::serve());
    }
    let seconds = std::env::var("SOAK_SECONDS").ok().map(|text| text.parse().unwrap());
    let duration = Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS));
    let (text, faults) = threads.block_on(soak(duration));
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}").unwrap();
    for fault in &faults {
        writeln!(output, "FAULT: {fault}").unwrap();
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The model, in a separate process so that its memory is not counted.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start() -> Server {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut process = command.arg("serve").stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { process, address: format!("127.0.0.1:{}", line.trim()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// State that all workers share.
struct Soak {
    runtime: Runtime,
    folder: tempfile::TempDir,
    next: AtomicU64,
    figures: Figures,
}

async fn soak(duration: Duration) -> (String, Vec<String>) {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let store_path = folder.path().join("sessions.db");
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let mut settings = Settings::new("mock/small", Workspace::open(&work).unwrap());
    settings.limits.retry_pause = Duration::from_millis(20);
    let address = format!("http://{}/v1", server.address);
    let endpoint =
        Endpoint::with_limits("mock", &address, None, RateLimits::default(), Timeouts::default()).unwrap();
    let models = Models::default().with("mock", OpenAi::compatible(endpoint));
    let store = Arc::new(SqliteStore::open(&store_path).unwrap());
    let runtime = Runtime::new(store, settings, models);
    let soak = Arc::new(Soak { runtime, folder, next: AtomicU64::new(0), figures: Figures::default() });
    let until = Instant::now() + duration;
    let workers: Vec<_> = (0..WORKERS).map(|_| tokio::spawn(work_until(soak.clone(), until))).collect();
    // Caches and pools fill at first. Nothing may grow after that.
    tokio::time::sleep(duration / 4).await;
    let early = figures::Process::now();
    for worker in workers {
        if let Err(error) = worker.await {
            soak.figures.fault(format!("a worker failed: {error}"));
        }
    }
    let late = figures::Process::now();
    for fault in late.growth_since(&early) {
        soak.figures.fault(fault);
    }
    for fault in checks::store(&soak.runtime, &store_path).await {
        soak.figures.fault(fault);
    }
    let model_counts = figures::model_counts(&server.address);
    (soak.figures.table(duration, &model_counts, &early, &late, &store_path), soak.figures.faults())
}

async fn work_until(soak: Arc<Soak>, until: Instant) {
    while Instant::now() < until {
        let number = soak.next.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        match tokio::time::timeout(TREE_TIMEOUT, soak.tree(number)).await {
            Ok(Ok(())) => soak.figures.tree(started.elapsed()),
            Ok(Err(fault)) => soak.figures.fault(format!("tree {number}: {fault}")),
            Err(_) => soak.figures.fault(format!("tree {number} did not end within {TREE_TIMEOUT:?}")),
        }
    }
}

impl Soak {
    /// Runs one tree to its end in one of three ways, and checks it.
    async fn tree(&self, number: u64) -> Result<(), String> {
        let task = Task::new(format!("tree {number:08}"));
        let (run, may_be_cancelled) = match number % DISTURBED_EVERY {
            7 => (self.dropped_and_resumed(task, number).await?, false),
            23 => (self.cancelled(task, number).await?, true),
            _ => (self.runtime.start(task).await.map_err(|error| error.to_string())?, false),
        };
        let ending = run.result().await.map_err(|error| error.to_string())?;
        let expected = format!("{} parts of {number:08}", model::CHILDREN);
        let is_cancelled = matches!(ending.outcome.status, Status::Cancelled { .. });
        let is_right = ending.outcome.status == Status::Done && ending.outcome.text.as_str() == expected;
        let is_expected = is_right || (may_be_cancelled && is_cancelled);
        if !is_expected {
            return Err(format!("{:?}", ending.outcome));
        }
        let file = self.folder.path().join(format!("work/{number:08}.txt"));
        let content = std::fs::read_to_string(&file).ok();
        if is_right && content != Some(format!("{number:08}")) {
            return Err(format!("the file contains {content:?}"));
        }
        let _ = std::fs::remove_file(file);
        self.check(&ending.session, number).await
    }

    /// Checks the log of a tree that has ended. Removes most trees, so that the store does not grow without
    /// bound.
    async fn check(&self, root: &SessionId, number: u64) -> Result<(), String> {
        let store = self.runtime.store();
        let log = store.tail(root, Cursor::START, usize::MAX).await.map_err(|error| error.to_string())?;
        checks::check_invariants(&log)?;
        self.figures.log(&log);
        if !number.is_multiple_of(KEPT_EVERY) {
            store.remove(root).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Drops a run in the middle, as if its process had exited, and resumes it.
    async fn dropped_and_resumed(&self, task: Task, number: u64) -> Result<Run, String> {
        let gone = Owner { pid: 999_999_999, start_time: 1, ..Owner::this_process() };
        let first =
            self.runtime.clone().with_owner(gone).start(task).await.map_err(|error| error.to_string())?;
        let session = first.session().clone();
        // Before its first event is written there is nothing to resume.
        while self.runtime.store().read(&session, 0).await.map_err(|error| error.to_string())?.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        pause(number).await;
        drop(first);
        self.figures.disturbed("resumed");
        // Appends that the first runner had started are either complete or fenced.
        self.runtime.resume(&session, ResumeOptions::default()).await.map_err(|error| error.to_string())
    }

    async fn cancelled(&self, task: Task, number: u64) -> Result<Run, String> {
        let run = self.runtime.start(task).await.map_err(|error| error.to_string())?;
        pause(number).await;
        self.figures.disturbed("cancelled");
        self.runtime.cancel(run.session(), "the soak").await.map_err(|error| error.to_string())?;
        Ok(run)
    }
}

/// Sleeps for a few milliseconds, depending on the number.
async fn pause(number: u64) {
    tokio::time::sleep(Duration::from_millis(5 + number / DISTURBED_EVERY % 60)).await;
}
