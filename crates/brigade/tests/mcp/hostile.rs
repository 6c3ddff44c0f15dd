//! Servers that do not behave: the call fails clearly, the rest goes on, nothing is left running.

use std::time::Duration;

use brigade::mcp::Servers;
use serde_json::json;

use super::world::{World, gone, names, tool, until};

/// A misdeed that ends the server, what is said about it, and that another server goes on.
async fn is_ended(tool: &str, words: &str) {
    let world = World::new();
    let other = world.server("other", "");
    let servers = Servers::start(vec![world.server("s", ""), other]).await;
    assert_eq!(servers.problems(), []);
    let pids = world.pids(&servers).await;
    let text = world.error(&servers, &format!("mcp__s__{tool}")).await;
    assert!(text.contains(words), "{text}");
    gone(&pids).await;
    let later = world.error(&servers, "mcp__s__echo").await;
    assert!(later.contains(words) && later.contains("cannot be used any more in this run"), "{later}");
    assert_eq!(world.ok(&servers, "mcp__other__echo").await, "hi");
}

#[tokio::test]
async fn a_line_of_ten_megabytes_ends_the_server() {
    is_ended("long_line", "it sent a message of more than 4 MB").await;
}

#[tokio::test]
async fn a_line_without_an_end_ends_the_server() {
    is_ended("no_newline", "it sent a message of more than 4 MB").await;
}

