//! The eval at a terminal.

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::Home;
use crate::screen::support::Window;

/// The lead calls a command that no rule allows, and reports the refusal.
fn asks() -> Script {
    Script::new().turns([call("shell", json!({ "command": "ls /" })), reply("288. {results}")])
}

#[test]
fn eval_at_a_terminal_denies_calls_that_need_approval() {
    let home = Home::new();
    let (model, folder) = (home.script(asks()), home.work());
    let arguments = ["eval", "quick-answer", "-m", &model];
    let environment = [("TMPDIR", folder.to_str().unwrap())];
    let mut window = Window::start(&home, (60, 30), &arguments, &environment);
    assert_eq!(window.end(), 0, "{}", window.text());
    let shown = window.text();
    assert!(shown.contains("quick-answer  passed  no"), "{shown}");
    assert!(!shown.contains("expected") && shown.contains("cost"), "narrow tables drop columns: {shown}");
    assert!(window.is_cooked());
}
