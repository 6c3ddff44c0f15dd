//! Looking at sessions and moving them.

use crate::support::{Home, Running, text};

const ONE: &str = "[[reply]]\nagent = 'lead'\nturn = 1\n[[reply.call]]\ntool = 'delegate'\n\
                   arguments = { role = 'Helper', task = 'help' }\n\
                   [[reply]]\nagent = 'lead'\ntext = 'all: {result:0}'\n[[reply]]\ntext = 'helped'";

#[test]
fn an_export_is_the_session() {
    let (here, there) = (Home::new(), Home::new());
    let report = here.report(ONE, &[]);
    let id = report["session_id"].as_str().unwrap();
    let export = here.brigade(&["sessions", "export", id]);
    let imported = there.with_input(&["sessions", "import", "-"], &export.exits(0).stdout);
    assert_eq!(imported.exits(0).stdout.trim(), id);
    let file = there.work().join("again.jsonl");
    there.brigade(&["sessions", "export", id, "--output", file.to_str().unwrap()]).exits(0);
    assert_eq!(text(&file), export.stdout);
    for what in ["show", "tree"] {
        let shown = |home: &Home| home.brigade(&["sessions", what, id]).exits(0).stdout.clone();
        assert_eq!(shown(&here), shown(&there));
    }
    // Imported twice it is still the same; cut in the middle, what is whole is kept.
    there.brigade(&["sessions", "import", file.to_str().unwrap()]).exits(0).says("0 were not here before");
    let cut: String = export.stdout.chars().take(export.stdout.len() - 30).collect();
    Home::new().with_input(&["sessions", "import", "-"], &cut).exits(1).says("is damaged");
    there.with_input(&["sessions", "import", "-"], "nonsense").exits(2).says("not an export");
}

#[test]
fn sessions_are_listed_shown_and_removed() {
    let home = Home::new();
    home.brigade(&["sessions", "list"]).exits(0).says("no sessions yet");
    let report = home.report(ONE, &[]);
    let id = report["session_id"].as_str().unwrap();
    home.brigade(&["sessions", "list"]).exits(0).prints(id).prints("done").prints("the task");
    home.brigade(&["sessions", "show", id])
        .exits(0)
        .prints("the task")
        .prints("delegated to Helper")
        .prints("ended: done");
    home.brigade(&["sessions", "tree", id]).exits(0).prints("└─ Helper").prints("total");
    let child = format!("{id}.1-0");
    home.brigade(&["sessions", "show", &child]).exits(0).prints("helped");
    home.brigade(&["sessions", "rm", &child]).exits(2).says("is a part of");
    home.brigade(&["sessions", "rm", id]).exits(0);
    home.brigade(&["sessions", "show", id]).exits(2);
}

#[test]
fn a_running_session_is_not_removed() {
    let home = Home::new();
    let mut running = Running::start(&home, "[[reply]]\nfault = 'hang'", &[]);
    running.wait_for("called");
    home.brigade(&["sessions", "rm", &running.session]).exits(1).says("is being run by");
    home.brigade(&["sessions", "list"]).exits(0).prints("running");
    home.brigade(&["resume", &running.session]).exits(1).says("is being run by");
}

#[test]
fn a_damaged_session_is_shown_as_far_as_it_is_whole() {
    let home = Home::new();
    let report = home.report(
        "[[reply]]\nturn = 1\ntext = 'before'\n[[reply.call]]\ntool = 'echo'\n\
                              arguments = { text = 'x' }\n[[reply]]\ntext = 'unmistakable'",
        &[],
    );
    let id = report["session_id"].as_str().unwrap();
    let store = home.home().join("sessions.db");
    let mut bytes = std::fs::read(&store).unwrap();
    let place = bytes.windows(12).position(|window| window == b"unmistakable").unwrap();
    bytes[place] = b'X';
    std::fs::write(&store, bytes).unwrap();
    home.brigade(&["sessions", "show", id]).exits(1).prints("before").says("is damaged");
    home.brigade(&["sessions", "tree", id]).exits(1).prints("lead").says("is damaged");
    home.brigade(&["resume", id]).exits(1).says("is damaged");
    // The others are not hidden by it.
    home.report("[[reply]]\ntext = 'whole'", &[]);
    let list = home.brigade(&["sessions", "list", "--output-format", "json"]).json();
    assert_eq!(list.as_array().unwrap().len(), 2);
}
