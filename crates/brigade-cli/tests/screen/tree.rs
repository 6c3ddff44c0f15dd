//! The live tree.

use crate::home::Home;
use crate::support::Window;

/// A lead with two children who never answer.
const TWO: &str = r#"
[price]
input = 3.0
output = 15.0
[[reply]]
agent = "lead"
turn = 1
[[reply.call]]
tool = "delegate"
arguments = { role = "Reader", task = "read" }
[[reply.call]]
tool = "delegate"
arguments = { role = "Writer", task = "write" }
[[reply]]
agent = "Reader"
turn = 1
[[reply.call]]
tool = "read_file"
arguments = { path = "notes.txt" }
[[reply]]
fault = "hang"
"#;

#[test]
fn a_small_tree_is_shown_while_it_runs_and_taken_away_at_the_end() {
    let home = Home::new();
    home.write("work/notes.txt", "notes");
    let mut window = Window::run(&home, (100, 20), TWO, &[], &[("NO_COLOR", "1")]);
    window.wait_for("after read_file notes.txt");
    window.resize(40, 20);
    window.wait_until("narrow", |screen| screen.lines().count() == 3);
    window.signal(rustix::process::Signal::TERM);
    assert_eq!(window.end(), 130, "{}", window.text());
    assert!(window.text().contains("brigade sessions tree ##########################"), "{}", window.text());
    assert!(!window.sent().contains("\u{1b}[0m"), "{:?}", window.sent());
    assert!(window.cursor().is_some());
}

#[test]
fn ctrl_c_stops_the_tree() {
    let home = Home::new();
    let mut window = Window::run(&home, (80, 20), TWO, &[], &[]);
    window.wait_for("Writer");
    assert_eq!(window.cursor(), None, "nothing can be typed");
    window.press("\u{3}");
    assert_eq!(window.end(), 130, "{}", window.text());
    let stopping = "Stopping; what there is so far follows.";
    assert!(window.sent().contains(stopping) && !window.text().contains(stopping), "{}", window.text());
    assert!(window.cursor().is_some());
}
