//! The demo at a terminal.

use insta::assert_snapshot;

use crate::cli::support::Home;
use crate::screen::support::Window;

/// The screen with its numbers as signs: process ids differ in width, tokens and costs follow from the prompts.
fn without_numbers(screen: &str) -> String {
    let mut shown = String::new();
    for line in screen.lines() {
        let words = line.split_inclusive(' ').map(|word| {
            let digits = word.bytes().filter(u8::is_ascii_digit).count();
            if digits < 3 { word.to_owned() } else { word.replace(|c: char| c.is_ascii_digit(), "#") }
        });
        let mut line: String = words.collect();
        for (before, after) in [("Killed process ", " (SIGKILL)"), ("Process ", " resumes")] {
            if line.starts_with(before) && line.contains(after) {
                line = format!("{before}#####{}", &line[line.find(after).unwrap()..]);
            }
        }
        shown.push_str(&line);
        shown.push('\n');
    }
    shown
}

#[test]
fn demo_shows_the_kill_and_what_the_run_proved() {
    for (name, columns) in [("wide", 100), ("narrow", 60)] {
        let home = Home::new();
        let folder = home.work();
        let mut window =
            Window::start(&home, (columns, 80), &["demo"], &[("TMPDIR", folder.to_str().unwrap())]);
        let killed = window.wait_for("No process is running these agents now.");
        assert_snapshot!(format!("demo_killed_{name}"), without_numbers(&killed));
        assert_eq!(window.end(), 0, "{}", window.text());
        assert_snapshot!(format!("demo_{name}"), without_numbers(&window.screen()));
        assert!(window.is_cooked());
    }
}

#[test]
fn ctrl_c_ends_the_demo_and_removes_its_folder() {
    let home = Home::new();
    let folder = home.work();
    let mut window = Window::start(&home, (100, 40), &["demo"], &[("TMPDIR", folder.to_str().unwrap())]);
    window.wait_for("Fixer");
    window.press("\u{3}");
    assert_eq!(window.end(), 130, "{}", window.text());
    assert!(window.text().ends_with("Cancelled."), "{}", window.text());
    assert!(window.cursor().is_some() && window.is_cooked());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
