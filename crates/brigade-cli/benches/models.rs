//! What work over HTTP costs, beside a bare client that makes the same requests.
//!
//! `cargo bench --profile dist -p brigade-cli --bench models` prints a table; every figure is the median of five
//! interleaved runs. The model is a process of its own on loopback, and so is every run: only the CPU and memory of the
//! run itself count.
//! Give a name to run one part: `cargo bench --profile dist -p brigade-cli --bench models -- fan`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark, not a library"
)]

mod models {
    pub(crate) mod engine;
    pub(crate) mod floor;
    pub(crate) mod server;
}

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use models::{engine, floor, server};

/// The allocator of the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RUNS: usize = 5;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["serve"] => return server::serve(),
        ["floor", base, work] => {
            let work = Work::parse(work);
            // What the engine sent is fetched before the work begins.
            let sent = floor::RecordedRequests::fetch(base, work);
            return report(|| floor::run(base, work, sent));
        }
        ["engine", base, work] => return report(|| engine::run(base, Work::parse(work))),
        _ => {}
    }
    let server = Server::start();
    let wanted = |name: &str| arguments.first().is_none_or(|only| *only == name);
    println!("{:<66} {:>12}  bound", "what (median of 5)", "figure");
    if wanted("fan") {
        fan(&server);
    }
    if wanted("slow") {
        slow(&server);
    }
    if wanted("stream") {
        stream(&server);
    }
    if wanted("prompt") {
        prompt(&server);
    }
}

/// What a run is to do.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// A lead with this many children, over a pool of 64 connections.
    Fan(usize),
    /// The same with a connection for each child.
    Wide(usize),
    /// One reply of this many tokens.
    Stream(usize),
    /// One short reply.
    Prompt,
}

impl Work {
    fn parse(text: &str) -> Work {
        let (kind, count) = text.split_once('-').unwrap_or((text, "0"));
        let count = count.parse().unwrap();
        match kind {
            "fan" => Work::Fan(count),
            "wide" => Work::Wide(count),
            "stream" => Work::Stream(count),
            _ => Work::Prompt,
        }
    }
}

/// Does the work and prints what it took: CPU and wall in milliseconds, peak memory in megabytes.
fn report<T>(work: impl FnOnce() -> T) {
    let (cpu, wall) = (cpu_time(), Instant::now());
    let _left = work();
    let (cpu, wall) = ((cpu_time() - cpu).as_secs_f64() * 1e3, wall.elapsed().as_secs_f64() * 1e3);
    println!("{cpu} {wall} {}", peak_megabytes());
}

/// The CPU time of this process, all threads.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

