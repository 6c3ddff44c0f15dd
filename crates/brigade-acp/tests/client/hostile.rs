//! Agents that violate the protocol. Their own call fails with a clear error, the next one works, and no
//! process is left.

use std::time::Duration;

use brigade::core::Status;
use brigade::core::permission::Mode;

use super::setup::{child_end, count, first_child, harness, start_as, wait_until_gone};
use super::support::{Harness, check_laws};

/// Delegates a task that fails and then one that succeeds.
async fn expect_failure(commands: &str, expected: &str) -> Harness {
    let harness = harness(&[commands, "!say fine"], |_, server| server.terms.timeout = Some(6000));
    let ending = harness.run().await;
    let answers = harness.answers(&ending.session).await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(answers[0].contains(expected), "{commands}: {answers:?}");
    assert!(answers[0].len() < 2000, "{commands}: {} bytes", answers[0].len());
    assert_eq!(answers[1], "[Ext]: fine", "{commands}");
    check_laws(&harness.log(&ending.session).await);
    wait_until_gone(&harness).await;
    harness
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_ten_megabytes_fails_the_call() {
    expect_failure("!say a\n!long", "a message of more than 8 MiB").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_message_fails_the_call() {
    expect_failure("!endless", "a message of more than 8 MiB").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_json_fails_the_call() {
    expect_failure("!junk", "it sent an invalid message: ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn response_to_unknown_id_fails_the_call() {
    expect_failure("!wrong-id", "it responded to an unknown request").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_report_redacts_secrets() {
    let harness = expect_failure(
        "!say a\n!die",
        "the process exited with code 3: out of memory, key [redacted: configured secret]",
    )
    .await;
    assert_eq!(count(&harness, "start"), 2, "the next call started a new process");
}

#[tokio::test(flavor = "multi_thread")]
async fn update_flood_fails_the_call() {
    expect_failure("!flood", "failed: the external agent 'fix' failed: more ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_agent_times_out() {
    let harness = harness(&["!hang", "!say fine"], |_, server| server.terms.timeout = Some(3000));
    let ending = harness.run().await;
    let answers = harness.answers(&ending.session).await;
    assert!(answers[0].contains("(incomplete: time)"), "{answers:?}");
    assert_eq!(answers[1], "[Ext]: fine");
    wait_until_gone(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_process_does_not_affect_the_next_call() {
    let harness = harness(&["!freeze", "!say fine"], |_, server| server.terms.timeout = Some(3000));
    let ending = harness.run().await;
    let answers = harness.answers(&ending.session).await;
    assert!(answers[0].contains("(incomplete: time)"), "{answers:?}");
    assert_eq!(answers[1], "[Ext]: fine");
    assert_eq!(count(&harness, "start"), 2);
    wait_until_gone(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_output_fails_the_call_and_replaces_the_process() {
    let harness = expect_failure("!say a\n!shut", "the process closed the connection").await;
    assert_eq!(count(&harness, "start"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_does_not_read_is_ended() {
    let harness = harness(&["!deaf", "!say fine"], |settings, server| {
        settings.permissions.mode = Mode::Auto;
        server.terms.timeout = Some(20_000);
    });
    let ending = harness.run().await;
    let answers = harness.answers(&ending.session).await;
    assert!(answers[0].contains("it did not read its input"), "{answers:?}");
    assert_eq!(answers[1], "[Ext]: fine");
    wait_until_gone(&harness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overlong_request_id_fails_the_call() {
    expect_failure("!strange-id", "it sent a request id that is neither").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn error_message_redacts_secrets() {
    let harness = harness(&["!fail key SECRET or a-filled-in-key"], |_, _| {});
    let ending = harness.run().await;
    let answers = harness.answers(&ending.session).await;
    assert!(
        answers[0]
            .contains("Internal error: key [redacted: configured secret] or [redacted: configured secret]"),
        "{answers:?}"
    );
    let events = format!("{:?}", harness.events(&first_child(&ending)).await);
    assert!(events.contains("[redacted: configured secret]") && !events.contains("a-secret-key"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_start_is_reported() {
    for (mode, seconds, expected) in [
        // Only the agent that has to run into the timeout gets a short one.
        ("silent", 1, "cannot initialize the agent: no response within 1 s"),
        ("no-session", 6, "cannot open a session: no response within 6 s"),
        ("exit", 60, "the process exited with code 4: no licence found"),
        ("old", 60, "unsupported ACP version 0. Only version 1 is supported."),
    ] {
        let harness = harness(&["!say fine"], move |_, server| {
            start_as(server, mode);
            server.start_timeout = Duration::from_secs(seconds);
        });
        let ending = harness.run().await;
        let answers = harness.answers(&ending.session).await;
        assert!(answers[0].contains(expected), "{mode}: {answers:?}");
        wait_until_gone(&harness).await;
    }
    let harness = harness(&["!say fine"], |_, server| {
        server.command = "/no/such/program".to_owned();
        server.arguments.clear();
    });
    let ending = harness.run().await;
    let answers = harness.answers(&ending.session).await;
    assert!(answers[0].contains("cannot initialize the agent: command not found"), "{answers:?}");
}

/// Harmless deviations are ignored or refused, and the call continues.
#[tokio::test(flavor = "multi_thread")]
async fn harmless_protocol_deviations_are_tolerated() {
    for (commands, expected) in [
        ("!noise\n!say a", "a"),
        ("!say a\n!twice", "a"),
        ("!unknown\n!say a", "error unknown method"),
        ("!stranger a.txt", "unknown session"),
        ("!escape", "red"),
    ] {
        let harness = harness(&[commands, "!say fine"], |_, _| {});
        let ending = harness.run().await;
        let answers = harness.answers(&ending.session).await;
        assert!(answers[0].contains(expected), "{commands}: {answers:?}");
        assert_eq!(answers[1], "[Ext]: fine", "{commands}");
        assert_eq!(child_end(&harness, &ending).await.0.status, Status::Done);
        assert_eq!(count(&harness, "start"), 1, "{commands}: it is still running");
    }
}
