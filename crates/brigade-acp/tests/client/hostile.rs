//! Agents that break the protocol: their own call fails clearly, the next one works, and nothing is left.

use std::time::Duration;

use brigade::core::Status;
use brigade::core::permission::Mode;

use super::support::{Stage, check_laws};
use super::world::{all_gone, begins, child_end, count, first_child, stage};

/// Hands out a task that goes wrong and then one that does not.
async fn goes_wrong(orders: &str, words: &str) -> Stage {
    let stage = stage(&[orders, "!say fine"], |_, server| server.terms.timeout = Some(6000));
    let ending = stage.run().await;
    let answers = stage.answers(&ending.session).await;
    assert_eq!(ending.outcome.status, Status::Done);
    assert!(answers[0].contains(words), "{orders}: {answers:?}");
    assert!(answers[0].len() < 2000, "{orders}: {} bytes", answers[0].len());
    assert_eq!(answers[1], "[Ext]: fine", "{orders}");
    check_laws(&stage.log(&ending.session).await);
    all_gone(&stage).await;
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_ten_megabytes() {
    goes_wrong("!say a\n!long", "a message of more than 8 MB").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_an_end() {
    goes_wrong("!endless", "a message of more than 8 MB").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_no_json() {
    goes_wrong("!junk", "a message that cannot be read").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_nothing() {
    goes_wrong("!wrong-id", "it answered a question that was never asked").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_in_the_middle_shows_no_secret() {
    let stage = goes_wrong("!say a\n!die", "it ended with exit code 3: out of memory, key (hidden)").await;
    assert_eq!(count(&stage, "start"), 2, "the next call had a process of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood() {
    goes_wrong("!flood", "failed: the external agent 'fix' failed: it s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_ever() {
    let stage = stage(&["!hang", "!say fine"], |_, server| server.terms.timeout = Some(5000));
    let ending = stage.run().await;
    let answers = stage.answers(&ending.session).await;
    assert!(answers[0].contains("(incomplete: time)"), "{answers:?}");
    assert_eq!(answers[1], "[Ext]: fine");
    all_gone(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_stuck_does_not_cost_the_next_call_its_result() {
    let stage = stage(&["!freeze", "!say fine"], |_, server| server.terms.timeout = Some(5000));
    let ending = stage.run().await;
    let answers = stage.answers(&ending.session).await;
    assert!(answers[0].contains("(incomplete: time)"), "{answers:?}");
    assert_eq!(answers[1], "[Ext]: fine");
    assert_eq!(count(&stage, "start"), 2);
    all_gone(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_of_what_it_says_without_its_own_end() {
    let stage = goes_wrong("!say a\n!shut", "it closed the connection").await;
    assert_eq!(count(&stage, "start"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads() {
    let stage = stage(&["!deaf", "!say fine"], |settings, server| {
        settings.permissions.mode = Mode::Auto;
        server.terms.timeout = Some(20_000);
    });
    let ending = stage.run().await;
    let answers = stage.answers(&ending.session).await;
    assert!(answers[0].contains("it does not read what it is sent"), "{answers:?}");
    assert_eq!(answers[1], "[Ext]: fine");
    all_gone(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_longer_than_any_id() {
    goes_wrong("!strange-id", "it asked with an id that is neither").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_shows_keys() {
    let stage = stage(&["!fail key SECRET or a-filled-in-key"], |_, _| {});
    let ending = stage.run().await;
    let answers = stage.answers(&ending.session).await;
    assert!(answers[0].contains("Internal error: key (hidden) or (hidden)"), "{answers:?}");
    let events = format!("{:?}", stage.events(&first_child(&ending)).await);
    assert!(events.contains("(hidden)") && !events.contains("a-secret-key"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_beginning() {
    for (how, seconds, words) in [
        // A short time only for the one that has to wait for it to be over.
        ("silent", 1, "it did not answer within 1 s of its start"),
        ("no-session", 6, "it did not open a session within 6 s"),
        ("exit", 60, "it ended with exit code 4: no licence found"),
        ("old", 60, "it speaks version 0 of the protocol, not 1"),
    ] {
        let stage = stage(&["!say fine"], move |_, server| {
            begins(server, how);
            server.start_time = Duration::from_secs(seconds);
        });
        let ending = stage.run().await;
        let answers = stage.answers(&ending.session).await;
        assert!(answers[0].contains(words), "{how}: {answers:?}");
        all_gone(&stage).await;
    }
    let stage = stage(&["!say fine"], |_, server| {
        server.command = "/no/such/program".to_owned();
        server.arguments.clear();
    });
    let ending = stage.run().await;
    let answers = stage.answers(&ending.session).await;
    assert!(answers[0].contains("its program was not found"), "{answers:?}");
}

/// What is odd and harms nobody is overlooked or refused, and the call goes on.
#[tokio::test(flavor = "multi_thread")]
async fn oddities() {
    for (orders, words) in [
        ("!noise\n!say a", "a"),
        ("!say a\n!twice", "a"),
        ("!unknown\n!say a", "error there is no such method"),
        ("!stranger a.txt", "there is no such session"),
        ("!escape", "red"),
    ] {
        let stage = stage(&[orders, "!say fine"], |_, _| {});
        let ending = stage.run().await;
        let answers = stage.answers(&ending.session).await;
        assert!(answers[0].contains(words), "{orders}: {answers:?}");
        assert_eq!(answers[1], "[Ext]: fine", "{orders}");
        assert_eq!(child_end(&stage, &ending).await.0.status, Status::Done);
        assert_eq!(count(&stage, "start"), 1, "{orders}: it is still there");
    }
}