#[tokio::test]
async fn a_flood_ends_the_server() {
    is_ended("flood", "it sent more than 2000 messages within a second").await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_says_how_and_is_started_again() {
    let world = World::new();
    let servers = Servers::start(vec![world.server("s", ""), world.server("other", "")]).await;
    let pids = world.pids(&servers).await;
    let text = world.error(&servers, "mcp__s__die").await;
    assert!(text.contains("outcome unknown: it ended with exit code 3: out of cheese."), "{text}");
    gone(&pids).await;
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
    assert_ne!(world.pids(&servers).await, pids);
    assert_eq!(world.ok(&servers, "mcp__other__echo").await, "hi");
}

#[tokio::test]
async fn a_line_that_a_server_wrote_before_the_call_is_no_cause() {
    let world = World::new();
    let servers = world.start("grumbles").await;
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let text = world.error(&servers, "mcp__s__vanish").await;
    assert!(text.contains("outcome unknown: it ended with exit code 5."), "{text}");
    assert!(!text.contains("cache"), "{text}");
}

#[tokio::test]
async fn a_server_that_dies_again_and_again_is_left_alone() {
    let world = World::new();
    let mut dying = world.server("s", "");
    dying.call_time = Duration::from_secs(20);
    let servers = Servers::start(vec![dying]).await;
    let mut last = String::new();
    for _ in 0..7 {
        last = world.error(&servers, "mcp__s__die").await;
    }
    assert!(last.contains("it was started again 5 times"), "{last}");
    assert_eq!(world.notes().matches("died").count(), 6, "{}", world.notes());
}

#[tokio::test]
async fn a_server_that_comes_back_with_other_tools_is_not_believed() {
    let world = World::new();
    let servers = world.start("renames").await;
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
    world.error(&servers, "mcp__s__die").await;
    let text = world.error(&servers, "mcp__s__echo").await;
    assert!(text.contains("has changed since it was approved, so it was not called"), "{text}");
    let echo = tool(&servers, "mcp__s__echo");
    let change = echo.change().unwrap();
    let what = change.what();
    assert!(what.contains("-description: echo, version 1\n+description: echo, version 2"), "{what}");
    echo.accept(&change);
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn a_call_without_an_answer_ends_in_time_and_is_cancelled() {
    let world = World::new();
    let servers = world.start("").await;
    let text = world.error(&servers, "mcp__s__hang").await;
    assert!(text.contains("outcome unknown: there was no answer within 3 seconds"), "{text}");
    until("the server knows", || world.notes().contains("cancelled")).await;
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn an_answer_to_another_call_is_no_answer() {
    let world = World::new();
    let servers = world.start("").await;
    let text = world.error(&servers, "mcp__s__wrong_id").await;
    assert!(text.contains("no answer within 3 seconds"), "{text}");
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn the_first_of_two_answers_counts() {
    let world = World::new();
    let servers = world.start("").await;
    assert_eq!(world.ok(&servers, "mcp__s__twice").await, "once");
    assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
}

#[tokio::test]
async fn a_tool_that_changes_after_approval_is_refused() {
    for manners in ["", "modern"] {
        let world = World::new();
        let servers = world.start(manners).await;
        if manners == "modern" {
            until("changes are heard of", || world.notes().contains("listens")).await;
        }
        assert_eq!(world.ok(&servers, "mcp__s__echo").await, "hi");
        assert_eq!(world.ok(&servers, "mcp__s__change").await, "changed");
        let text = world.error(&servers, "mcp__s__echo").await;
        assert!(
            text.contains("the definition of its tool 'echo' has changed since it was approved"),
            "{text}"
        );
        assert!(!names(&servers).contains(&"mcp__s__fresh"));
        // This one has no description that could change.
        assert_eq!(world.ok(&servers, "mcp__s__look").await, "{\"tool\":\"look\"}");
    }
}

#[tokio::test]
async fn a_change_that_takes_long_to_list_is_not_forgotten() {
    let world = World::new();
    let mut slow = world.server("s", "slow");
    slow.call_time = Duration::from_secs(60);
    let servers = Servers::start(vec![slow]).await;
    assert_eq!(world.ok(&servers, "mcp__s__change").await, "changed");
    let output = world.call(&servers, "mcp__s__echo", json!({ "text": "hi" })).await;
    assert!(output.text.as_str().contains("has changed since it was approved"), "{}", output.text);
}

#[tokio::test]
async fn an_answer_counts_although_it_takes_long_to_list_what_changed() {
    let world = World::new();
    let mut slow = world.server("s", "slow");
    slow.call_time = Duration::from_millis(1500);
    let servers = Servers::start(vec![slow]).await;
    assert_eq!(world.ok(&servers, "mcp__s__change").await, "changed");
    // What it is now is not known in time, so it is not called.
    let text = world.error(&servers, "mcp__s__echo").await;
    assert!(text.contains("no answer within 1500 ms"), "{text}");
}

#[tokio::test]
async fn a_server_that_stops_telling_of_changes_is_asked() {
    let world = World::new();
    let servers = world.start("modern, hangs up").await;
    let listens = |times| world.notes().matches("listens").count() >= times;
    until("changes are heard of", || listens(1)).await;
    assert_eq!(world.ok(&servers, "mcp__s__change").await, "changed");
    until("the change is known", || tool(&servers, "mcp__s__echo").change().is_some()).await;
    until("changes are heard of again", || listens(2)).await;
}

#[tokio::test]
async fn a_server_that_leaves_at_once_is_a_problem_without_its_keys() {
    let world = World::new();
    let servers = Servers::start(vec![world.server("s", "leaves")]).await;
    let [problem] = servers.problems() else { panic!("{:?}", servers.problems()) };
    assert_eq!(problem.what, "it did not start: it ended with exit code 7: this is no key: (hidden)");
}

#[tokio::test]
async fn a_server_that_is_silent_is_a_problem_in_time() {
    let world = World::new();
    let mut silent = world.server("s", "silent");
    silent.start_time = Duration::from_millis(1500);
    let servers = Servers::start(vec![silent, world.server("other", "")]).await;
    let [problem] = servers.problems() else { panic!("{:?}", servers.problems()) };
    assert_eq!(problem.what, "it was not ready within 1500 ms");
    assert_eq!(world.ok(&servers, "mcp__other__echo").await, "hi");
}

#[tokio::test]
async fn a_list_without_an_end_is_a_problem() {
    for (manners, words) in [("endless", "more than 64 pages"), ("many", "they are more than 256")] {
        let world = World::new();
        let servers = Servers::start(vec![world.server("s", manners)]).await;
        let [problem] = servers.problems() else { panic!("{:?}", servers.problems()) };
        assert!(problem.what.contains(words), "{problem}");
        assert!(servers.tools().is_empty());
    }
}
