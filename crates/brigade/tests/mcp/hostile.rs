//! Misbehaving servers: the call fails with a clear message, other servers are not affected, and no process
//! is left running.

use std::time::Duration;

use brigade::mcp::Servers;
use serde_json::json;

use super::support::{McpHarness, names, tool, until, wait_until_gone};

/// Asserts that a violation ends the server with this message, and that another server keeps working.
async fn assert_server_is_ended(tool: &str, expected: &str) {
    let harness = McpHarness::new();
    let other = harness.server("other", "");
    let servers = Servers::start(vec![harness.server("s", ""), other]).await;
    assert_eq!(servers.problems(), []);
    let pids = harness.pids(&servers).await;
    let text = harness.error(&servers, &format!("mcp__s__{tool}")).await;
    assert!(text.contains(expected), "{text}");
    wait_until_gone(&pids).await;
    let later = harness.error(&servers, "mcp__s__echo").await;
    assert!(later.contains(expected) && later.contains("can no longer be used in this run"), "{later}");
    assert_eq!(harness.ok(&servers, "mcp__other__echo").await, "hi");
}

#[tokio::test]
async fn overlong_line_ends_the_server() {
    assert_server_is_ended("long_line", "it sent a message larger than 4 MiB").await;
}

#[tokio::test]
async fn endless_line_ends_the_server() {
    assert_server_is_ended("no_newline", "it sent a message larger than 4 MiB").await;
}

#[tokio::test]
async fn message_flood_ends_the_server() {
    assert_server_is_ended("flood", "it sent more than 2000 messages within a second").await;
}

#[tokio::test]
async fn server_that_dies_in_a_call_is_restarted() {
    let harness = McpHarness::new();
    let servers = Servers::start(vec![harness.server("s", ""), harness.server("other", "")]).await;
    let pids = harness.pids(&servers).await;
    let text = harness.error(&servers, "mcp__s__die").await;
    assert!(text.contains("outcome unknown: it exited with code 3: out of cheese."), "{text}");
    wait_until_gone(&pids).await;
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
    assert_ne!(harness.pids(&servers).await, pids);
    assert_eq!(harness.ok(&servers, "mcp__other__echo").await, "hi");
}

#[tokio::test]
async fn stderr_from_before_the_call_is_not_the_cause() {
    let harness = McpHarness::new();
    let servers = harness.start("grumbles").await;
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let text = harness.error(&servers, "mcp__s__vanish").await;
    assert!(text.contains("outcome unknown: it exited with code 5."), "{text}");
    assert!(!text.contains("cache"), "{text}");
}

#[tokio::test]
async fn server_that_keeps_dying_is_given_up() {
    let harness = McpHarness::new();
    let mut dying = harness.server("s", "");
    dying.call_timeout = Duration::from_secs(20);
    let servers = Servers::start(vec![dying]).await;
    let mut last = String::new();
    for _ in 0..7 {
        last = harness.error(&servers, "mcp__s__die").await;
    }
    assert!(last.contains("it was restarted 5 times"), "{last}");
    assert_eq!(harness.notes().matches("died").count(), 6, "{}", harness.notes());
}

