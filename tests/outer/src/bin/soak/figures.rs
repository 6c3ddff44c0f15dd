//! Measurements of a soak test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use brigade::core::{Event, Record};
use serde_json::Value;

use crate::model::FAULTS;

/// Maximum growth of the resident memory, in MB and relative to an early measurement.
const MAX_GROWTH_MB: f64 = 16.0;
const MAX_GROWTH: f64 = 0.2;
/// Maximum growth of the number of open files.
const MAX_MORE_FILES: usize = 8;
/// Maximum number of faults that are described.
const MAX_FAULTS: usize = 20;

/// Counters that the workers share.
#[derive(Default)]
pub(crate) struct Figures(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// Number of trees by their duration in milliseconds. Its size is bounded, however long the test runs.
    trees: BTreeMap<u64, u64>,
    sessions: u64,
    replies: u64,
    failed_calls: u64,
    disturbed: BTreeMap<&'static str, u64>,
    fault_count: usize,
    faults: Vec<String>,
}

impl Figures {
    pub(crate) fn tree(&self, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        // Two significant digits are enough.
        let step = 10_u64.pow(millis.max(1).ilog10().saturating_sub(1));
        *self.0.lock().unwrap().trees.entry(millis / step * step).or_default() += 1;
    }

    pub(crate) fn log(&self, log: &[Record]) {
        let count = |kind: &str| log.iter().filter(|record| record.event.kind() == kind).count() as u64;
        let mut counts = self.0.lock().unwrap();
        counts.sessions += count("started");
        counts.replies += count("replied");
        counts.failed_calls +=
            log.iter().filter(|record| matches!(record.event, Event::CallFailed { .. })).count() as u64;
    }

    pub(crate) fn disturbed(&self, how: &'static str) {
        *self.0.lock().unwrap().disturbed.entry(how).or_default() += 1;
    }

    pub(crate) fn fault(&self, what: String) {
        let mut counts = self.0.lock().unwrap();
        counts.fault_count += 1;
        if counts.faults.len() < MAX_FAULTS {
            counts.faults.push(what);
        }
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.0.lock().unwrap().faults.clone()
    }

    /// Formats all measurements, one per line.
    pub(crate) fn table(
        &self,
        duration: Duration,
        model_counts: &Value,
        early: &Process,
        late: &Process,
        store: &Path,
    ) -> String {
        let counts = self.0.lock().unwrap();
        let trees: u64 = counts.trees.values().sum();
        let mut text = String::new();
        let mut row = |name: &str, figure: String| writeln!(text, "{name:<28} {figure}").unwrap();
        row("duration", format!("{} s", duration.as_secs()));
        row("trees that ended", format!("{trees} ({:?})", counts.disturbed));
        row("sessions", counts.sessions.to_string());
        row("replies, failed calls", format!("{}, {}", counts.replies, counts.failed_calls));
        let faults_sent = model_counts["faults"].as_array().map(Vec::as_slice).unwrap_or_default();
        let faults_sent: Vec<String> =
            FAULTS.iter().zip(faults_sent).map(|(kind, count)| format!("{kind} {count}")).collect();
        row("requests", model_counts["requests"].to_string());
        row("faults of the model", faults_sent.join(", "));
        let percentile = |share: f64| percentile(&counts.trees, share);
        row(
            "a tree: p50, p99, slowest",
            format!("{}, {}, {} ms", percentile(0.5), percentile(0.99), percentile(1.0)),
        );
        row("resident memory", format!("{:.1} MB early, {:.1} MB at the end", early.resident, late.resident));
        row("open files", format!("{} early, {} at the end", early.files, late.files));
        let bytes = std::fs::metadata(store).map(|file| file.len()).unwrap_or_default();
        row("store", format!("{:.1} MB", bytes as f64 / 1e6));
        row("faults found", counts.fault_count.to_string());
        text
    }
}

/// The time within which this share of the trees ended.
fn percentile(trees: &BTreeMap<u64, u64>, share: f64) -> u64 {
    let wanted = (trees.values().sum::<u64>() as f64 * share).ceil();
    let mut seen = 0.0;
    for (millis, count) in trees {
        seen += *count as f64;
        if seen >= wanted {
            return *millis;
        }
    }
    0
}

/// Resources of this process.
pub(crate) struct Process {
    /// Resident memory in MB.
    resident: f64,
    /// Open files, connections included.
    files: usize,
}

impl Process {
    pub(crate) fn now() -> Process {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        Process { resident: kilobytes / 1024.0, files: std::fs::read_dir("/proc/self/fd").unwrap().count() }
    }

    /// Returns the resources that have grown more than allowed.
    pub(crate) fn growth_since(&self, early: &Process) -> Vec<String> {
        let mut faults = Vec::new();
        if self.resident > early.resident * (1.0 + MAX_GROWTH) + MAX_GROWTH_MB {
            faults.push(format!("memory grew from {:.1} to {:.1} MB", early.resident, self.resident));
        }
        if self.files > early.files + MAX_MORE_FILES {
            faults.push(format!("open files grew from {} to {}", early.files, self.files));
        }
        faults
    }
}

/// Counters of the model.
pub(crate) fn model_counts(address: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /figures HTTP/1.1\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let length = stream.read(&mut piece).unwrap();
        bytes.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&bytes);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body));
        match body {
            Some(Ok(value)) => return value,
            _ if length == 0 => return Value::Null,
            _ => {}
        }
    }
}
