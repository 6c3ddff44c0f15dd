//! Sessions by the beginning of their id, and the last one.

use crate::support::{Home, Running};

const SAYS: &str = "[[reply]]\ntext = 'heard: {heard}'";

#[test]
fn a_beginning_is_enough_for_every_command() {
    let home = Home::new();
    let report = home.report(SAYS, &[]);
    let id = report["session_id"].as_str().unwrap();
    let short = &id[..8];
    for command in [&["sessions", "show"][..], &["sessions", "tree"], &["sessions", "export"], &["resume"]] {
        home.brigade(&[command, &[short]].concat()).exits(0);
    }
    home.brigade(&["tell", short, "and more"]).exits(0).prints("heard: and more");
    home.brigade(&["cancel", short]).exits(0).says("lead \"the task\" has already ended: done");
    home.brigade(&["sessions", "rm", short]).exits(0).says("lead \"the task\" is removed");
    home.brigade(&["sessions", "show", short]).exits(2).says("no session begins with");
}

#[test]
fn a_beginning_reaches_below_and_into_a_running_tree() {
    let home = Home::new();
    let mut running = Running::start(&home, "[[reply]]\nfault = 'hang'", &[]);
    running.wait_for("called");
    home.brigade(&["cancel", &running.session[..6]]).exits(0).says("has ended: cancelled");
    assert_eq!(running.end().0, 130);
    let script = "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
                  arguments = { role = 'Helper', task = 'help' }\n[[reply]]\ntext = 'helped'";
    let report = home.report(script, &[]);
    let id = report["session_id"].as_str().unwrap();
    home.brigade(&["sessions", "show", &format!("{}.1-0", &id[..6])]).exits(0).prints("helped");
    home.brigade(&["sessions", "show", &format!("{}.7-0", &id[..6])]).exits(2).says("there is no session");
}

#[test]
fn the_last_session_is_the_newest_root() {
    let home = Home::new();
    home.brigade(&["sessions", "show", "last"]).exits(2).says("there are no sessions yet");
    home.report(SAYS, &[]);
    let report = home.report("[[reply]]\ntext = 'the newest'", &[]);
    home.brigade(&["sessions", "show", "last"]).exits(0).prints("the newest");
    home.brigade(&["resume", "last"]).exits(0).prints("the newest");
    home.brigade(&["sessions", "rm", "last"]).exits(0).says("is removed");
    home.brigade(&["sessions", "show", report["session_id"].as_str().unwrap()]).exits(2);
    home.brigade(&["sessions", "rm", "la"]).exits(2).says("is not a session id").says("`last` is the newest");
}
