//! The MCP conformance suite against a server over our HTTP layer. docs/protocols.md explains the exceptions.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use brigade_outer_tests::{McpFixture, conformance};
use serde_json::Value;

/// Checks that cannot pass.
const EXCEPTIONS: [(&str, &str); 5] = [
    ("sep-2640-skills-directory", "SKIPPED"),
    ("sep-2640-skills-enumeration", "SKIPPED"),
    ("sep-2640-skills-manifest", "SKIPPED"),
    ("server-sse-polling", "INFO"),
    ("tasks-status-notifications", "SKIPPED"),
];

/// Checks that are only informational.
const NOTES: [&str; 4] = ["outgoing-request", "incoming-response", "incoming-sse-event", "stream-closed"];

/// Returns the number of scenarios, and the scenarios and checks that did not succeed.
fn run(address: &str, more: &[&str]) -> (usize, BTreeSet<(String, String)>) {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("results");
    let mut command = conformance(folder.path());
    command.args(["server", "--suite", "all", "--url", address, "-o"]).arg(&results).args(more);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    let scenarios: Vec<_> = std::fs::read_dir(&results).unwrap().flatten().collect();
    let not_passed = scenarios.iter().flat_map(|scenario| {
        let checks = checks(&scenario.path());
        let name = scenario_of(scenario.file_name().to_str().unwrap());
        checks.into_iter().map(move |status| (name.clone(), status))
    });
    (scenarios.len(), not_passed.collect())
}

/// Parses `server-NAME-TIME`, where the time has 24 characters.
fn scenario_of(folder: &str) -> String {
    folder["server-".len()..folder.len() - "-2026-01-01T00-00-00-000Z".len()].to_owned()
}

fn checks(folder: &Path) -> Vec<String> {
    let text = std::fs::read(folder.join("checks.json")).unwrap();
    let checks: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let of_interest = checks.iter().filter(|check| !NOTES.iter().any(|note| check["id"] == *note));
    let statuses = of_interest.filter_map(|check| check["status"].as_str());
    statuses.filter(|status| *status != "SUCCESS").map(str::to_owned).collect()
}

fn exceptions() -> BTreeSet<(String, String)> {
    EXCEPTIONS.iter().map(|(name, status)| ((*name).to_owned(), (*status).to_owned())).collect()
}

#[test]
fn every_scenario_passes_except_the_listed_ones() {
    let server = McpFixture::start();
    let (count, not_passed) = run(&server.address, &[]);
    assert_eq!((count, not_passed), (65, exceptions()));
    // Each scenario ran in the version that it belongs to. Many belong to several.
    for (version, scenarios) in [("2025-06-18", 27), ("2025-11-25", 33), ("2026-07-28", 40)] {
        let (count, not_passed) = run(&server.address, &["--spec-version", version]);
        let exceptions = exceptions();
        let others: Vec<_> = not_passed.difference(&exceptions).collect();
        assert_eq!((count, others), (scenarios, vec![]), "{version}");
    }
}

#[test]
fn exceptions_match_the_documentation() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("MCP server conformance")).unwrap();
    let named: BTreeSet<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(named, EXCEPTIONS.iter().map(|(name, _)| *name).collect());
}