pub(crate) fn threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn process(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

fn self_command(arguments: &[&str]) -> Command {
    let mut command = process(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}

/// The model.
struct Server {
    child: Child,
    base: String,
}

impl Server {
    fn start() -> Server {
        let mut child = self_command(&["serve"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Server { child, base: format!("http://127.0.0.1:{}", line.trim()) }
    }

    /// Runs something in a process of its own.
    fn run(&self, who: &str, delay_ms: u64, work: &str) -> Figures {
        let base = format!("{}/{delay_ms}", self.base);
        let output = self_command(&[who, &base, work]).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{who} {work}");
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<f64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let [cpu, wall, peak] = numbers[..] else { panic!("{text}") };
        Figures { cpu, wall, peak }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy)]
struct Figures {
    cpu: f64,
    wall: f64,
    peak: f64,
}

/// The medians of several runs.
fn medians(runs: &[Figures]) -> Figures {
    let of = |part: fn(&Figures) -> f64| median(runs.iter().map(part).collect());
    Figures { cpu: of(|run| run.cpu), wall: of(|run| run.wall), peak: of(|run| run.peak) }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn row(what: &str, figure: String, bound: &str) {
    println!("{what:<66} {figure:>12}  {bound}");
}

fn fan(server: &Server) {
    let (mut floors, mut thousand, mut ten) = (vec![], vec![], vec![]);
    // The floor sends what the engine sent before it.
    server.run("engine", 0, "fan-1000");
    for _ in 0..RUNS {
        thousand.push(server.run("engine", 0, "fan-1000"));
        floors.push(server.run("floor", 0, "fan-1000"));
        ten.push(server.run("engine", 0, "fan-10000"));
    }
    let (floor, thousand, ten) = (medians(&floors), medians(&thousand), medians(&ten));
    row("1,000 delegations over HTTP, synced: CPU", format!("{:.0} ms", thousand.cpu), "");
    row("floor: the same requests from a bare client: CPU", format!("{:.0} ms", floor.cpu), "");
    row("  as a ratio", format!("{:.2}", thousand.cpu / floor.cpu), "at most 3");
    row("1,000 delegations: wall", format!("{:.0} ms", thousand.wall), "");
    row("  as a ratio to the floor's", format!("{:.2}", thousand.wall / floor.wall), "at most 4");
    row("1,000 delegations: peak memory", format!("{:.0} MB", thousand.peak), "under 60 MB");
    row("10,000 delegations: CPU", format!("{:.0} ms", ten.cpu), "");
    row("  as a ratio to 1,000", format!("{:.1}", ten.cpu / thousand.cpu), "at most 12");
    row("10,000 delegations: peak memory", format!("{:.0} MB", ten.peak), "under 300 MB");
}

fn slow(server: &Server) {
    let (mut floors, mut engines) = (vec![], vec![]);
    server.run("engine", 200, "wide-1000");
    for _ in 0..RUNS {
        engines.push(server.run("engine", 200, "wide-1000"));
        floors.push(server.run("floor", 200, "wide-1000"));
    }
    let (floor, engine) = (medians(&floors), medians(&engines));
    row("1,000 delegations, replies after 200 ms, no cap: wall", format!("{:.0} ms", engine.wall), "");
    row(
        "  as a ratio to a connection for each child",
        format!("{:.2}", engine.wall / floor.wall),
        "at most 1.3",
    );
}

fn stream(server: &Server) {
    let (mut floors, mut engines) = (vec![], vec![]);
    for _ in 0..RUNS {
        engines.push(server.run("engine", 0, "stream-20000"));
        floors.push(server.run("floor", 0, "stream-20000"));
    }
    let (floor, engine) = (medians(&floors), medians(&engines));
    row("a reply of 20,000 tokens, watched: CPU", format!("{:.1} ms", engine.cpu), "");
    row("  as a ratio to the floor's", format!("{:.2}", engine.cpu / floor.cpu), "at most 2");
}

/// One prompt with the command itself, on a store that is there.
fn prompt(server: &Server) {
    let home = tempfile::tempdir().unwrap();
    let config =
        format!("model = 'mock/m'\n[providers.mock]\nkind = 'openai'\nbase_url = '{}/0/v1'\n", server.base);
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let ask = || {
        let mut command = process(env!("CARGO_BIN_EXE_brigade"));
        command.args(["run", "say it"]).env_clear().env("BRIGADE_HOME", home.path());
        command.current_dir(home.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        assert!(command.status().unwrap().success());
        start.elapsed().as_secs_f64() * 1e3
    };
    let base = format!("{}/0", server.base);
    let bare = || {
        let start = Instant::now();
        assert!(self_command(&["floor", &base, "prompt"]).stdout(Stdio::null()).status().unwrap().success());
        start.elapsed().as_secs_f64() * 1e3
    };
    ask();
    let (mut prompts, mut baselines) = (vec![], vec![]);
    for _ in 0..41 {
        prompts.push(ask());
        baselines.push(bare());
    }
    let (prompts, baselines) = (median(prompts), median(baselines));
    row("one prompt, from start to end of the process (median of 41)", format!("{prompts:.1} ms"), "");
    row("  above the floor's", format!("{:.1} ms", prompts - baselines), "at most 15 ms");
}
