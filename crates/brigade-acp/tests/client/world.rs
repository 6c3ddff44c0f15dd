//! A lead that hands work to an external agent, and looks at that agent's processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::core::faces::delegate::SwarmRole;
use brigade::core::faces::spawn::SpawnConfig;
use brigade::core::permission::Mode;
use brigade::core::{Event, SessionId};
use brigade::external::Terms;
use brigade::tool::ShellSettings;
use brigade::{Ending, Secret, Settings};
use brigade_acp::client::{Acp, Choice, Server};
use brigade_sandbox::GuardCommand;

use super::fixture;
use super::support::Stage;

const GUARD_ENTRY: &str = "client::world::guard_entry";
const AGENT_ENTRY: &str = "client::world::agent_entry";

/// The guard. It is ignored so that only [`guard`] starts it, in a process of its own.
#[test]
#[ignore = "the entry point of a guard process, not a test"]
#[expect(clippy::disallowed_methods, reason = "a guard leaves with its own exit code")]
fn guard_entry() {
    if !std::env::args().any(|argument| argument == GUARD_ENTRY) {
        return;
    }
    // The test harness prints to standard output, which has to carry the report alone.
    let report = std::fs::File::options().write(true).open("/proc/self/fd/3").unwrap();
    rustix::stdio::dup2_stdout(&report).unwrap();
    std::process::exit(brigade_sandbox::guard_main());
}

/// The agent, in the same way.
#[test]
#[ignore = "the entry point of an agent, not a test"]
fn agent_entry() {
    if std::env::args().any(|argument| argument == AGENT_ENTRY) {
        fixture::serve();
    }
}

fn entry(name: &str) -> Vec<String> {
    let script =
        format!("exec 3>&1 >/dev/null; exec \"$0\" --ignored --exact {name} --test-threads=1 --nocapture");
    let binary = std::env::current_exe().unwrap().display().to_string();
    vec!["-c".to_owned(), script, binary]
}

fn guard() -> GuardCommand {
    let arguments = entry(GUARD_ENTRY).into_iter().map(Into::into).collect();
    GuardCommand { program: "/bin/sh".into(), arguments }
}

/// The agent as a server.
fn server(root: &Path) -> Server {
    let variable = |name: &str, value: String| (name.to_owned(), Secret::new(value));
    Server {
        name: "fix".to_owned(),
        guard: guard(),
        workspace: root.to_path_buf(),
        command: "/bin/sh".to_owned(),
        arguments: entry(AGENT_ENTRY),
        environment: vec![
            variable("PATH", "/usr/bin:/bin".to_owned()),
            variable("SECRET", "a-secret-key".to_owned()),
            variable(fixture::NOTES, root.join("notes").display().to_string()),
        ],
        filled_in: vec![Secret::new("a-filled-in-key")],
        sessions: 256,
        choice: Choice::default(),
        agents: BTreeMap::new(),
        terms: Terms::default(),
        start_time: Duration::from_secs(10),
        allow_in_plan: false,
    }
}

/// Lets the server begin in another way.
pub(super) fn begins(server: &mut Server, how: &str) {
    server.environment.push((fixture::START.to_owned(), Secret::new(how)));
}

/// A lead whose replies each hand one task to the agent in the role `Ext`, and that then repeats the last result.
pub(super) fn stage(tasks: &[&str], tweak: impl Fn(&mut Settings, &mut Server) + 'static) -> Stage {
    let calls: Vec<(&str, &str)> = tasks.iter().map(|task| ("delegate", *task)).collect();
    calling(&calls, tweak)
}

/// The same with a tool for each task.
pub(super) fn calling(calls: &[(&str, &str)], tweak: impl Fn(&mut Settings, &mut Server) + 'static) -> Stage {
    let mut script = String::new();
    for (index, (tool, task)) in calls.iter().enumerate() {
        let task = serde_json::to_string(task).unwrap();
        script.push_str(&format!(
            "[[reply]]\nagent = 'lead'\nturn = {}\n[[reply.call]]\ntool = '{tool}'\n[reply.call.arguments]\n\
             role = 'Ext'\ndescription = 'Ext'\nserverName = 'fix'\ntask = {task}\n",
            index + 1
        ));
    }
    script.push_str("[[reply]]\nagent = 'lead'\ntext = '{results}'\n");
    scripted(&script, tweak)
}

/// A script of one's own.
pub(super) fn scripted(script: &str, tweak: impl Fn(&mut Settings, &mut Server) + 'static) -> Stage {
    Stage::with(script, move |settings| {
        let root = settings.workspace.root().to_path_buf();
        let mut server = server(&root);
        settings.permissions.mode = Mode::Edit;
        settings.faces.spawn = Some(SpawnConfig::default());
        let role = SwarmRole { acp: Some("fix".to_owned()), ..SwarmRole::default() };
        settings.faces.swarm.roles.insert("Ext".to_owned(), role);
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

pub(super) fn notes(stage: &Stage) -> String {
    std::fs::read_to_string(stage.path().join("notes")).unwrap_or_default()
}

pub(super) fn count(stage: &Stage, note: &str) -> usize {
    notes(stage).lines().filter(|line| line.starts_with(note)).count()
}

/// The agents that were started, by process id.
pub(super) fn pids(stage: &Stage) -> Vec<u32> {
    notes(stage).lines().filter_map(|line| line.strip_prefix("start ")?.parse().ok()).collect()
}

fn lives(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Waits until none of the agents that were started is there.
pub(super) async fn all_gone(stage: &Stage) {
    until("the agents are gone", || !pids(stage).into_iter().any(lives)).await;
}

pub(super) async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(15), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The id of the first child.
pub(super) fn first_child(ending: &Ending) -> SessionId {
    format!("{}.1-0", ending.session).parse().unwrap()
}

/// How the first child ended.
pub(super) async fn child_end(
    stage: &Stage,
    ending: &Ending,
) -> (brigade::core::Outcome, brigade::core::Spent) {
    let events = stage.events(&first_child(ending)).await;
    let ended = events.into_iter().find_map(|event| match event {
        Event::Ended { outcome, spent } => Some((outcome, spent)),
        _ => None,
    });
    ended.unwrap()
}
