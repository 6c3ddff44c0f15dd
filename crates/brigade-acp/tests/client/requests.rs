//! Requests of an agent: files, terminals, permissions.

use std::time::Duration;

use brigade::ApprovalPolicy;
use brigade::core::event::Effect;
use brigade::core::permission::Mode;
use brigade::core::{Event, Status};
use brigade_testing::{Script, call, delegate, reply};
use serde_json::json;

use super::setup::{
    child_end, first_child, harness, harness_with_calls, harness_with_script, wait_until_gone,
};
use super::support::check_laws;

#[tokio::test(flavor = "multi_thread")]
async fn file_requests_go_through_the_permission_check() {
    let harness =
        harness(&["!read a.txt\n!line a.txt\n!write sub/b.txt hello\n!both a.txt sub/b.txt"], |_, _| {});
    std::fs::write(harness.path().join("a.txt"), "one\ntwo\n").unwrap();
    let ending = harness.run().await;
    let events = harness.events(&first_child(&ending)).await;
    let answers = harness.answers(&first_child(&ending)).await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert_eq!(std::fs::read_to_string(harness.path().join("sub/b.txt")).unwrap(), "hello");
    assert!(answers[2].starts_with("Created sub/b.txt"), "{answers:?}");
    let text: Vec<String> = events
        .iter()
        .filter_map(|event| match event {
            Event::Replied { reply, .. } => Some(reply.text.to_string()),
            _ => None,
        })
        .collect();
    let text = text.concat();
    assert!(text.contains(r#"ok {"content":"one\ntwo\n"}"#), "{text}");
    assert!(text.contains(r#"ok {"content":"two\n"}"#), "{text}");
    assert!(text.contains(r#""one\ntwo\n" "hello" "#), "{text}");
    let edits = events
        .iter()
        .filter(|event| matches!(event, Event::ToolStarted { effect: Effect::Edit, after: Some(_), .. }));
    assert_eq!(edits.count(), 1);
    check_laws(&harness.log(&ending.session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_sent_without_keys() {
    let harness = harness(&["!backwards a.txt"], |_, _| {});
    let key = format!("ghp_{}", "aB3dE5gH7j".repeat(4));
    std::fs::write(harness.path().join("a.txt"), &key).unwrap();
    let ending = harness.run().await;
    let log = serde_json::to_string(&harness.log(&ending.session).await).unwrap();
    let backwards = |text: &str| text.chars().rev().collect::<String>();
    assert!(log.contains(&backwards("[redacted: GitHub token]")) && !log.contains(&backwards(&key)), "{log}");
}

/// Runs an external agent with these commands next to a `Coder` that changes `a.txt`, and returns the
/// responses to the agent.
async fn run_beside_a_coder(commands: &str) -> Vec<String> {
    let script =
        Script::new().agent("lead", [delegate("Ext", commands).delegate("Coder", "x"), reply("done")]).agent(
            "Coder",
            [
                call("read_file", json!({ "path": "a.txt" })),
                call("write_file", json!({ "path": "a.txt", "content": "coder" })).delay_ms(500),
                reply("coded"),
            ],
        );
    let harness = harness_with_script(script, |settings, _| settings.permissions.mode = Mode::Auto);
    std::fs::write(harness.path().join("a.txt"), "old").unwrap();
    std::fs::write(harness.path().join("b.txt"), "old").unwrap();
    let ending = harness.run().await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert_eq!(std::fs::read_to_string(harness.path().join("a.txt")).unwrap(), "external");
    check_laws(&harness.log(&ending.session).await);
    harness.answers(&first_child(&ending)).await
}

/// Waits until the coder has written its file.
const CODED: &str = "!run while ! grep -q coder a.txt; do sleep 0.05; done\n";

#[tokio::test(flavor = "multi_thread")]
async fn write_over_a_write_of_this_tree_is_refused_once() {
    let answers = run_beside_a_coder(&format!("{CODED}!write a.txt external\n!write a.txt external")).await;
    assert_eq!(answers[1], "a.txt was changed by Coder since you read it. Read it again.", "{answers:?}");
    assert_eq!(answers[2], "Wrote 8 bytes to a.txt", "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn write_after_a_read_or_of_an_untouched_file_is_allowed() {
    let commands =
        format!("{CODED}!write b.txt external\n!read a.txt\n!write a.txt external\n!write a.txt external");
    let answers = run_beside_a_coder(&commands).await;
    assert_eq!(answers[1], "Wrote 8 bytes to b.txt", "{answers:?}");
    assert_eq!(answers[3..], ["Wrote 8 bytes to a.txt", "Wrote 8 bytes to a.txt"], "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_outside_rules_or_workspace_are_refused() {
    let commands = "!read /etc/passwd\n!read ../outside\n!read .env\n!write .env x\n!read link\n!read a.txt";
    let harness = harness(&[commands], |settings, _| {
        settings.permissions.deny = vec!["read_file(**/.env*)".parse().unwrap()];
    });
    std::fs::write(harness.path().join(".env"), "KEY=1").unwrap();
    std::fs::write(harness.path().join("a.txt"), "fine").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", harness.path().join("link")).unwrap();
    let ending = harness.run().await;
    let answers = harness.answers(&first_child(&ending)).await;
    assert_eq!(answers.len(), 6, "{answers:?}");
    for refused in &answers[..5] {
        assert!(!refused.starts_with("Read ") && !refused.starts_with("Wrote "), "{answers:?}");
    }
    assert!(answers[2].contains("read_file(**/.env*)"), "{answers:?}");
    assert!(answers[5].starts_with("Read 4 bytes"), "{answers:?}");
    assert_eq!(std::fs::read_to_string(harness.path().join(".env")).unwrap(), "KEY=1");
    assert!(!ending.outcome.text.as_str().contains("root:"), "{}", ending.outcome.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_can_request_only_tools_it_was_lent() {
    let harness = harness(&["!read a.txt\n!write b.txt x\n!run ls\n!permit execute ls"], |settings, _| {
        settings.permissions.mode = Mode::Auto;
        let role = settings.delegation_styles.swarm.roles.get_mut("Ext").unwrap();
        role.tools = vec!["read_file".to_owned()];
    });
    std::fs::write(harness.path().join("a.txt"), "fine").unwrap();
    let ending = harness.run().await;
    let answers = harness.answers(&first_child(&ending)).await;
    assert!(answers[0].starts_with("Read 4 bytes"), "{answers:?}");
    for (answer, tool) in answers[1..].iter().zip(["write_file", "shell", "acp__fix__execute"]) {
        assert!(answer.contains(&format!("Unknown tool `{tool}`")), "{answers:?}");
    }
    assert!(!harness.path().join("b.txt").exists());
    assert!(ending.outcome.text.as_str().contains("chosen \"no\""), "{}", ending.outcome.text);
}

/// The answers to an agent that requests these permissions.
async fn chosen(commands: &[&str], mode: Mode) -> Vec<String> {
    let harness = harness(&[&commands.join("\n")], move |settings, _| {
        settings.permissions.mode = mode;
        settings.permissions.allow = vec!["shell(ls *)".parse().unwrap()];
        settings.permissions.deny =
            vec!["shell(rm *)".parse().unwrap(), "write_file(**/.env*)".parse().unwrap()];
    });
    let ending = harness.run().await;
    let events = harness.events(&first_child(&ending)).await;
    let text = events.iter().filter_map(|event| match event {
        Event::Replied { reply, .. } => Some(reply.text.to_string()),
        _ => None,
    });
    let text = text.collect::<String>();
    let answers = text.lines().filter_map(|line| line.strip_prefix("chosen "));
    answers.map(|part| part.split('"').nth(1).unwrap_or("none").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_ignores_the_kind_the_agent_claims() {
    let commands = [
        r#"!request {"toolCallId": "1", "kind": "read", "rawInput": {"command": "rm -rf ."}}"#,
        r#"!request {"toolCallId": "2", "kind": "think", "rawInput": {"cmd": ["rm", "x"]}}"#,
        r#"!tell {"toolCallId": "3", "title": "Run", "kind": "execute", "rawInput": {"command": "rm x"}}"#,
        r#"!request {"toolCallId": "3"}"#,
        r#"!request {"toolCallId": "3", "kind": "read"}"#,
        r#"!tell {"toolCallId": "4", "title": "Run", "kind": "execute", "rawInput": {"command": "ls -l"}}"#,
        r#"!request {"toolCallId": "4"}"#,
        "!permit edit .env x",
        "!permit edit x .env",
        "!permit edit x y",
        "!crowd",
        r#"!request {"toolCallId": "5", "kind": "read"}"#,
    ];
    let [edit, plan, auto] = [Mode::Edit, Mode::Plan, Mode::Auto].map(|mode| chosen(&commands, mode));
    let (edit, plan, auto) = tokio::join!(edit, plan, auto);
    assert_eq!(edit, ["no", "no", "no", "no", "yes", "no", "no", "yes", "no", "no"]);
    assert_eq!(plan, ["no"; 10]);
    assert_eq!(auto, ["no", "no", "no", "no", "yes", "no", "no", "yes", "no", "yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn opaque_requests_offer_no_always_rule() {
    let commands = [
        r#"!request {"toolCallId": "1", "kind": "other"}"#,
        r#"!request {"toolCallId": "2", "kind": "execute"}"#,
        "!permit delete a.txt b.txt",
        "!permit delete a.txt",
        "!permit execute make it",
    ];
    let harness = harness(&[&commands.join("\n")], |settings, _| {
        settings.approval_policy = ApprovalPolicy::AskUser;
        settings.limits.question_timeout = Duration::from_millis(100);
    });
    let ending = harness.run().await;
    let events = harness.events(&first_child(&ending)).await;
    let always: Vec<Option<String>> = events
        .into_iter()
        .filter_map(|event| match event {
            Event::Asked { always, .. } => Some(always),
            _ => None,
        })
        .collect();
    let rules = [None, None, None, Some("write_file(./a.txt)"), Some("shell(make it)")];
    assert_eq!(always, rules.map(|rule| rule.map(str::to_owned)));
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_are_decided_by_rules_and_modes() {
    let commands = [
        "!permit read a.txt",
        "!permit edit a.txt",
        "!permit edit /etc/passwd",
        "!permit delete a.txt",
        "!permit execute ls -l",
        "!permit execute rm -rf /",
        "!permit think hard",
        "!permit other thing",
    ];
    let under = async |mode: Mode| chosen(&commands, mode).await;
    assert_eq!(under(Mode::Edit).await, ["yes", "yes", "no", "no", "yes", "no", "no", "no"]);
    assert_eq!(under(Mode::Plan).await, ["yes", "no", "no", "no", "no", "no", "no", "no"]);
    assert_eq!(under(Mode::Auto).await, ["yes", "yes", "yes", "yes", "yes", "no", "yes", "yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn terminal_runs_under_the_guard_and_ends_with_its_session() {
    let commands =
        "!run echo out; echo err >&2; exit 3\n!run env\n!terminal echo $$ > pid; sleep 100\n!sleep 300";
    let harness = harness(&[commands], |settings, _| settings.permissions.mode = Mode::Auto);
    let runtime = harness.runtime();
    let ending = runtime.start(brigade::Task::new("the task")).await.unwrap().result().await.unwrap();
    let events = harness.events(&first_child(&ending)).await;
    let text: String = events
        .iter()
        .filter_map(|event| match event {
            Event::Replied { reply, .. } => Some(reply.text.to_string()),
            _ => None,
        })
        .collect();
    assert!(text.contains(r#"exit 3 output "out\nerr\n""#), "{text}");
    assert!(text.contains("PATH=") && !text.contains("SECRET"), "{text}");
    let pid = std::fs::read_to_string(harness.path().join("pid")).unwrap();
    let gone = || !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists();
    super::setup::wait_until("the command is gone", gone).await;
    drop(runtime);
    wait_until_gone(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_per_terminal_are_limited() {
    let harness = harness(&["!waits sleep 1"], |settings, _| settings.permissions.mode = Mode::Auto);
    let ending = harness.run().await;
    assert!(ending.outcome.text.as_str().ends_with("refused 2"), "{}", ending.outcome.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn single_generation_has_no_tools() {
    let harness = harness_with_calls(
        &[("subagent_delegate", "!read a.txt\n!permit read a.txt\n!run ls\n!say so")],
        |_, _| {},
    );
    std::fs::write(harness.path().join("a.txt"), "fine").unwrap();
    let ending = harness.run().await;
    let (outcome, spent) = child_end(&harness, &ending).await;
    let text = outcome.text.as_str();
    assert_eq!((outcome.status, spent.turns), (Status::Done, 1), "{text}");
    assert!(text.contains("error this agent may not use tools") && text.contains("chosen \"no\""), "{text}");
    assert!(text.ends_with("so"), "{text}");
}

/// External agents access files themselves, so their requests are judged by the real path too.
#[tokio::test(flavor = "multi_thread")]
async fn protected_files_are_refused_under_every_name() {
    let commands = [
        "!permit edit AGENTS.md",
        "!permit edit memo",
        "!permit edit g/hooks/new",
        "!permit delete .vscode/tasks.json",
        "!permit read vars",
        "!permit edit plain",
        "!permit read AGENTS.md",
        "!permit edit free",
    ];
    let harness = harness(&[&commands.join("\n"), "!read .env\n!read vars\n!write memo x"], |settings, _| {
        settings.permissions.mode = Mode::Auto;
        settings.permissions.deny = vec!["write_file(locked)".parse().unwrap()];
    });
    for (file, text) in [("AGENTS.md", "kept"), (".env", "CANARY"), ("locked", "kept"), ("code", "")] {
        std::fs::write(harness.path().join(file), text).unwrap();
    }
    std::fs::create_dir_all(harness.path().join(".git/hooks")).unwrap();
    for (target, link) in
        [("AGENTS.md", "memo"), (".git", "g"), (".env", "vars"), ("locked", "plain"), ("code", "free")]
    {
        std::os::unix::fs::symlink(target, harness.path().join(link)).unwrap();
    }
    let ending = harness.run().await;
    let log = harness.log(&ending.session).await;
    let text: String = log
        .iter()
        .filter_map(|record| match &record.event {
            Event::Replied { reply, .. } => Some(reply.text.to_string()),
            _ => None,
        })
        .collect();
    let chosen: Vec<&str> = text
        .split("chosen ")
        .skip(1)
        .map(|part| part.split('"').nth(1).unwrap_or("none"))
        .take(commands.len())
        .collect();
    assert_eq!(chosen, ["no", "no", "no", "no", "no", "no", "yes", "yes"], "{text}");
    assert!(!text.contains("CANARY"), "{text}");
    assert_eq!(std::fs::read_to_string(harness.path().join("AGENTS.md")).unwrap(), "kept");
}
