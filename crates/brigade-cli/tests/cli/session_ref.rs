//! Sessions by a prefix of their id, and the last one.

use crate::support::{BackgroundRun, Home};

const SAYS: &str = "[[reply]]\ntext = 'heard: {heard}'";

#[test]
fn id_prefix_works_in_every_command() {
    let home = Home::new();
    let report = home.report(SAYS, &[]);
    let id = report["session_id"].as_str().unwrap();
    let short = &id[..8];
    for command in [&["sessions", "show"][..], &["sessions", "tree"], &["sessions", "export"], &["resume"]] {
        home.brigade(&[command, &[short]].concat()).exits_with(0);
    }
    home.brigade(&["tell", short, "and more"]).exits_with(0).stdout_contains("heard: and more");
    home.brigade(&["cancel", short])
        .exits_with(0)
        .stderr_contains("lead \"the task\" has already ended: done");
    home.brigade(&["sessions", "rm", short]).exits_with(0).stderr_contains("Removed lead \"the task\"");
    home.brigade(&["sessions", "show", short]).exits_with(2).stderr_contains("no session id starts with");
}

#[test]
fn id_prefix_reaches_children_and_running_trees() {
    let home = Home::new();
    let mut running = BackgroundRun::start(&home, "[[reply]]\nfault = 'hang'", &[]);
    running.wait_for("called");
    home.brigade(&["cancel", &running.session[..6]]).exits_with(0).stderr_contains("has ended: cancelled");
    assert_eq!(running.end().0, 130);
    let script = "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
                  arguments = { role = 'Helper', task = 'help' }\n[[reply]]\ntext = 'helped'";
    let report = home.report(script, &[]);
    let id = report["session_id"].as_str().unwrap();
    home.brigade(&["sessions", "show", &format!("{}.1-0", &id[..6])]).exits_with(0).stdout_contains("helped");
    home.brigade(&["sessions", "show", &format!("{}.7-0", &id[..6])])
        .exits_with(2)
        .stderr_contains("does not exist. List all sessions");
}

#[test]
fn last_names_the_newest_root_session() {
    let home = Home::new();
    home.brigade(&["sessions", "show", "last"]).exits_with(2).stderr_contains("no sessions yet");
    home.report(SAYS, &[]);
    let report = home.report("[[reply]]\ntext = 'the newest'", &[]);
    home.brigade(&["sessions", "show", "last"]).exits_with(0).stdout_contains("the newest");
    home.brigade(&["resume", "last"]).exits_with(0).stdout_contains("the newest");
    home.brigade(&["sessions", "rm", "last"]).exits_with(0).stderr_contains("Removed lead");
    home.brigade(&["sessions", "show", report["session_id"].as_str().unwrap()]).exits_with(2);
    home.brigade(&["sessions", "rm", "la"])
        .exits_with(2)
        .stderr_contains("is not a session id")
        .stderr_contains("`last` for the newest");
}
