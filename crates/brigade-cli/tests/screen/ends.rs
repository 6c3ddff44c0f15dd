//! End of a run: changed files, a run stopped with Ctrl-C, and wrapped text.

use brigade_testing::{Fault, Script, call, fault, reply};
use insta::assert_snapshot;
use serde_json::json;

use crate::cli::support::Home;
use crate::screen::chat;
use crate::screen::support::Window;

const SIZES: [(&str, u16); 2] = [("wide", 100), ("narrow", 60)];

/// Two agents change files. One path is longer than a narrow window.
fn edits() -> Script {
    let result = "The sum is right again, and the notes say what was wrong with it in more words than fit into a line.";
    Script::new()
        .price(3.0, 15.0)
        .agent(
            "lead",
            [
                call("write_file", json!({ "path": "notes.txt", "content": "one\ntwo\nthree\n" }))
                    .delegate("Coder", "repair it")
                    .tokens(1200, 34),
                reply(result).tokens(100, 10),
            ],
        )
        .agent(
            "Coder",
            [
                call("read_file", json!({ "path": "src/of/a/rather/long/path/with/many/folders/calc.py" }))
                    .tokens(800, 20),
                call(
                    "edit_file",
                    json!({
                        "path": "src/of/a/rather/long/path/with/many/folders/calc.py",
                        "old": "a - b",
                        "new": "a + b",
                    }),
                )
                .tokens(900, 20),
                reply("done").tokens(950, 2),
            ],
        )
}

#[test]
fn summary_lists_the_files_that_agents_changed() {
    for (name, columns) in SIZES {
        let home = Home::new();
        let folder = home.work().join("src/of/a/rather/long/path/with/many/folders");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("calc.py"), "def add(a, b):\n    return a - b\n").unwrap();
        let mut window = Window::run(&home, (columns, 30), edits(), &["--mode", "edit"], &[]);
        assert_eq!(window.end(), 0, "{}", window.text());
        assert_snapshot!(format!("changes_{name}"), window.screen());
    }
}

#[test]
fn run_stopped_by_ctrl_c_names_the_resume_command() {
    for (name, columns) in SIZES {
        let home = Home::new();
        let script = Script::new().turns([fault(Fault::Hang).attempt(1), reply("finished")]);
        let mut window = Window::run(&home, (columns, 20), script, &[], &[]);
        window.wait_for("thinking");
        window.press("\u{3}");
        assert_eq!(window.end(), 130, "{}", window.text());
        let screen = window.screen();
        // The number depends on the length of the prompt.
        let (_, doubt) = screen.split_once("up to ").unwrap();
        let (tokens, _) = doubt.split_once(' ').unwrap();
        assert_snapshot!(format!("cancelled_{name}"), screen.replace(tokens, "##k"));
        let text = window.raw_text();
        let (_, after) = text.split_once("brigade resume ").unwrap();
        home.brigade(&["resume", after.lines().next().unwrap()]).exits_with(0).stdout_contains("finished");
    }
}

#[test]
fn denied_call_is_noted_with_its_reason() {
    let script = Script::new().turns([
        call("shell", json!({ "command": "rm -rf x" })).tokens(100, 10),
        reply("done").tokens(100, 10),
    ]);
    for (name, columns) in SIZES {
        let home = Home::new();
        let flags = ["--mode", "auto", "--set", "permissions.deny=[\"shell(rm *)\"]"];
        let mut window = Window::run(&home, (columns, 20), &script, &flags, &[]);
        assert_eq!(window.end(), 0, "{}", window.text());
        assert_snapshot!(format!("denied_{name}"), window.screen());
    }
}

#[test]
fn notes_and_errors_wrap_between_words() {
    for (name, columns) in SIZES {
        let home = Home::new();
        let mut window = Window::start(&home, (columns, 20), &["run", "count the files"], &[]);
        assert_eq!(window.end(), 2, "{}", window.text());
        assert_snapshot!(format!("no_model_{name}"), window.screen());
    }
}

/// A long reply, a call with a long output, and a child that fails for a reason of many words.
fn wordy() -> Script {
    let plan = "First of all I look at what there is in this folder, because nothing else says how the project \
                is built.";
    let command = "echo one two three four five six seven eight nine ten eleven twelve thirteen";
    let result = "The child could not repair it, and this sentence is longer than the window in which it is to be read.";
    let calls = reply(plan).call("shell", json!({ "command": command })).delegate("Coder", "repair it");
    Script::new().agent("lead", [calls, reply(result)]).agent("Coder", [fault(Fault::Refused).turn(1)])
}

/// Checks that no word is broken at the edge of the window.
#[track_caller]
fn breaks_no_word(window: &Window) {
    let text = window.text();
    let words: std::collections::HashSet<&str> = text.split_whitespace().collect();
    let screen = window.screen();
    let broken: Vec<&str> = screen.split_whitespace().filter(|word| !words.contains(word)).collect();
    assert!(broken.is_empty(), "{broken:?} in\n{screen}");
}

#[test]
fn what_commands_report_wraps_between_words() {
    let home = Home::new();
    home.run(wordy(), &["--mode", "auto"]).exits_with(0);
    for (columns, command) in [
        (52, &["doctor", "--offline"][..]),
        (60, &["sessions", "show", "last"]),
        (60, &["sessions", "tree", "last"]),
    ] {
        let mut window = Window::start(&home, (columns, 120), command, &[]);
        assert_eq!(window.end(), 0, "{}", window.text());
        breaks_no_word(&window);
    }
}

#[test]
fn what_chat_reports_wraps_between_words() {
    let home = Home::new();
    let window = chat::chat(&home, (60, 60), wordy(), &["--mode", "auto"]);
    window.press("go\r");
    window.wait_for("is to be read");
    window.press("/mode nonsense\r");
    window.wait_for("is not a mode");
    chat::wait_for_idle(&window);
    breaks_no_word(&window);
    window.press("\u{4}");
    chat::expect_exit(window, 0);
}
