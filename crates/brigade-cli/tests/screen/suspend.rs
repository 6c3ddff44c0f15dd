//! Ctrl-Z in a shell with job control.

use brigade_testing::{Script, call, reply};
use serde_json::json;

use crate::cli::support::Home;
use crate::screen::support::Window;

const CTRL_Z: &str = "\u{1a}";

fn echo() -> Script {
    Script::new().reply("turn {turn}: {heard}")
}

/// Command that runs until a file exists.
fn waiting_command() -> Script {
    Script::new().turns([
        call("shell", json!({ "command": "while [ ! -e go ]; do sleep 0.05; done" })),
        reply("after the command"),
    ])
}

fn shell(home: &Home) -> Window {
    let window = Window::shell(home, (80, 24), &[("NO_COLOR", "1"), ("PS1", "shell$ ")]);
    window.wait_for("shell$");
    window
}

#[test]
fn ctrl_z_in_a_chat_gives_the_terminal_back_and_fg_resumes_it() {
    let home = Home::new();
    let window = shell(&home);
    window.press(&format!("$BRIGADE chat --model {}\r", home.script(echo())));
    window.wait_for("/help");
    window.press("first\r");
    window.wait_for("turn 1: first");
    window.press("half a li");
    window.wait_for("half a li");
    window.press(CTRL_Z);
    window.wait_for("Stopped");
    window.press("stty -a | tr ' ' '\\n' | grep -x -e icanon -e echo | sort | tr '\\n' '+'\r");
    window.wait_for("echo+icanon+");
    window.press("fg\r");
    window.wait_until("drawn again", |screen| screen.trim_end().ends_with("half a li"));
    window.press("ne\r");
    window.wait_for("turn 2: half a line");
    window.press("\u{4}");
    window.wait_until("left", |screen| screen.trim_end().ends_with("shell$"));
}

#[test]
fn ctrl_z_in_a_run_stops_it_and_fg_resumes_it() {
    let home = Home::new();
    let model = home.script(waiting_command());
    let window = shell(&home);
    window.press(&format!("$BRIGADE run --mode auto --model {model} 'the task'\r"));
    window.wait_for("shell while");
    window.press(CTRL_Z);
    let screen = window.wait_for("Stopped");
    assert!(window.cursor().is_some(), "the cursor is shown");
    assert!(!screen.contains("lead  "), "the tree is taken away:\n{screen}");
    home.brigade(&["run", "--model", &home.script(echo()), "another"]).exits_with(0);
    std::fs::write(home.work().join("go"), "").unwrap();
    window.press("fg\r");
    window.wait_for("after the command");
}
