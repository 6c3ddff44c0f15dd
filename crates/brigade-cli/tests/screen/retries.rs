//! Provider that cannot be reached.

use brigade_testing::{Script, reply};
use insta::assert_snapshot;

use crate::cli::support::Home;
use crate::screen::support::Window;

/// Screen in which `#` replaces the random pause.
fn without_pause(screen: &str) -> String {
    let mut shown = String::new();
    let mut rest = screen;
    while let Some(at) = rest.find("retrying in ") {
        let (before, after) = rest.split_at(at + "retrying in ".len());
        let digits = after.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(after.len());
        shown.push_str(before);
        shown.push_str(&"#".repeat(digits));
        rest = &after[digits..];
    }
    shown + rest
}

#[test]
fn refused_connection_is_shown_with_the_next_attempt() {
    for (name, columns) in [("wide", 100), ("narrow", 60)] {
        let home = Home::new();
        let flags = [
            "--model",
            "llamacpp/none",
            "--set",
            "providers.llamacpp.base_url=http://127.0.0.1:9/v1",
            "--set",
            "limits.retry_pause=6s",
        ];
        let mut window = Window::start(&home, (columns, 10), &[&["run", "x"], &flags[..]].concat(), &[]);
        let screen = window.wait_for("attempt 2 of 6, retrying in ");
        assert!(!screen.contains("thinking"), "{screen}");
        assert_snapshot!(format!("refused_{name}"), without_pause(&screen));
        window.press("\u{3}");
        assert_eq!(window.end(), 130, "{}", window.text());
    }
}

/// Diagnostics on the same terminal would be written between the lines of the tree.
#[test]
fn diagnostics_on_the_terminal_replace_the_tree_by_lines() {
    let home = Home::new();
    let model = home.script(Script::new().reply(reply("hello").delay_ms(800)));
    let arguments = ["run", "x", "--model", &model];
    let mut window = Window::start(&home, (100, 30), &arguments, &[("BRIGADE_LOG", "debug")]);
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(window.sent().contains("DEBUG brigade::model: calling model"), "{}", window.sent());
    assert!(window.sent().contains("lead: started"), "{}", window.sent());
    assert!(!window.sent().contains("\u{1b}[?2026h"), "a frame was drawn: {}", window.sent());
    let variables = [("BRIGADE_LOG", "debug"), ("BRIGADE_LOG_FILE", "screen.log")];
    let mut window = Window::start(&home, (100, 30), &arguments, &variables);
    assert_eq!(window.end(), 0, "{}", window.text());
    assert!(!window.sent().contains("DEBUG"), "{}", window.sent());
    assert!(window.sent().contains("\u{1b}[?2026h"), "no frame was drawn: {}", window.sent());
}
