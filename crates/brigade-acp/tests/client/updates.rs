//! Updates of an agent: its calls, messages and sub-agents, and its result after a refusal.

use brigade::Task;
use brigade::core::delegation::LimitKind;
use brigade::core::permission::Mode;
use brigade::core::{Event, Status};
use brigade::event_stream::RunEvent;
use brigade_acp::client::AgentUpdate;

use super::setup::{child_end, first_child, harness, harness_with_calls, notes, start_as};
use super::support::{Harness, check_laws, end};

/// Returns what is shown while the lead delegates these commands, and the updates that the log keeps.
async fn run_and_collect(harness: &Harness) -> (Vec<String>, Vec<String>, brigade::RunResult) {
    let mut run = harness.runtime().start(Task::new("the task")).await.unwrap();
    let mut watch = run.take_events();
    let ending = end(run).await.unwrap();
    let mut shown = Vec::new();
    while let Some(live) = watch.next().await {
        if let RunEvent::Waiting { why, .. } = live {
            shown.push(why);
        }
    }
    let events = harness.events(&first_child(&ending)).await;
    let blocks = events.iter().flat_map(|event| match event {
        Event::Replied { reply, .. } => reply.opaque.clone(),
        _ => Vec::new(),
    });
    let recorded =
        blocks.flat_map(|block| AgentUpdate::read(block.as_str())).map(|update| update.to_string()).collect();
    (shown, recorded, ending)
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_call_update_replaces_the_first_title() {
    let commands = [
        r#"!tell {"toolCallId": "1", "title": "Terminal", "kind": "execute"}"#,
        r#"!tell {"toolCallId": "2", "title": "Edit", "kind": "edit"}"#,
        r#"!update {"sessionUpdate": "tool_call_update", "toolCallId": "1", "rawInput": {"command": "cargo test"}}"#,
        r#"!update {"sessionUpdate": "tool_call_update", "toolCallId": "2", "title": "Edit main.rs"}"#,
        r#"!update {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"}"#,
        "!say fine",
    ];
    let harness = harness(&[&commands.join("\n")], |_, _| {});
    let (shown, recorded, _) = run_and_collect(&harness).await;
    assert_eq!(shown, ["Terminal", "Edit", "Terminal: cargo test", "Edit main.rs"]);
    assert_eq!(
        recorded,
        ["tool call done: Terminal: cargo test (execute)", "tool call: Edit main.rs (edit)"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_with_different_ids_are_separated() {
    let harness = harness(&["!message a One \n!message a word.\n!message b Two."], |_, _| {});
    let ending = harness.run().await;
    // The fixture trims its commands.
    assert_eq!(child_end(&harness, &ending).await.0.text.as_str(), "Oneword.\n\nTwo.");
}

const SUB_AGENTS: &str = r#"
    !update {"sessionUpdate": "subagent_update", "sessionId": "c1", "title": "Scout", "description": "find it", "state": {"state": "running"}}
    !child c1 {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "to my parent"}}
    !child c1 {"sessionUpdate": "subagent_update", "sessionId": "c2", "title": "Helper"}
    !child c1 {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Read a.txt", "kind": "read"}
    !child stranger {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Nobody", "kind": "read"}
    !update {"sessionUpdate": "subagent_update", "sessionId": "c1", "state": {"state": "idle", "stopReason": "end_turn"}}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn sub_agents_are_requested_shown_and_counted() {
    let harness = harness(&[&format!("{SUB_AGENTS}\n!say fine")], |_, _| {});
    let (shown, recorded, ending) = run_and_collect(&harness).await;
    assert!(notes(&harness).contains(r#""subagents":{}"#), "{}", notes(&harness));
    assert_eq!(
        shown,
        [
            "sub-agent Scout: find it (running)",
            "sub-agent Helper",
            "Scout: Read a.txt",
            "sub-agent Scout: find it (done)"
        ]
    );
    assert_eq!(
        recorded,
        ["sub-agent Scout: find it (done)", "sub-agent Helper", "tool call: Scout: Read a.txt (read)"]
    );
    let (outcome, spent) = child_end(&harness, &ending).await;
    assert_eq!((outcome.text.as_str(), spent.reported.agents), ("fine", 2));
    assert_eq!(ending.spent.reported.agents, 2, "they are in the totals of the tree");
}

#[tokio::test(flavor = "multi_thread")]
async fn lent_agents_are_counted_from_announcements() {
    let harness = harness(&[&format!("{SUB_AGENTS}\n!spend 1\n!say fine")], |settings, server| {
        settings.budget.agents = brigade::core::Limit::AtMost(9);
        server.terms.agents = 4;
    });
    let ending = harness.run().await;
    let (_, spent) = child_end(&harness, &ending).await;
    assert_eq!((spent.agents, spent.unconfirmed.agents), (2, 0), "{spent:?}");
    check_laws(&harness.log(&ending.session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sub_agent_requests_are_kept_apart_from_the_parents() {
    let commands = [
        r#"!update {"sessionUpdate": "subagent_update", "sessionId": "c1", "title": "Scout"}"#,
        // Each sub-agent numbers its own calls.
        r#"!tell {"toolCallId": "1", "title": "Run", "kind": "execute", "rawInput": {"command": "rm x"}}"#,
        r#"!child c1 {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Run", "kind": "execute", "rawInput": {"command": "ls -l"}}"#,
        r#"!child-asks c1 {"toolCallId": "1"}"#,
        r#"!request {"toolCallId": "1"}"#,
        r#"!child-asks stranger {"toolCallId": "1"}"#,
    ];
    let harness = harness(&[&commands.join("\n")], |settings, _| {
        settings.permissions.mode = Mode::Edit;
        settings.permissions.allow = vec!["shell(ls *)".parse().unwrap()];
    });
    let ending = harness.run().await;
    let events = harness.events(&first_child(&ending)).await;
    let text: String = events
        .iter()
        .filter_map(|event| match event {
            Event::Replied { reply, .. } => Some(reply.text.to_string()),
            _ => None,
        })
        .collect();
    let chosen: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("chosen ")).collect();
    assert_eq!(chosen, [r#""yes""#, r#""no""#, "null"], "{text}");
}

/// The outcome of an agent that was denied `make it so` and then ran this command.
async fn denied(then: &str) -> (brigade::core::Outcome, String) {
    let call =
        r#"{"toolCallId": "1", "title": "Build", "kind": "execute", "rawInput": {"command": "make it so"}}"#;
    let harness = harness(&[&format!("!say I build it now.\n!ask {call}\n{then}")], |_, _| {});
    let ending = harness.run().await;
    check_laws(&harness.log(&ending.session).await);
    let read = harness.answers(&ending.session).await.remove(0);
    (child_end(&harness, &ending).await.0, read)
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_names_the_call_and_the_rule_that_would_permit_it() {
    let refused = "(denied: Build: make it so. Reason: `acp__fix__execute` is not allowed: this mode requires approval, and no \
                   user is available. Continue without it. The user can allow it with the rule `shell(make it so)` in \
                   `permissions.allow`, or with --mode auto.)";
    for then in ["!stop cancelled", "!stop refusal"] {
        let (outcome, read) = denied(then).await;
        assert_eq!(outcome.status, Status::Incomplete { limit: LimitKind::Permission }, "{then}");
        assert_eq!(outcome.text.as_str(), format!("I build it now.\n\n{refused}"), "{then}");
        assert_eq!(read, format!("[Ext]: I build it now.\n\n{refused}\n(incomplete: permission)"), "{then}");
    }
    let (outcome, _) = denied("!fail aborted").await;
    assert_eq!(outcome.status, Status::Incomplete { limit: LimitKind::Permission });
    let failed =
        format!("I build it now.\n\n{refused}\n(then the external agent failed: Internal error: aborted)");
    assert_eq!(outcome.text.as_str(), failed);
    // An agent that finds another way completes, and its caller still sees the denial.
    let (outcome, _) = denied("!say I did it in another way.").await;
    assert_eq!(outcome.status, Status::Done);
    assert_eq!(outcome.text.as_str(), format!("I did it in another way.\n\n{refused}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn single_generation_without_tools_says_how_to_lend_some() {
    let call = r#"{"toolCallId": "1", "title": "Build", "kind": "execute"}"#;
    let commands = format!("!ask {call}\n!stop cancelled");
    let harness = harness_with_calls(&[("subagent_delegate", &commands)], |_, _| {});
    let ending = harness.run().await;
    let (outcome, _) = child_end(&harness, &ending).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: LimitKind::Permission });
    let text = outcome.text.as_str();
    assert!(
        text.starts_with("(denied: Build. Reason: this agent may not use tools.") && text.contains("`acp`"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn old_stderr_line_is_not_reported_as_the_cause() {
    let harness = harness(&["!sleep 300\n!vanish"], |_, server| start_as(server, "grumbles"));
    let ending = harness.run().await;
    let Status::Failed { cause } = child_end(&harness, &ending).await.0.status else {
        panic!("it did not fail")
    };
    assert!(cause.ends_with("the process exited with code 5"), "{cause}");
}
