//! The client against the MCP conformance suite. docs/protocols.md explains the exceptions.

use std::collections::BTreeMap;

use brigade_outer_tests::conformance;

/// Scenarios that are expected to fail. Each has a reason.
const FAILING: [&str; 7] = [
    "auth/client-credentials-jwt",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
    "elicitation-sep1034-client-defaults",
    "json-schema-2020-12-preservation",
];

/// Scenarios of an extension that the client does not support. They check nothing.
const UNTOUCHED: [&str; 4] = [
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-frontmatter",
    "sep-2640-client-verify-size",
];

/// Number of passed and failed checks of every scenario.
fn results(stdout: &str) -> BTreeMap<String, (usize, usize)> {
    let summary = stdout.split_once("SUITE SUMMARY").map_or("", |(_, summary)| summary);
    let line = |line: &str| {
        let (name, counts) = line.trim().strip_prefix(['✓', '✗'])?.trim().split_once(": ")?;
        let (passed, rest) = counts.split_once(" passed, ")?;
        let (failed, _) = rest.split_once(" failed")?;
        Some((name.to_owned(), (passed.parse().ok()?, failed.parse().ok()?)))
    };
    summary.lines().filter_map(line).collect()
}

#[test]
fn client_passes_every_applicable_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let mut suite = conformance(folder.path());
    suite.args(["client", "--suite", "all", "--command", env!("CARGO_BIN_EXE_mcp-client")]);
    let done = suite.current_dir(folder.path()).output().unwrap();
    let stdout = String::from_utf8_lossy(&done.stdout).into_owned();
    let results = results(&stdout);
    assert_eq!(results.len(), 48, "{stdout}\n{}", String::from_utf8_lossy(&done.stderr));
    let named = |holds: fn((usize, usize)) -> bool| -> Vec<&str> {
        results.iter().filter(|(_, counts)| holds(**counts)).map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(named(|(_, failed)| failed > 0), FAILING, "{stdout}");
    assert_eq!(named(|(passed, failed)| passed + failed == 0), UNTOUCHED, "{stdout}");
}