#[tokio::test]
async fn restarted_server_with_changed_tools_needs_approval() {
    let harness = McpHarness::new();
    let servers = harness.start("renames").await;
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
    harness.error(&servers, "mcp__s__die").await;
    let text = harness.error(&servers, "mcp__s__echo").await;
    assert!(text.contains("its definition has changed since it was approved"), "{text}");
    let echo = tool(&servers, "mcp__s__echo");
    let change = echo.change().unwrap();
    let what = change.diff();
    assert!(what.contains("-description: echo, version 1\n+description: echo, version 2"), "{what}");
    echo.accept(&change);
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn unanswered_call_times_out_and_is_cancelled() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let text = harness.error(&servers, "mcp__s__hang").await;
    assert!(text.contains("outcome unknown: no response within 3 seconds"), "{text}");
    until("the server knows", || harness.notes().contains("cancelled")).await;
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn response_with_a_wrong_id_is_ignored() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    let text = harness.error(&servers, "mcp__s__wrong_id").await;
    assert!(text.contains("no response within 3 seconds"), "{text}");
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn first_of_two_responses_counts() {
    let harness = McpHarness::new();
    let servers = harness.start("").await;
    assert_eq!(harness.ok(&servers, "mcp__s__twice").await, "once");
    assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn tool_changed_after_approval_is_refused() {
    for behaviour in ["", "modern"] {
        let harness = McpHarness::new();
        let servers = harness.start(behaviour).await;
        if behaviour == "modern" {
            until("changes are heard of", || harness.notes().contains("listens")).await;
        }
        assert_eq!(harness.ok(&servers, "mcp__s__echo").await, "hi");
        assert_eq!(harness.ok(&servers, "mcp__s__change").await, "changed");
        let text = harness.error(&servers, "mcp__s__echo").await;
        assert!(text.contains("its tool 'echo' was not called: its definition has changed"), "{text}");
        assert!(!names(&servers).contains(&"mcp__s__fresh"));
        // This one has no description that could change.
        assert_eq!(harness.ok(&servers, "mcp__s__look").await, "{\"tool\":\"look\"}");
    }
}

#[tokio::test]
async fn slowly_listed_change_is_not_forgotten() {
    let harness = McpHarness::new();
    let mut slow = harness.server("s", "slow");
    slow.call_timeout = Duration::from_secs(60);
    let servers = Servers::start(vec![slow]).await;
    assert_eq!(harness.ok(&servers, "mcp__s__change").await, "changed");
    let output = harness.call(&servers, "mcp__s__echo", json!({ "text": "hi" })).await;
    assert!(output.text.as_str().contains("has changed since it was approved"), "{}", output.text);
}

#[tokio::test]
async fn response_counts_while_the_change_is_listed() {
    let harness = McpHarness::new();
    let mut slow = harness.server("s", "slow");
    slow.call_timeout = Duration::from_millis(1500);
    let servers = Servers::start(vec![slow]).await;
    assert_eq!(harness.ok(&servers, "mcp__s__change").await, "changed");
    // The current definition is not known in time, so the tool is not called.
    let text = harness.error(&servers, "mcp__s__echo").await;
    assert!(text.contains("no response within 1500 ms"), "{text}");
}

#[tokio::test]
async fn ended_subscription_is_renewed() {
    let harness = McpHarness::new();
    let servers = harness.start("modern, hangs up").await;
    let listens = |times| harness.notes().matches("listens").count() >= times;
    until("changes are heard of", || listens(1)).await;
    assert_eq!(harness.ok(&servers, "mcp__s__change").await, "changed");
    until("the change is known", || tool(&servers, "mcp__s__echo").change().is_some()).await;
    until("changes are heard of again", || listens(2)).await;
}

#[tokio::test]
async fn exit_at_start_is_reported_without_secrets() {
    let harness = McpHarness::new();
    let servers = Servers::start(vec![harness.server("s", "leaves")]).await;
    let [problem] = servers.problems() else { panic!("{:?}", servers.problems()) };
    assert_eq!(
        problem.message,
        "cannot start the server: it exited with code 7: this is no key: [redacted: configured secret]"
    );
}

#[tokio::test]
async fn silent_server_times_out_at_start() {
    let harness = McpHarness::new();
    let mut silent = harness.server("s", "silent");
    silent.start_timeout = Duration::from_millis(1500);
    let servers = Servers::start(vec![silent, harness.server("other", "")]).await;
    let [problem] = servers.problems() else { panic!("{:?}", servers.problems()) };
    assert_eq!(problem.message, "it was not ready within 1500 ms");
    assert_eq!(harness.ok(&servers, "mcp__other__echo").await, "hi");
}

#[tokio::test]
async fn endless_tool_list_is_refused() {
    for (behaviour, expected) in
        [("endless", "more than 64 pages"), ("many", "the list has more than 256 entries")]
    {
        let harness = McpHarness::new();
        let servers = Servers::start(vec![harness.server("s", behaviour)]).await;
        let [problem] = servers.problems() else { panic!("{:?}", servers.problems()) };
        assert!(problem.message.contains(expected), "{problem}");
        assert!(servers.tools().is_empty());
    }
}
