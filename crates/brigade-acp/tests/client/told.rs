//! What an agent tells of its work: its calls, its messages, its sub-agents, and what becomes of it after a refusal.

use brigade::Task;
use brigade::core::delegation::Which;
use brigade::core::permission::Mode;
use brigade::core::{Event, Status};
use brigade::live::Live;
use brigade_acp::client::Aside;

use super::support::{Stage, check_laws, end};
use super::world::{begins, calling, child_end, first_child, notes, stage};

/// What is shown while the lead hands out these orders, and what the record keeps beside the agent's words.
async fn told(stage: &Stage) -> (Vec<String>, Vec<String>, brigade::Ending) {
    let prepared = stage.runtime().prepare(Task::new("the task")).await.unwrap();
    let mut watch = prepared.watch();
    let ending = end(prepared.start()).await.unwrap();
    let mut shown = Vec::new();
    while let Some(live) = watch.next().await {
        if let Live::Waiting { why, .. } = live {
            shown.push(why);
        }
    }
    let events = stage.events(&first_child(&ending)).await;
    let blocks = events.iter().flat_map(|event| match event {
        Event::Replied { reply, .. } => reply.opaque.clone(),
        _ => Vec::new(),
    });
    let kept = blocks.flat_map(|block| Aside::read(block.as_str())).map(|aside| aside.to_string()).collect();
    (shown, kept, ending)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_update_says_of_a_call_replaces_its_first_title() {
    let orders = [
        r#"!tell {"toolCallId": "1", "title": "Terminal", "kind": "execute"}"#,
        r#"!tell {"toolCallId": "2", "title": "Edit", "kind": "edit"}"#,
        r#"!update {"sessionUpdate": "tool_call_update", "toolCallId": "1", "rawInput": {"command": "cargo test"}}"#,
        r#"!update {"sessionUpdate": "tool_call_update", "toolCallId": "2", "title": "Edit main.rs"}"#,
        r#"!update {"sessionUpdate": "tool_call_update", "toolCallId": "1", "status": "completed"}"#,
        "!say fine",
    ];
    let stage = stage(&[&orders.join("\n")], |_, _| {});
    let (shown, kept, _) = told(&stage).await;
    assert_eq!(shown, ["Terminal", "Edit", "Terminal: cargo test", "Edit main.rs"]);
    assert_eq!(
        kept,
        ["done by itself: Terminal: cargo test (execute)", "does by itself: Edit main.rs (edit)"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_with_different_ids_are_separated() {
    let stage = stage(&["!message a One \n!message a word.\n!message b Two."], |_, _| {});
    let ending = stage.run().await;
    // The fixture trims its orders.
    assert_eq!(child_end(&stage, &ending).await.0.text.as_str(), "Oneword.\n\nTwo.");
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
async fn sub_agents_of_an_agent_are_asked_for_shown_and_counted() {
    let stage = stage(&[&format!("{SUB_AGENTS}\n!say fine")], |_, _| {});
    let (shown, kept, ending) = told(&stage).await;
    assert!(notes(&stage).contains(r#""subagents":{}"#), "{}", notes(&stage));
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
        kept,
        ["sub-agent Scout: find it (done)", "sub-agent Helper", "does by itself: Scout: Read a.txt (read)"]
    );
    let (outcome, spent) = child_end(&stage, &ending).await;
    assert_eq!((outcome.text.as_str(), spent.reported.agents), ("fine", 2));
    assert_eq!(ending.spent.reported.agents, 2, "they are in the totals of the tree");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_are_lent_are_counted_by_what_is_told_of_them() {
    let stage = stage(&[&format!("{SUB_AGENTS}\n!spend 1\n!say fine")], |settings, server| {
        settings.budget.agents = brigade::core::Limit::AtMost(9);
        server.terms.agents = 4;
    });
    let ending = stage.run().await;
    let (_, spent) = child_end(&stage, &ending).await;
    assert_eq!((spent.agents, spent.in_doubt.agents), (2, 0), "{spent:?}");
    check_laws(&stage.log(&ending.session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sub_agent_asks_is_decided_and_not_mixed_up_with_its_parent() {
    let orders = [
        r#"!update {"sessionUpdate": "subagent_update", "sessionId": "c1", "title": "Scout"}"#,
        // The same number means another call in each of them.
        r#"!tell {"toolCallId": "1", "title": "Run", "kind": "execute", "rawInput": {"command": "rm x"}}"#,
        r#"!child c1 {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Run", "kind": "execute", "rawInput": {"command": "ls -l"}}"#,
        r#"!child-asks c1 {"toolCallId": "1"}"#,
        r#"!request {"toolCallId": "1"}"#,
        r#"!child-asks stranger {"toolCallId": "1"}"#,
    ];
    let stage = stage(&[&orders.join("\n")], |settings, _| {
        settings.permissions.mode = Mode::Edit;
        settings.permissions.allow = vec!["shell(ls *)".parse().unwrap()];
    });
    let ending = stage.run().await;
    let events = stage.events(&first_child(&ending)).await;
    let said: String = events
        .iter()
        .filter_map(|event| match event {
            Event::Replied { reply, .. } => Some(reply.text.to_string()),
            _ => None,
        })
        .collect();
    let chosen: Vec<&str> = said.lines().filter_map(|line| line.trim().strip_prefix("chosen ")).collect();
    assert_eq!(chosen, [r#""yes""#, r#""no""#, "null"], "{said}");
}

/// How the agent ended that was denied `make it so` and then did this.
async fn denied(then: &str) -> (brigade::core::Outcome, String) {
    let call =
        r#"{"toolCallId": "1", "title": "Build", "kind": "execute", "rawInput": {"command": "make it so"}}"#;
    let stage = stage(&[&format!("!say I build it now.\n!ask {call}\n{then}")], |_, _| {});
    let ending = stage.run().await;
    check_laws(&stage.log(&ending.session).await);
    let read = stage.answers(&ending.session).await.remove(0);
    (child_end(&stage, &ending).await.0, read)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refusal_the_caller_reads_which_call_and_what_would_permit_it() {
    let refused = "(refused: Build: make it so. 'acp__fix__execute' is not allowed: this mode asks before it, and nobody \
                   can be asked here. The user can permit it with the rule `shell(make it so)` in permissions.allow, or \
                   with --mode auto)";
    for then in ["!stop cancelled", "!stop refusal"] {
        let (outcome, read) = denied(then).await;
        assert_eq!(outcome.status, Status::Incomplete { limit: Which::Permission }, "{then}");
        assert_eq!(outcome.text.as_str(), format!("I build it now.\n\n{refused}"), "{then}");
        assert_eq!(read, format!("[Ext]: I build it now.\n\n{refused}\n(incomplete: permission)"), "{then}");
    }
    let (outcome, _) = denied("!fail aborted").await;
    assert_eq!(outcome.status, Status::Incomplete { limit: Which::Permission });
    let failed =
        format!("I build it now.\n\n{refused}\n(then the external agent failed: Internal error: aborted)");
    assert_eq!(outcome.text.as_str(), failed);
    // One that finds another way is done, and its caller reads of it all the same.
    let (outcome, _) = denied("!say I did it in another way.").await;
    assert_eq!(outcome.status, Status::Done);
    assert_eq!(outcome.text.as_str(), format!("I did it in another way.\n\n{refused}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_generation_that_gives_up_without_tools_says_what_lends_some() {
    let call = r#"{"toolCallId": "1", "title": "Build", "kind": "execute"}"#;
    let orders = format!("!ask {call}\n!stop cancelled");
    let stage = calling(&[("subagent_delegate", &orders)], |_, _| {});
    let ending = stage.run().await;
    let (outcome, _) = child_end(&stage, &ending).await;
    assert_eq!(outcome.status, Status::Incomplete { limit: Which::Permission });
    let text = outcome.text.as_str();
    assert!(
        text.starts_with("(refused: Build. this agent was lent no tools.") && text.contains("`acp`"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_a_program_wrote_long_before_its_end_is_no_cause() {
    let stage = stage(&["!sleep 300\n!vanish"], |_, server| begins(server, "grumbles"));
    let ending = stage.run().await;
    let Status::Failed { cause } = child_end(&stage, &ending).await.0.status else {
        panic!("it did not fail")
    };
    assert!(cause.ends_with("it ended with exit code 5"), "{cause}");
}
