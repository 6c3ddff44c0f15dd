//! Sessions by a prefix of their id, and the last one.

use brigade_testing::{Fault, Script, delegate, fault};

use crate::cli::console::Console;
use crate::cli::support::{BackgroundRun, Home};

fn says() -> Script {
    Script::new().reply("heard: {heard}")
}

#[test]
fn id_prefix_works_in_every_command() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let report = home.report(says(), &[]);
    let id = report["session_id"].as_str().unwrap();
    let short = &id[..8];
    console.hide(short, "PREFIX");
    for command in [&["sessions", "show"][..], &["sessions", "tree"], &["sessions", "export"], &["resume"]] {
        home.brigade(&[command, &[short]].concat()).exits_with(0);
    }
    console.add(home.brigade(&["tell", short, "and more"]).exits_with(0));
    console.add(home.brigade(&["cancel", short]).exits_with(0));
    console.add(home.brigade(&["sessions", "rm", short]).exits_with(0));
    console.add(home.brigade(&["sessions", "show", short]).exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn id_prefix_reaches_children_and_running_trees() {
    let home = Home::new();
    let mut console = Console::new(&home);
    let mut running = BackgroundRun::start(&home, Script::new().reply(fault(Fault::Hang)), &[]);
    running.wait_for("called");
    console.hide(&running.session[..6], "PREFIX");
    console.add(home.brigade(&["cancel", &running.session[..6]]).exits_with(0));
    assert_eq!(running.end().0, 130);
    let script = Script::new().agent("lead", [delegate("Helper", "help").turn(1)]).reply("helped");
    let report = home.report(script, &[]);
    let id = report["session_id"].as_str().unwrap();
    console.hide(&id[..6], "PREFIX");
    home.brigade(&["sessions", "show", &format!("{}.1-0", &id[..6])]).exits_with(0).stdout_contains("helped");
    console.add(home.brigade(&["sessions", "show", &format!("{}.7-0", &id[..6])]).exits_with(2));
    insta::assert_snapshot!(console.text());
}

#[test]
fn last_names_the_newest_root_session() {
    let home = Home::new();
    let mut console = Console::new(&home);
    console.add(home.brigade(&["sessions", "show", "last"]).exits_with(2));
    home.report(says(), &[]);
    let report = home.report(Script::new().reply("the newest"), &[]);
    console.add(home.brigade(&["sessions", "show", "last"]).exits_with(0));
    console.add(home.brigade(&["resume", "last"]).exits_with(0));
    console.add(home.brigade(&["sessions", "rm", "last"]).exits_with(0));
    home.brigade(&["sessions", "show", report["session_id"].as_str().unwrap()]).exits_with(2);
    console.add(home.brigade(&["sessions", "rm", "la"]).exits_with(2));
    insta::assert_snapshot!(console.text());
}
