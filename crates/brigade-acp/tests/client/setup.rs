//! A lead that delegates to an external agent, and checks of that agent's processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::core::delegation_styles::delegate::SwarmRole;
use brigade::core::delegation_styles::spawn::SpawnConfig;
use brigade::core::permission::Mode;
use brigade::core::{Event, SessionId};
use brigade::external::ExternalLimits;
use brigade::sandbox::ServerSandbox;
use brigade::tool::ShellSettings;
use brigade::{RunResult, Secret, Settings};
use brigade_acp::client::{Acp, AgentOptions, AgentServer};
use brigade_testing::{Script, TestProgram, call, reply};
use serde_json::json;

use super::fixture;
use super::support::Harness;

brigade_testing::guard_entry!();

const AGENT: TestProgram = TestProgram::new(module_path!(), "agent_entry");

#[test]
#[ignore = "the entry point of an agent, not a test"]
fn agent_entry() {
    if AGENT.is_running() {
        fixture::serve();
    }
}

/// The server configuration of the agent.
fn server(root: &Path) -> AgentServer {
    let variable = |name: &str, value: String| (name.to_owned(), Secret::new(value));
    let (command, arguments) = AGENT.command();
    AgentServer {
        name: "fix".to_owned(),
        guard: guard(),
        workspace: root.to_path_buf(),
        command,
        arguments,
        environment: vec![
            variable("PATH", "/usr/bin:/bin".to_owned()),
            variable("SECRET", "a-secret-key".to_owned()),
            variable(fixture::NOTES, root.join("notes").display().to_string()),
        ],
        expanded_secrets: vec![Secret::new("a-filled-in-key")],
        max_sessions: 256,
        options: AgentOptions::default(),
        agents: BTreeMap::new(),
        terms: ExternalLimits::default(),
        start_timeout: Duration::from_secs(10),
        sandbox: ServerSandbox::default(),
        allow_in_plan: false,
    }
}

/// Changes the start behaviour of the agent.
pub(super) fn start_as(server: &mut AgentServer, how: &str) {
    server.environment.push((fixture::START.to_owned(), Secret::new(how)));
}

/// A lead that delegates one task per reply to the agent in the role `Ext`, and then repeats the last result.
pub(super) fn harness(tasks: &[&str], tweak: impl Fn(&mut Settings, &mut AgentServer) + 'static) -> Harness {
    let calls: Vec<(&str, &str)> = tasks.iter().map(|task| ("delegate", *task)).collect();
    harness_with_calls(&calls, tweak)
}

/// The same with a tool for each task.
pub(super) fn harness_with_calls(
    calls: &[(&str, &str)],
    tweak: impl Fn(&mut Settings, &mut AgentServer) + 'static,
) -> Harness {
    let calls = calls.iter().map(|(tool, task)| {
        call(tool, json!({ "role": "Ext", "description": "Ext", "serverName": "fix", "task": task }))
    });
    let script = Script::new().agent("lead", calls.chain([reply("{results}")]));
    harness_with_script(script, tweak)
}

/// The same with a custom script.
pub(super) fn harness_with_script(
    script: Script,
    tweak: impl Fn(&mut Settings, &mut AgentServer) + 'static,
) -> Harness {
    Harness::with(script, move |settings| {
        let root = settings.workspace.root().to_path_buf();
        let mut server = server(&root);
        settings.permissions.mode = Mode::Edit;
        settings.delegation_styles.spawn = Some(SpawnConfig::default());
        let role = SwarmRole { acp: Some("fix".to_owned()), ..SwarmRole::default() };
        settings.delegation_styles.swarm.roles.insert("Ext".to_owned(), role);
        settings.shell = Some(ShellSettings {
            guard: guard(),
            directory: root,
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            time_limit: Duration::from_secs(20),
            output_limit: 4096,
        });
        tweak(settings, &mut server);
        settings.external = Some(Arc::new(Acp::new([server])));
    })
}

pub(super) fn notes(harness: &Harness) -> String {
    std::fs::read_to_string(harness.path().join("notes")).unwrap_or_default()
}

pub(super) fn count(harness: &Harness, note: &str) -> usize {
    notes(harness).lines().filter(|line| line.starts_with(note)).count()
}

/// Process ids of the agents that were started.
pub(super) fn pids(harness: &Harness) -> Vec<u32> {
    notes(harness).lines().filter_map(|line| line.strip_prefix("start ")?.parse().ok()).collect()
}

fn is_alive(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Waits until all agents that were started have exited.
pub(super) async fn wait_until_gone(harness: &Harness) {
    wait_until("the agents are gone", || !pids(harness).into_iter().any(is_alive)).await;
}

pub(super) async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(15), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The id of the first child.
pub(super) fn first_child(ending: &RunResult) -> SessionId {
    format!("{}.1-0", ending.session).parse().unwrap()
}

/// The outcome of the first child.
pub(super) async fn child_end(
    harness: &Harness,
    ending: &RunResult,
) -> (brigade::core::Outcome, brigade::core::Spent) {
    let events = harness.events(&first_child(ending)).await;
    let ended = events.into_iter().find_map(|event| match event {
        Event::Ended { outcome, spent } => Some((outcome, spent)),
        _ => None,
    });
    ended.unwrap()
}
